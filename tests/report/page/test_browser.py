"""Pages in a real browser: what a person sees and does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srfca.report.page.report import write_report
from tests.report.browser import (
    browser,
    draw_all,
    forget,
    look,
    problems,
    requests,
    require_browser,
    wait_until,
)
from tests.report.made_up import made_up_run
from tests.report.made_up_views import made_up_view

NARROW = 380


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    require_browser()
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pages of runs that differ in their clusters, and of a ``comparison``."""
    folder = tmp_path_factory.mktemp("pages")
    views = {
        "run": [made_up_view(num_clients=60, alone=2, unclustered=1, names="<b>client</b> {}")],
        "fifty": [made_up_view(num_clients=200, num_clusters=50)],
        "one": [made_up_view(num_clients=9, num_clusters=1)],
        "alone": [made_up_view(num_clients=40, num_clusters=0, alone=40)],
        "many": [made_up_view(num_clients=10_000, num_clusters=6, distances=False)],
        "comparison": [
            made_up_view(),
            made_up_view(
                method="Other", key="other", metrics=made_up_run("other", 0, 0.5), analyzed=False
            ),
        ],
    }
    for name, runs in views.items():
        write_report(runs, folder / f"{name}.html")
    return folder


def open_page(driver: Any, pages: Path, name: str, width: int = 1280, dark: bool = False) -> None:
    look(driver, width, dark=dark)
    driver.get("about:blank")
    forget(driver)
    problems(driver)
    driver.get(f"file://{pages / name}.html")
    wait_for_tables(driver)


def wait_for_tables(driver: Any) -> None:
    """Wait until the page's script has filled all tables of clients."""
    wait_until(
        driver,
        "return [...document.querySelectorAll('.client-table')]"
        ".every((table) => table.querySelector('[role=status]'))",
    )


def texts(driver: Any, selector: str) -> list[str]:
    found: list[str] = driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent.trim())",
        selector,
    )
    return found


def overflow(driver: Any) -> int:
    return int(
        driver.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
    )


@pytest.mark.parametrize("name", ["run", "fifty", "one", "alone", "many", "comparison"])
def test_charts_have_marks_and_nothing_goes_wrong(driver: Any, pages: Path, name: str) -> None:
    open_page(driver, pages, name)
    charts = draw_all(driver)
    assert charts >= 3
    empty = driver.execute_script(
        "return [...document.querySelectorAll('.view:not([hidden]) .chart')].filter((chart) =>"
        " !chart.querySelector('canvas') && chart.querySelectorAll('svg .mark-group path, svg"
        " .mark-symbol path, svg .mark-rect path, svg .mark-area path, svg .mark-line path')"
        ".length < 2).map((chart) => chart.dataset.chart)"
    )
    assert empty == []
    assert problems(driver) == []
    asked = requests(driver)
    assert asked == [f"file://{pages / name}.html"], "nothing is loaded but the page"


def test_clients_can_be_sorted_searched_and_filtered(driver: Any, pages: Path) -> None:
    open_page(driver, pages, "run")
    column = ".client-table tbody tr th"
    assert texts(driver, column)[:2] == ["<b>client</b> 0", "<b>client</b> 1"], "and escaped"
    heads = driver.find_elements("css selector", ".client-table thead button")
    accuracy = next(head for head in heads if head.text.startswith("test accuracy"))
    driver.execute_script("arguments[0].scrollIntoView()", accuracy)
    driver.execute_script("arguments[0].click()", accuracy)
    place = [head.text for head in heads].index(accuracy.text) + 1
    cells = f".client-table tbody tr > :nth-child({place})"
    values = [float(text.rstrip("%")) for text in texts(driver, cells)]
    assert values == sorted(values)
    head = accuracy.find_element("xpath", "..")
    assert head.get_attribute("aria-sort") == "ascending"
    driver.execute_script("arguments[0].click()", accuracy)
    values = [float(text.rstrip("%")) for text in texts(driver, cells)]
    assert values == sorted(values, reverse=True)
    search = driver.find_element("css selector", ".client-table input")
    search.send_keys("client</b> 5")
    assert sorted(texts(driver, column)) == [
        "<b>client</b> 5", *(f"<b>client</b> {n}" for n in range(50, 60)),
    ]  # fmt: skip
    search.clear()
    search.send_keys("nobody")
    assert texts(driver, ".client-table [role=status]") == ["No client matches."]
    search.clear()
    search.send_keys(" ")
    select = driver.find_element("css selector", ".client-table select")
    driver.execute_script(
        "arguments[0].value = 'unclustered'; arguments[0].dispatchEvent(new Event('change'))",
        select,
    )
    assert len(texts(driver, column)) == 1
    assert texts(driver, ".client-table select option") == [
        "all", "0", "1", "2", "alone", "unclustered",
    ]  # fmt: skip
    assert problems(driver) == []


def test_clients_that_are_alone_are_one_line_and_one_choice(driver: Any, pages: Path) -> None:
    open_page(driver, pages, "alone")
    assert texts(driver, "#run-clusters tbody th") == ["alone"]
    assert texts(driver, ".client-table select option") == ["all", "alone"]
    select = driver.find_element("css selector", ".client-table select")
    driver.execute_script(
        "arguments[0].value = 'alone'; arguments[0].dispatchEvent(new Event('change'))", select
    )
    assert texts(driver, ".client-table [role=status]") == ["1 to 25 of 40"]
    assert set(texts(driver, ".client-table tbody .chip")) == {"alone"}
    assert problems(driver) == []


def test_pages_of_the_table(driver: Any, pages: Path) -> None:
    open_page(driver, pages, "many")
    status = ".client-table [role=status]"
    assert texts(driver, status) == ["1 to 25 of 10,000"]
    following = driver.find_elements("css selector", ".pager button")[1]
    driver.execute_script("arguments[0].click()", following)
    assert texts(driver, status) == ["26 to 50 of 10,000"]


def test_the_theme_follows_the_person_and_the_switch(driver: Any, pages: Path) -> None:
    open_page(driver, pages, "run", dark=True)
    driver.execute_script("localStorage.clear()")
    draw_all(driver)
    color = "return getComputedStyle(document.body).backgroundColor"
    label = (
        "return document.querySelector('[data-chart=\"run-scores\"] .role-axis-label text')"
        "?.getAttribute('fill')"
    )
    axis = driver.execute_script(label)
    assert driver.execute_script(color) == "rgb(20, 23, 27)"
    driver.execute_script("document.getElementById('theme').click()")
    assert driver.execute_script(color) == "rgb(245, 246, 248)"
    other = f"const color = (() => {{ {label} }})(); return color && color !== arguments[0]"
    wait_until(driver, other, axis)  # charts have the colors of the theme
    driver.execute_script("localStorage.clear()")
    assert problems(driver) == []


@pytest.mark.parametrize("name", ["run", "fifty", "comparison"])
def test_a_phone_has_no_horizontal_overflow(driver: Any, pages: Path, name: str) -> None:
    open_page(driver, pages, name, width=NARROW)
    draw_all(driver)
    assert overflow(driver) <= 0
    wide = driver.execute_script(
        "return [...document.querySelectorAll('.view:not([hidden]) .chart svg, .chart canvas')]"
        ".filter((c) => c.getBoundingClientRect().right > innerWidth + 1)"
        ".map((c) => c.closest('.chart').dataset.chart)"
    )
    assert wide == []
    covered = driver.execute_script(
        "return [...document.querySelectorAll('.view:not([hidden]) figure > h3')].filter((h) => {"
        " const button = h.parentElement.querySelector('.vega-embed summary');"
        " const text = document.createRange(); text.selectNodeContents(h);"
        " const b = button.getBoundingClientRect();"
        " return [...text.getClientRects()].some((t) => t.right > b.left && t.left < b.right"
        " && t.bottom > b.top && t.top < b.bottom) }).map((h) => h.textContent)"
    )
    assert covered == [], "no heading is under the button of its chart"
    assert problems(driver) == []


def test_runs_of_a_comparison_are_opened_by_link_and_by_list(driver: Any, pages: Path) -> None:
    open_page(driver, pages, "comparison")
    only = (
        "const shown = [...document.querySelectorAll('.view:not([hidden])')].map((v) => v.id);"
        "return shown.join() === arguments[0]"
    )
    wait_until(driver, only, "comparison0")
    link = driver.find_element("css selector", 'a[href="#run1"]')
    driver.execute_script("arguments[0].click()", link)
    wait_until(driver, only, "run1")
    assert draw_all(driver) >= 3
    driver.execute_script(
        "const picker = document.getElementById('picker'); picker.value = 'comparison0';"
        "picker.dispatchEvent(new Event('change'))"
    )
    wait_until(driver, only, "comparison0")
    assert problems(driver) == []


def test_numbers_of_a_chart_are_shown_as_a_table(driver: Any, pages: Path) -> None:
    open_page(driver, pages, "run")
    opened = driver.execute_script(
        "document.querySelectorAll('details.numbers').forEach((d) => { d.open = true });"
        "return document.querySelectorAll('details.numbers').length"
    )
    assert opened >= 3
    wait_until(
        driver,
        "const rows = [...document.querySelectorAll('[data-numbers]')]"
        ".map((d) => d.querySelectorAll('tbody tr').length);"
        "return rows.length === arguments[0] && Math.min(...rows) >= 2",
        opened,
    )


def test_the_page_is_accessible(driver: Any, pages: Path) -> None:
    open_page(driver, pages, "run")
    draw_all(driver)
    unlabeled = driver.execute_script(
        "return [...document.querySelectorAll('button, input, select, [role=region], .chart, img')]"
        ".filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.alt"
        " || e.labels?.length)).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert unlabeled == []
    assert driver.execute_script("return document.querySelectorAll('h1').length") == 1
    described = driver.execute_script(
        "return [...document.querySelectorAll('.chart svg.marks')].every((s) =>"
        " s.getAttribute('aria-label') || s.querySelector('[aria-label]'))"
    )
    assert described
