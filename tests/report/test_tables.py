"""Reports as files."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import stdev

import pytest

from srfca.experiments.compare import compare
from srfca.report import tables
from tests.experiments.small import ROUND_ROBIN, small_experiment
from tests.report.made_up import RUNS


def test_files_of_every_format(tmp_path: Path) -> None:
    report = tables.Report(RUNS, "made-up, 100%", ["A note."])
    for suffix in tables.FORMATS:
        tables.write(report, tmp_path / f"t{suffix}")
    with (tmp_path / "t.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["method"], line["k"], line["runs"]) for line in lines] == [
        ("sr-fca", "", "2"), ("oracle", "", "2"), ("other", "", "2"),
    ]  # fmt: skip
    assert float(lines[0]["accuracy_mean"]) == pytest.approx(0.8)
    assert float(lines[0]["accuracy_std"]) == pytest.approx(stdev([0.75, 0.85]))
    assert lines[0]["tuned_loss_mean"] == lines[0]["tuned_loss_std"] == ""
    markdown = (tmp_path / "t.md").read_text()
    assert "| SR-FCA | 2 | 0.0 | **1.00** | **80.00 ± 7.07** | **80.0 ± 7.1** |" in markdown
    assert markdown.endswith("\nA note.\n")
    latex = (tmp_path / "t.tex").read_text()
    assert r"\textbf{80.00 $\pm$ 7.07}" in latex
    assert r"Other \& 5\% a\_b & 2 & 0.0 & 0.50 &" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\bottomrule") == 2
    assert not list(tmp_path.glob(".*")), "no temporary files are left"


def test_csv_has_a_line_for_each_k_and_their_mean() -> None:
    runs = compare(small_experiment(), [ROUND_ROBIN], k=[1, 2]).metrics
    lines = list(csv.DictReader(tables.as_csv(tables.Report(runs, "")).splitlines()))
    assert [line["k"] for line in lines] == ["1", "2", "mean"]
    assert [float(line["num_clusters_mean"]) for line in lines] == [1, 2, 1.5]
    assert lines[0]["num_clusters_std"] == "", "a single run has no deviation"
