"""Tables of the paper's experiments."""

from __future__ import annotations

from typing import Any

import pytest
from scipy import stats

from srfca.report.paired import paired_difference
from srfca.report.reproduction import (
    experiment_table,
    provenance,
    shortfalls,
    stages_table,
    summary_table,
)
from srfca.report.reproduction_page import results_markdown
from tests.report.made_up import made_up_run

TITLES = {"sr-fca": "SR-FCA", "oracle": "Oracle", "ifca": "IFCA"}


def record(row: str, seed: int, accuracy: float, k: int | None = None) -> dict[str, Any]:
    metrics = made_up_run("sr-fca", seed, accuracy, worst_tenth_accuracy=accuracy - 0.1)
    stage = {
        "name": "ONE_SHOT", "clusters": 2 + seed, "unclustered": 0, "test_accuracy": accuracy,
        "validation_accuracy": 0.5, "test_loss": 1.0, "validation_loss": 1.0,
    }  # fmt: skip
    run = {
        "row": row, "method": row, "k": k, "seed": seed, "machine": "a fast machine",
        "date": f"2026-11-1{seed}T00:00:00+00:00", "srfca": "1.0",
        "seconds": {"setup": 1.0, "run": 59.0},
    }  # fmt: skip
    return {"run": run, "metrics": metrics, "stages": [stage], "distances": None}


RECORDS = [
    record("ifca", 0, 0.7, 2), record("sr-fca", 0, 0.8), record("oracle", 0, 0.95),
    record("ifca", 1, 0.6, 2), record("sr-fca", 1, 0.9), record("oracle", 1, 0.95),
]  # fmt: skip
FIGURES = {"v1": {"sr-fca": 91.83}, "TMLR": {}}


def test_a_line_for_each_method_beside_published_figures() -> None:
    table = experiment_table("Title", RECORDS, TITLES, FIGURES)
    assert list(table.names) == ["SR-FCA", "Oracle", "IFCA, K=2"]
    cells = [dict(zip(table.columns, line, strict=True)) for line in table.cells]
    assert cells[0]["test accuracy %"] == "85.00 ± 7.07"
    assert cells[0]["v1"] == "91.83"
    assert "TMLR" not in table.columns
    assert cells[2]["minus SR-FCA"] == "-20.00 ± 127.06"
    assert cells[0]["minus SR-FCA"] == ""
    place = table.columns.index("test accuracy %")
    assert [line[place] for line in table.best] == [True, False, False]  # Oracle knows the truth


def test_published_figures_stand_beside_means_over_k() -> None:
    more = [record("ifca", seed, 0.5, 4) for seed in (0, 1)]
    table = experiment_table("Title", [*RECORDS, *more], TITLES, {"v1": {"ifca": 50.0}})
    cells = {
        name: dict(zip(table.columns, line, strict=True))
        for name, line in zip(table.names, table.cells, strict=True)
    }
    assert cells["IFCA, K=4"]["v1"] == ""
    mean = cells["IFCA, mean over K"]
    assert (mean["v1"], mean["test accuracy %"]) == ("50", "57.50 ± 3.54")


def test_differences_are_over_common_seeds() -> None:
    values, reference = {0: 1.0, 1: 2.5, 2: 3.0, 4: 9.0}, {0: 0.5, 1: 1.0, 2: 2.0}
    difference = paired_difference(values, reference)
    assert difference is not None
    interval = stats.ttest_1samp([0.5, 1.5, 1.0], 0).confidence_interval(0.95)
    assert difference.seeds == 3
    assert difference.mean - difference.half_width == pytest.approx(interval.low)  # type: ignore[operator]
    assert not difference.significant
    assert paired_difference({0: 1.0}, {0: 0.5}).text() == "+0.50"  # type: ignore[union-attr]
    assert paired_difference({0: 1.0}, {1: 0.5}) is None


def test_stages_of_sr_fca() -> None:
    table = stages_table("Stages", RECORDS)
    assert table is not None
    assert table.cells == [["2", "2, 3", "0", "50.00", "85.00 ± 7.07"]]
    assert stages_table("Stages", RECORDS[:1]) is None


def test_where_sr_fca_is_behind() -> None:
    ours = [record("sr-fca", 0, 0.8), record("sr-fca", 1, 0.9)]
    better = [record("oracle", 0, 0.85), record("oracle", 1, 0.952)]
    by_chance = [record("ifca", 0, 0.81, 2), record("ifca", 1, 0.99, 2)]
    runs = [*ours, *better, *by_chance]
    assert shortfalls(runs, TITLES, FIGURES) == [
        "6.83 below the published 91.83",
        "5.10 ± 1.27 below Oracle",
    ]
    assert shortfalls([*ours, better[0]], TITLES, {}) == []  # one seed has no interval
    assert shortfalls(better, TITLES, FIGURES) == []
    for run, loss in zip(runs, (2.0, 3.0, 1.0, 2.1, 3.0, 4.1), strict=True):
        run["metrics"] |= {"accuracy": None, "loss": loss}
    assert shortfalls(runs, TITLES, FIGURES) == ["0.95 ± 0.64 above Oracle"]


def test_distances_to_the_optimum_where_it_is_known() -> None:
    runs = [record("sr-fca", 0, 0.8), record("oracle", 0, 0.8)]
    assert "distance to w*" not in experiment_table("Title", runs, TITLES, {}).columns
    runs[0]["metrics"]["distance_to_optimum"] = 0.25
    table = experiment_table("Title", runs, TITLES, {})
    place = table.columns.index("distance to w*")
    assert [line[place] for line in table.cells] == ["0.25", "-"]


def test_the_papers_table() -> None:
    table = summary_table(
        "All", {"a": RECORDS, "b": RECORDS[:1]}, TITLES, {"v1": {"b": {"ifca": 4.5}}}
    )
    lines = dict(zip(table.names, table.cells, strict=True))
    assert lines["SR-FCA"] == ["85.00 ± 7.07", "-"]
    assert lines["IFCA, K=2"] == ["65.00 ± 7.07", "70.00"]
    assert lines["IFCA (v1)"] == ["-", "4.5"]


def test_the_page_says_where_and_when() -> None:
    assert provenance(RECORDS) == (
        "6 runs on a fast machine; 6 minutes; 2026-11-10 to 2026-11-11; srfca 1.0."
    )
    text = results_markdown(
        {"a": RECORDS}, TITLES, {"v1": {}}, "srfca reproduce a", "measured", {"a": ["steps=3"]}
    )
    assert text.startswith("`srfca reproduce a`: 6 runs on a fast machine")
    assert "### a, measured" in text
    assert "With steps=3." in text
    assert "**SR-FCA is below no published figure" in text
    assert "| ONE_SHOT |" in text
