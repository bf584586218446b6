"""``srfca reproduce``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import srfca

QUICK = ("reproduce", "synthetic", "--quick", "--jobs", "1")


def test_runs_are_recorded_listed_and_written_to_the_page(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "results"))
    done = srfca(*QUICK, *out, "--methods", "local,global", "--seeds", "2")
    assert done.returncode == 0, done.stderr
    assert "| Global |" in done.stdout.replace("  ", "")
    assert len(list((tmp_path / "results" / "synthetic").glob("*.json"))) == 4
    listed = srfca(*QUICK, *out, "--methods", "local,oracle", "--seeds", "2", "--list")
    cells = [[c.strip() for c in line.split("|")[2:5]] for line in listed.stdout.splitlines()[2:4]]
    assert cells == [["local", "0, 1", "-"], ["oracle", "-", "0, 1"]]
    page = tmp_path / "results.md"
    page.write_text("before\n<!-- reproduce:begin -->\n<!-- reproduce:end -->\nafter\n")
    arguments = ("--methods", "local,global", "--seeds", "2", "--no-run", "--docs", str(tmp_path))
    written = srfca(*QUICK, *out, *arguments)
    assert written.returncode == 0, written.stderr
    assert (
        "`srfca reproduce synthetic --methods local,global --seeds 2 --quick`" in page.read_text()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "fedavg"], "unknown row 'fedavg'"),
        (["--no-run"], "has no record of these runs"),
        (["--set", "steps"], "--set takes key=value"),
        (["--reduced", "--ablations"], "--ablations and --reduced are different studies"),
    ],
)
def test_invalid_input_is_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = srfca(*QUICK, "--out", str(tmp_path), *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_missing_data_are_skipped(tmp_path: Path) -> None:
    done = srfca("reproduce", "femnist", "--data-dir", str(tmp_path), "--out", str(tmp_path))
    assert done.returncode == 2
    assert "Skipped femnist: " in done.stderr
