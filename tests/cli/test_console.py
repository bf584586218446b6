"""Printing to terminals of any width."""

from __future__ import annotations

import re
import sys

import pytest

from srfca.cli.console import show, show_error
from srfca.cli.tables import methods_table, summary_table
from srfca.methods import all_methods
from srfca.report import summary
from tests.report.made_up import RUNS

WIDTHS = pytest.mark.parametrize("width", [20, 60, 80, 200])


def use_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard output a terminal; call this in the test, when ``capsys`` has replaced it."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)


@WIDTHS
def test_no_number_is_cut_in_a_narrow_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_terminal(width, monkeypatch)
    show(summary_table(summary.results(RUNS)))
    shown = capsys.readouterr().out
    assert "…" not in shown
    words = "SR-FCA", "Oracle", "Other & 5% a_b", "misclustered", "accuracy", "client", "ARI"
    for text in (*words, "80.00", "7.07", "80.0", "7.1", "0.50"):
        assert text in shown
    assert shown.count("±") == 4


@WIDTHS
def test_no_word_of_the_table_of_methods_is_cut(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_terminal(width, monkeypatch)
    show(methods_table(all_methods()))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    words = set(shown.split())
    assert {"Harshvardhan", "communication.", "personalization", "one-shot-kmeans"} <= words
    if width >= 80:
        assert max(map(len, shown.splitlines())) <= width, "it fits"
    assert ("federation," in words) == (width >= 150), "a wide terminal shows what methods do"


def test_piped_tables_have_a_line_for_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    show(methods_table(all_methods()))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == ""
    assert len(lines) == 2 + len(all_methods()) + 1
    assert all(line.startswith("|") and line.endswith("|") for line in lines[:-1])


def test_errors_are_colored_in_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = "a [bold]long[/bold] message " * 10
    show_error(message)
    assert capsys.readouterr().err == f"srfca: {message}\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    show_error(message)
    shown = capsys.readouterr().err
    assert "\x1b[" in shown
    assert message.strip() in shown
