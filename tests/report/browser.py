"""A real browser for tests: Chromium, without a window and without a network."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars",
)  # fmt: skip
WAIT_SECONDS = 240
"""Longest wait for the page: only one that is broken takes so long."""


def require_browser() -> None:
    """Skip the test where Chromium, its driver or Selenium is not installed."""
    pytest.importorskip("selenium", reason="needs selenium")
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}: apt-get install chromium chromium-driver")


@contextmanager
def browser() -> Iterator[Any]:
    """Start Chromium with a new profile, and end it afterwards."""
    from selenium import webdriver

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            driver.get("about:blank")
            forget(driver)
            yield driver
        finally:
            driver.quit()


def look(driver: Any, width: int = 1280, height: int = 900, dark: bool = False) -> None:
    """Set what the person looks at the page with.

    Args:
        driver: The browser.
        width: Of the page in pixels.
        height: Of the part that is seen.
        dark: Whether the person prefers dark pages.
    """
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
    })  # fmt: skip
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def forget(driver: Any) -> None:
    """Forget what the browser asked for so far, such as for its own first page."""
    driver.get_log("performance")


def problems(driver: Any) -> list[str]:
    """Return what the browser complained about so far."""
    return [
        str(entry["message"])
        for entry in driver.get_log("browser")
        if entry["level"] in ("SEVERE", "WARNING")
    ]


def requests(driver: Any) -> list[str]:
    """Return the addresses that the browser asked for so far, without data in the page."""
    messages = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    addresses = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    own = ("data:", "blob:", "chrome", "about:")
    return [address for address in addresses if not address.startswith(own)]


def wait_until(driver: Any, script: str, *arguments: Any) -> None:
    """Wait until a script returns true; for minutes, because the machine may be busy.

    Args:
        driver: The browser.
        script: A JavaScript function's body.
        arguments: Of the script.

    Raises:
        selenium.common.exceptions.TimeoutException: If it never does.
    """
    from selenium.webdriver.support.ui import WebDriverWait

    waiting = WebDriverWait(driver, WAIT_SECONDS)
    waiting.until(lambda d: d.execute_script(script, *arguments), f"never true: {script}")


def draw_all(driver: Any) -> int:
    """Scroll through the page until all charts of the view are drawn; return their number."""
    driver.execute_script("window.scrollTo(0, 0)")
    charts = driver.execute_script(
        "const charts = [...document.querySelectorAll('.view:not([hidden]) .chart')];"
        "charts.forEach((chart) => chart.scrollIntoView()); return charts.length"
    )
    wait_until(
        driver,
        "const next = [...document.querySelectorAll('.view:not([hidden]) .chart')]"
        ".find((chart) => chart.dataset.drawn !== 'yes');"
        "if (next) next.scrollIntoView({behavior: 'instant', block: 'center'}); return !next",
    )
    return int(charts)
