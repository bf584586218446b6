"""Runs summarized by method and K."""

from __future__ import annotations

from statistics import fmean, stdev

from srfca.experiments.compare import compare
from srfca.report import summary, tables
from tests.experiments.small import ROUND_ROBIN, small_experiment
from tests.report.made_up import RUNS, made_up_run


def test_tables_of_results_and_costs() -> None:
    results = summary.results(RUNS)
    assert results.columns == [
        "clusters", "misclustered\n%", "ARI", "test\naccuracy %", "worst\nclient %",
    ]  # fmt: skip
    assert results.cells[0] == ["2", "0.0", "1.00", "80.00 ± 7.07", "80.0 ± 7.1"]
    assert results.best[0] == [False, False, True, True, True], "the best of two, none of equals"
    assert not any(results.best[1]), "a method that needs the truth is not ranked"
    incomplete = summary.results(RUNS[1:])  # without the worse seed of SR-FCA
    assert incomplete.names[-1] == "SR-FCA"
    assert not any(incomplete.best[-1]), "a method that failed on a seed is not ranked"
    costs = summary.costs(RUNS)
    assert costs.cells[0] == ["120", "120", "120", "5.00", "5.00", "120", "1.2"]
    regression = summary.results([made_up_run("other", 0, None, worst_loss=2e-6)])
    assert regression.columns[-2:] == ["test\nloss", "worst\nclient"]
    assert regression.cells[0][-2:] == ["0.5", "2e-06"]


def test_the_mean_over_k_uses_seeds_that_have_every_k() -> None:
    runs = [made_up_run("other", seed, 0.5, k=2) for seed in (0, 1)]
    runs += [made_up_run("other", 0, 0.9, k=4)]
    table = summary.results(runs)
    name = "Other & 5% a_b"
    assert table.names == [f"{name}, K=2", f"{name}, K=4", f"{name}, mean over K"]
    assert [cells[3] for cells in table.cells] == ["50.00", "90.00", "70.00"]
    disjoint = [made_up_run("other", 0, 0.5, k=2), made_up_run("other", 1, 0.9, k=4)]
    assert len(summary.results(disjoint).names) == 2


def test_the_mean_over_k_comes_before_the_mean_over_seeds() -> None:
    runs = compare(small_experiment(), ["local", ROUND_ROBIN], [0, 1, 2], k=[1, 2]).metrics
    groups = summary.group_runs(runs)
    assert [group.title for group in groups] == [
        "Local",
        "Round robin, K=1",
        "Round robin, K=2",
        "Round robin, mean over K",
    ]
    misclustering = {(run["k"], run["seed"]): run["misclustering"] for run in runs if run["k"]}
    means = [fmean([misclustering[1, seed], misclustering[2, seed]]) for seed in (0, 1, 2)]
    spread = groups[-1].spread(lambda run: run["misclustering"])
    assert spread == summary.Spread(fmean(means), stdev(means))
    assert means[0] == 0.25
    assert groups[0].spread(lambda run: run["misclustering"]) is None
    assert "Round robin: given the number of clusters, K." in tables.notes(runs)[0]
    assert tables.notes([run for run in runs if run["k"] != 2]) == []
