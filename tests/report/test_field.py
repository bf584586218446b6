"""The table of a benchmark."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from srfca.report.field import FieldLine, Variant, lines
from srfca.report.field_report import FieldReport, score_title
from srfca.report.field_tables import (
    clusters_text,
    difference_text,
    doubtful_text,
    full_cell,
    outliers_text,
    short_cell,
)
from srfca.report.flux import PUBLISHED, published_table
from tests.report.made_up import made_up_run

SHIFTS = ("features", "labels", "labels-given-features", "features-given-labels")


def run(method: str, seed: int, accuracy: float | None, **changes: Any) -> dict[str, Any]:
    names = {"sr-fca": "SR-FCA", "oracle": "Oracle", "global": "Global", "local": "Local"}
    made_up = made_up_run("sr-fca", seed, accuracy, **changes)
    return made_up | {"method": method, "name": names[method]}


RUNS = [
    run("sr-fca", 0, 0.80, num_clusters=3), run("sr-fca", 1, 0.90, num_clusters=1),
    run("oracle", 0, 0.70, tuned_accuracy=0.81), run("oracle", 1, 0.70, tuned_accuracy=0.93),
    run("global", 0, 0.60, tuned_accuracy=0.50), run("global", 1, 0.64, tuned_accuracy=0.50),
]  # fmt: skip


def only_line(runs: list[dict[str, Any]]) -> FieldLine:
    [line] = lines(runs, ["made-up"])
    return line


def test_the_difference_is_paired_by_seed_and_to_the_best_reference() -> None:
    difference = only_line(RUNS).difference
    assert difference is not None
    assert difference.best == Variant("oracle", fine_tuned=True)
    assert difference.best.title == "Oracle, fine-tuned"
    assert difference.spread.mean == pytest.approx(-2.0)
    assert difference.spread.deviation == pytest.approx(2**0.5)
    assert difference.worse is True
    assert difference_text(only_line(RUNS)) == "-2.0! ±1.4"


def test_one_seed_has_no_deviation() -> None:
    line = only_line([run for run in RUNS if run["seed"] == 0])
    assert difference_text(line) == "-1.0"
    assert short_cell(line, "oracle") == "81.0*"


def test_only_seeds_of_both_are_paired() -> None:
    line = only_line([run for run in RUNS if (run["method"], run["seed"]) != ("sr-fca", 1)])
    assert difference_text(line) == "-1.0"
    assert only_line([run for run in RUNS if run["method"] != "sr-fca"]).difference is None


def test_of_losses_the_lower_is_better() -> None:
    losses = {"sr-fca": (0.5, None), "global": (0.25, 0.75), "local": (1.0, 0.875)}
    runs = [
        run(method, seed, None, loss=plain, tuned_loss=tuned)
        for method, (plain, tuned) in losses.items()
        for seed in (0, 1)
    ]
    line = only_line(runs)
    assert [short_cell(line, method) for method in losses] == ["0.5 ±0", "0.25 ±0", "0.875* ±0"]
    assert difference_text(line) == "+0.25! ±0"
    assert score_title([line]) == "Mean test loss of the clients"
    assert "made-up: losses, lower is better." in FieldReport([line], "").notes()


def test_cells() -> None:
    line = only_line(RUNS)
    assert short_cell(line, "global") == "62.0 ±2.8"
    assert full_cell(line, "oracle") == "70.0 ±0.0 → 87.0 ±8.5"
    assert full_cell(line, "sr-fca") == "85.0 ±7.1"
    assert short_cell(line, "local") == "-"
    assert clusters_text(line) == "3, 1 of 2"
    assert clusters_text(only_line(RUNS[:1])) == "3 of 2"
    assert clusters_text(only_line(RUNS[2:])) == "-"
    unknown = [made_up | {"true_clusters": None} for made_up in RUNS]
    assert clusters_text(only_line(unknown)) == "3, 1"


def flux_runs(missing: str = "") -> tuple[list[dict[str, Any]], list[str]]:
    names = [f"flux-mnist/{shift}/{level}" for shift in SHIFTS for level in range(1, 9)]
    runs = [
        run("sr-fca", seed, 0.5 + 0.01 * number + 0.02 * seed, experiment=name)
        for seed in (0, 1)
        for number, name in enumerate(names)
        if name != missing
    ]
    return runs, names


def test_lines_are_means_over_levels_and_over_all() -> None:
    shown = lines(*flux_runs())
    assert [(line.title, line.num_federations) for line in shown] == [
        *((f"flux-mnist/{shift}", 8) for shift in SHIFTS), ("flux-mnist, mean", 32),
    ]  # fmt: skip
    assert short_cell(shown[0], "sr-fca") == "54.5 ±1.4"
    assert short_cell(shown[-1], "sr-fca") == "66.5 ±1.4"
    assert clusters_text(shown[0]) == "2.0 of 2.0"
    assert FieldReport(shown, "").notes()[-1].startswith("Means over 8 federations: flux-mnist/f")


def test_there_is_no_mean_over_some_of_the_levels() -> None:
    shown = lines(*flux_runs(missing="flux-mnist/labels/5"))
    assert [short_cell(line, "sr-fca") for line in shown][1::3] == ["-", "-"]


def test_published_figures_are_shown_beside_whole_means() -> None:
    table = published_table(lines(*flux_runs()))
    assert table is not None
    assert table.names == ["flux-mnist"]
    assert table.cells[0][:4] == ["66.5 ±1.4", "-", "-", "92.5"]
    assert len(table.columns) == 3 + len(PUBLISHED["flux-mnist"])
    runs, names = flux_runs()
    assert published_table(lines(runs, names[:8])) is None


def test_one_table_or_two() -> None:
    report = FieldReport([only_line(RUNS)], "Title", fine_tune=50, remarks=["A remark."])
    [table] = report.tables()
    assert [name.split("\n")[0] for name in table.columns] == [
        "SR-FCA", "Oracle", "Global", "SR-FCA", "clusters", "ARI", "doubtful", "local",
    ]  # fmt: skip
    assert table.best == [[True, *[False] * 7]], "Oracle is given the clusters"
    assert [len(part.columns) for part in report.tables(split=True)] == [4, 4]
    assert report.notes()[0].startswith("*: after at most 50 steps")
    assert report.notes()[-1] == "A remark."


def test_files(tmp_path: Path) -> None:
    report = FieldReport([only_line(RUNS)], "Title", fine_tune=50)
    for suffix in (".csv", ".md", ".tex"):
        report.write(tmp_path / f"t{suffix}")
    [line] = csv.DictReader((tmp_path / "t.csv").read_text().splitlines())
    assert (line["federation"], line["best_reference"]) == ("made-up", "Oracle, fine-tuned")
    assert float(line["oracle_fine_tuned_mean"]) == pytest.approx(87.0)
    assert (line["clusters"], line["local_steps"], line["worse"]) == ("3 1", "120.0", "True")
    assert "| made-up | **85.0 ±7.1** | 70.0 ±0.0 → 87.0 ±8.5 |" in (tmp_path / "t.md").read_text()
    assert r"\textbf{85.0 $\pm$7.1}" in (tmp_path / "t.tex").read_text()


def test_outliers_and_doubts_are_counted_over_seeds() -> None:
    served = {"true_labels": [0, 0, 1, 2], "client_accuracies": [0.8] * 4}
    runs = [
        run("sr-fca", 0, 0.8, labels=[0, 0, 1, 2], warning="a doubt", **served),
        run("sr-fca", 1, 0.8, labels=[0, 0, 0, 1], **served),
        run("local", 1, 0.8, labels=[0, 1, 2, 3], client_accuracies=[0.5, 0.5, 0.9, 0.5]),
    ]
    line = only_line(runs)
    assert outliers_text(line) == "3 of 4, -10.0"
    assert doubtful_text(line) == "1 of 2"
    assert "outliers alone" in FieldReport([line], "").notes()[-1]
    assert outliers_text(only_line(RUNS)) == "-"
    assert doubtful_text(only_line(RUNS[2:])) == "-"
