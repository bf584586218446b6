"""Methods side by side: which runs there are, equal budgets, failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from srfca import Local, Result
from srfca.errors import InputError
from srfca.experiments import config
from srfca.experiments.compare import (
    budget,
    compare,
    default_methods,
    run_specs,
    training_length,
)
from srfca.experiments.executor import RunSpec
from srfca.experiments.user_data import experiment_from_data
from srfca.federation import ClientScores
from srfca.methods import METHODS, all_methods
from tests.experiments.small import ROUND_ROBIN, SMALL, small_experiment, write_npz


def test_methods_that_need_k_run_for_each_k() -> None:
    specs = run_specs(small_experiment(), ["local", ROUND_ROBIN], seeds=[5, 6])
    assert [(spec.method, spec.k, spec.seed) for spec in specs] == [
        ("local", None, 5), (ROUND_ROBIN, 2, 5), (ROUND_ROBIN, 4, 5), (ROUND_ROBIN, 6, 5),
        ("local", None, 6), (ROUND_ROBIN, 2, 6), (ROUND_ROBIN, 4, 6), (ROUND_ROBIN, 6, 6),
    ]  # fmt: skip
    assert str(specs[2]) == "Round robin K=4 seed 5"
    specs = run_specs(small_experiment(), [ROUND_ROBIN], k=[3, 1, 3])
    assert [spec.k for spec in specs] == [3, 1]
    specs = run_specs(small_experiment().set([f"{ROUND_ROBIN}.k=5"]), [ROUND_ROBIN])
    assert [spec.k for spec in specs] == [5], "the method's setting comes before the experiment's"
    runs = compare(small_experiment(), [ROUND_ROBIN], k=[1, 3]).metrics
    assert [(run["k"], run["num_clusters"]) for run in runs] == [(1, 1), (3, 3)]


def test_wrong_parameters_are_refused_before_any_run() -> None:
    for arguments, message in (
        (([ROUND_ROBIN], [0], [2, 0]), "k must be at least 1"),
        ((["sr-fca"], [0], [2]), "k is for methods that need it, and none of these does"),
        ((["local", "sfca"],), "did you mean 'sr-fca'"),
    ):
        with pytest.raises(InputError, match=message):
            run_specs(small_experiment(), *arguments)
    with pytest.raises(InputError, match="jobs must be at least 1"):
        compare(small_experiment(), ["local"], jobs=0)


def test_default_methods_need_no_truth_if_it_is_unknown() -> None:
    methods = default_methods(small_experiment())
    assert methods[:4] == ["sr-fca", "oracle", "local", "global"]
    assert set(methods) <= set(METHODS.keys())
    assert "oracle" not in default_methods(config.load("femnist"))


def test_an_equal_budget_is_that_of_sr_fca() -> None:
    experiment = config.load("rotated-digits").set(["steps=100", "refine_steps=2", *SMALL[:1]])
    assert budget(experiment) == pytest.approx(100 * (2 + 1 + 1 + 2 / 3)), (
        "ONE_SHOT, two REFINE steps, one model for all, and two trials of a third"
    )
    methods = ["sr-fca", "global", ROUND_ROBIN]
    specs = run_specs(experiment, methods, k=[2], equal_budget=True)
    steps = [experiment.set(s.settings).local_training(s.method)["steps"] for s in specs]
    assert steps == [100, 467, 233]
    [fedgroup] = run_specs(experiment, ["fedgroup"], k=[2], equal_budget=True)
    assert experiment.set(fedgroup.settings).local_training("fedgroup")["steps"] == 467 - 50
    equal = compare(experiment, methods[:2], equal_budget=True).metrics
    assert 200 * 8 < equal[0]["local_steps"] < 400 * 8, "one REFINE was enough"
    assert equal[1]["local_steps"] == 467 * 8
    unequal = compare(experiment, ["global"]).metrics
    assert unequal[0]["local_steps"] == 100 * 8
    assert "467 local steps" in training_length(experiment, True)
    assert "100 steps" in training_length(experiment, False)


EXTRA_TRAININGS = {"fedem": 2}
"""Trainings of single clients that a method does beyond its own: of k starts, unless it is less."""


def test_an_equal_budget_counts_participation() -> None:
    """All clients take part in ONE_SHOT and fine-tuning, half of them in every other training."""
    settings = ["steps=100", "refine_steps=2", "participation=0.5", *SMALL[:1]]
    experiment = config.load("rotated-digits").set(settings)
    total = budget(experiment)
    assert total == pytest.approx(100 * (1 + 1 / 3 + (2 + 1 + 1 / 3) / 2))
    varies = (
        "sr-fca",
        "fedsoft",
        "hypcluster",
        "fedgwc",
        "fedrc",
    )  # with the clusters that are formed
    methods = [m.key for m in all_methods() if m.key not in varies]
    for run in compare(experiment, methods, k=[2], equal_budget=True).metrics:
        extra = total * EXTRA_TRAININGS.get(run["method"], 0) or 5 * 2
        assert abs(run["local_steps"] / 8 - total) <= 5 + extra / 8, run["method"]


def test_a_failure_does_not_affect_other_runs(tmp_path: Path) -> None:
    experiment = experiment_from_data(write_npz(tmp_path / "data.npz"), "linear").set(["steps=1"])
    comparison = compare(experiment, ["local", "oracle", "global"], [0, 1])
    assert [run["method"] for run in comparison.metrics] == ["local", "global"] * 2
    assert [(run.spec.method, run.spec.seed) for run in comparison.failures] == [
        ("oracle", 0), ("oracle", 1),
    ]  # fmt: skip
    assert "needs the true clusters" in str(comparison.failures[0].error)


def test_any_error_of_a_run_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Local, run: object) -> None:
        raise ZeroDivisionError("in the user's code\nand more")

    monkeypatch.setattr(Local, "solve", fail)
    comparison = compare(small_experiment(), ["local", "global"])
    assert [run["method"] for run in comparison.metrics] == ["global"]
    errors = [outcome.error for outcome in comparison.failures]
    assert errors == ["ZeroDivisionError: in the user's code"]


def test_a_run_with_an_infinite_loss_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_infinite_loss(self: Result, *arguments: Any, **named: Any) -> ClientScores:
        scores = original(self, *arguments, **named)
        return replace(scores, loss=scores.loss.index_fill(0, torch.tensor([1]), torch.inf))

    original = Result.scores
    monkeypatch.setattr(Result, "scores", with_infinite_loss)
    [failure] = compare(small_experiment(), ["local"]).failures
    assert "Local diverged for client '1' (test loss)" in str(failure.error)


def test_specs_with_other_settings_differ() -> None:
    spec = RunSpec("local", 0)
    assert spec != replace(spec, settings=("local_training.steps=3",))
