"""Pages: complete, small, safe and without any address of another file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srfca import InputError
from srfca.analysis import SampleInput
from srfca.report.answer import clusters_table
from srfca.report.page.images import Gallery, gallery
from srfca.report.page.report import report, write_report
from srfca.report.page.run_view import run_view
from srfca.report.page.tables import client_table, cluster_table
from tests.report.charts.test_charts import VIEWS
from tests.report.made_up import made_up_run
from tests.report.made_up_views import made_up_view

NASTY = '</script><script>alert("{}")</script><b>&'


def page_data(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', html, re.S)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def without_scripts(html: str) -> str:
    return re.sub(r"<script.*?</script>", "", html, flags=re.S)


@pytest.mark.parametrize("name", VIEWS)
def test_a_page_is_complete_and_small(name: str) -> None:
    view = made_up_view(**VIEWS[name])
    html = report([view])
    assert len(html) < 3_000_000
    body = without_scripts(html)
    for chart in page_data(html)["charts"]:
        assert f'data-chart="{chart}"' in body
    for title in ("What was found", "Clients", "Cost", "Settings"):
        assert title in body
    links = re.findall(r'(?:src|href)="([^"]*)"', body)
    assert all(link.startswith(("#", "data:")) for link in links), links
    assert set(re.findall(r'href="#([^"]*)"', body)) <= set(re.findall(r'id="([^"]*)"', body))


def test_names_of_clients_are_escaped() -> None:
    view = made_up_view(names=NASTY, experiment="<i>x</i>")
    html = report([view])
    assert "<script>alert" not in html
    assert "<i>x</i>" not in html
    (table,) = page_data(html)["tables"].values()
    assert table["rows"][0][0] == NASTY.format(0), "and are still there"


def test_a_comparison_has_a_view_of_each_run() -> None:
    runs = [made_up_view(seed=seed) for seed in (0, 1)]
    runs += [
        made_up_view(seed=seed, method="Other", key="other", parameters={"k": 2},
                     metrics=made_up_run("other", seed, 0.5, k=2))
        for seed in (0, 1)
    ]  # fmt: skip
    html = report(runs)
    body = without_scripts(html)
    assert body.count('<article class="view"') == 5
    assert "Methods side by side" in body
    assert "80.00" in body
    for number in range(4):
        assert f'href="#run{number}"' in body
    charts = page_data(html)["charts"]
    assert {"comparison0-scores", "run0-map", "run3-map"} <= set(charts)


def test_runs_of_several_experiments_have_a_comparison_each() -> None:
    runs = [made_up_view(experiment=name) for name in ("a", "b")]
    body = without_scripts(report(runs))
    assert "Comparison: a" in body
    assert "Comparison: b" in body


def test_what_cannot_be_reported_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one run"):
        report([])
    with pytest.raises(InputError, match="metrics, which 2 of them lack"):
        report([made_up_view(metrics={})] * 2)
    with pytest.raises(InputError, match=r"must end with \.html"):
        write_report([made_up_view()], tmp_path / "report.pdf")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        write_report([made_up_view()], tmp_path / "folder.html")
    assert write_report([made_up_view()], tmp_path / "new" / "r.html").exists()


def test_warnings_are_on_the_page() -> None:
    view = made_up_view(unclustered=2)
    history = list(view.history)
    notes = {"warning": "one model may do as well", "decision": "Chose.", "missing": [
        {"client": "client 1", "request": "train", "reason": "late"}]}  # fmt: skip
    history[-1] = history[-1].__class__(**{**vars(history[-1]), "notes": notes})
    body = without_scripts(report([made_up_view(unclustered=2, history=tuple(history))]))
    assert "uncertain: one model may do as well" in body
    assert "2 clients are in no cluster" in body
    assert "1 reply is missing, of 1 client: client 1 (1)." in body


def test_the_table_of_clusters_has_gains_and_confidence() -> None:
    table = cluster_table(made_up_view(alone=2, unclustered=1))
    assert [line.name for line in table.lines] == ["0", "1", "2", "alone", "unclustered"]
    clients = table.columns.index("clients")
    assert [line.cells[clients] for line in table.lines][3:] == ["2", "1"]
    assert {"points over one model", "confidence", "stability", "true clusters"} <= set(
        table.columns
    )
    plain = cluster_table(made_up_view(analyzed=False, truth=False))
    assert plain.columns == ["clients", "share", "test accuracy", "worst client"]


def test_the_table_of_clusters_has_the_gains_that_a_terminal_shows() -> None:
    view = made_up_view(accuracy=False, alone=2)
    assert view.analysis is not None
    shown = clusters_table(view.analysis)
    assert shown is not None
    page, titles = cluster_table(view), [title.replace("\n", " ") for title in shown.columns]
    compared = [title for title in titles if title.startswith("loss against")]
    assert len(compared) == 2
    for title in compared:
        cells = [line.cells[page.columns.index(title)] for line in page.lines]
        assert cells == [line[titles.index(title)] for line in shown.cells]
        assert any(cell.endswith("%") for cell in cells)


def test_gains_come_with_how_even_they_are() -> None:
    titled = {section.title: section.body for section in run_view(made_up_view()).sections}
    assert "Jain&#39;s index" in titled["Gains"]
    assert "one model for all</th>" in titled["Gains"]
    assert "worst tenth" not in titled["Confidence"]
    of_losses = {s.title: s.body for s in run_view(made_up_view(accuracy=False)).sections}
    assert "worst tenth" in of_losses["Gains"]
    assert "Jain" not in of_losses["Gains"]


def test_the_table_of_clients_has_all_of_them() -> None:
    table = client_table(made_up_view(num_clients=30, unclustered=1))
    assert len(table["rows"]) == table["total"] == 30
    assert [column["title"] for column in table["columns"]][:3] == [
        "client", "cluster", "true cluster",
    ]  # fmt: skip
    assert set(table["colors"]) == {"-1", "0", "1", "2"}
    assert client_table(made_up_view(alone=2))["alone"] == [3, 4]
    large = client_table(made_up_view(num_clients=30_000, distances=False, analyzed=False))
    assert len(large["rows"]) <= 20_003 < large["total"]


def test_mean_inputs_are_pictures_if_they_are_images() -> None:
    shown = gallery(made_up_view())
    assert [part.cluster for part in shown.clusters] == [0, 1, 2]
    assert not shown.has_samples
    assert gallery(made_up_view(analyzed=False)).clusters == ()


def test_sixteen_columns_of_a_table_are_no_image() -> None:
    view = made_up_view()
    assert view.analysis is not None
    assert view.analysis.differences is not None
    columns = replace(view.analysis.differences, input_shape=(16,))
    assert gallery(replace(view, analysis=replace(view.analysis, differences=columns))) == Gallery()


def test_single_inputs_are_shown_with_their_class() -> None:
    view = made_up_view()
    assert view.analysis is not None
    differences = view.analysis.differences
    assert differences is not None
    samples = (SampleInput("ann", 2, (0.5,) * 16), SampleInput("<bob>", None, (1.0,) * 16))
    parts = tuple(replace(part, sample_inputs=samples) for part in differences.by_cluster)
    analysis = replace(view.analysis, differences=replace(differences, by_cluster=parts))
    shown = replace(view, analysis=analysis)
    assert [image.title for image in gallery(shown).clusters[0].samples] == ["class 2", "<bob>"]
    body = without_scripts(report([shown]))
    assert 'alt="Sample of client ann, class 2"' in body
    assert "&lt;bob&gt;" in body


def test_omissions_are_stated() -> None:
    view = made_up_view(num_clients=200, num_clusters=50)
    assert gallery(view).remark.endswith("The first 24 of 50 clusters are shown.")
    assert "The first 40 of 50 clusters are shown." in without_scripts(report([view]))


def test_nothing_is_certain_on_a_page() -> None:
    view = made_up_view()
    assert view.analysis is not None
    assert view.analysis.confidence is not None
    sure = replace(view.analysis.confidence, confidence=np.ones(view.num_clients))
    shown = replace(view, analysis=replace(view.analysis, confidence=sure))
    table = cluster_table(shown)
    place = table.columns.index("confidence")
    assert {line.cells[place] for line in table.lines} == {">99%"}
    (data,) = page_data(report([shown]))["tables"].values()
    kinds = {column["title"]: column["kind"] for column in data["columns"]}
    assert kinds["confidence"] == "confidence", "which the script writes as >99 %"


def test_a_method_without_clusters_has_no_section_of_clusters() -> None:
    view = run_view(made_up_view(clustered=False, analyzed=False, num_clusters=1))
    assert "Clusters" not in [section.title for section in view.sections]


def test_the_list_of_views_names_the_runs() -> None:
    other = made_up_view(method="Other", key="other", metrics=made_up_run("other", 0, 0.5))
    text = report([made_up_view(), other])
    options = re.findall(r'<option value="[a-z]+[0-9]">(.*?)</option>', text)
    assert options == ["Comparison", "SR-FCA, seed 0", "Other, seed 0"]
    assert "2 methods" in text.split("</title>")[0]
