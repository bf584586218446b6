"""Single runs: what they compute, and what they score."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from srfca import progress
from srfca.clustering import Choice
from srfca.distances import ModelSet
from srfca.errors import InputError
from srfca.experiments import config, runner
from srfca.experiments.user_data import experiment_from_data
from srfca.federation import Scores
from srfca.methods import Monitor, Run
from srfca.methods._common.rounds import train_locally
from srfca.methods.sr_fca.algorithm import recluster, trimmed_mean_gd
from srfca.methods.sr_fca.thresholds import OneShot
from srfca.random import Key
from srfca.report.summary import results
from tests.experiments.small import write_npz


def test_synthetic_has_the_numbers_of_the_paper() -> None:
    experiment = config.load("synthetic")
    assert experiment.arguments("data") == {
        "num_clients": 100, "samples": 100, "dimension": 1000, "clusters": 2, "noise": 0.001,
    }  # fmt: skip
    method = runner.make_method(experiment, "sr-fca")
    assert (method.refine_steps, method.distance, method.local.steps) == (1, "l2", 280)
    assert (method.threshold, method.local.batch_size) == ("auto", None)


def test_no_method_has_too_low_a_learning_rate_for_synthetic() -> None:
    """Methods that know or find the clusters get to the optimum in the steps of the preset."""
    experiment = config.load("synthetic").set(["num_clients=20", "dimension=100", "inputs=100"])
    federation = runner.make_federation(experiment, 3)
    assert federation.data.truth is not None
    for key in (
        "sr-fca", "oracle", "cfl", "hierarchical", "fesem", "one-shot-kmeans", "hypcluster",
    ):  # fmt: skip
        run = runner.run_method(experiment, key, federation, seed=3)
        assert float(run.scores.loss.mean()) < 1.5e-6, key


def test_synthetic_is_solved_as_well_as_with_the_true_clusters() -> None:
    """The setting of the paper at a fifth of its dimension; the loss is near the noise's."""
    settings = ["dimension=200", "inputs=200", "samples=60", "num_clients=40"]
    experiment = config.load("synthetic").set(settings)
    federation = runner.make_federation(experiment, seed=0)
    metrics = runner.run_method(experiment, "sr-fca", federation, seed=0).metrics
    assert (metrics["num_clusters"], metrics["misclustering"], metrics["ari"]) == (2, 0.0, 1.0)
    assert metrics["loss"] < 2e-6
    assert metrics["distance_to_optimum"] < 0.01
    assert federation.data.truth is not None
    method = runner.make_method(experiment, "sr-fca")
    oracle = trimmed_mean_gd(Run(federation, seed=0), method, federation.data.truth, step=1)
    request = Scores(np.arange(40), oracle.client_models, "test")
    ceiling = float(federation.ask(request).values.loss.mean())
    assert metrics["loss"] <= 2 * ceiling
    alone = runner.run_method(experiment, "local", federation, seed=0).metrics
    assert alone["loss"] > 1
    assert alone["num_clusters"] is alone["misclustering"] is alone["ari"] is None


def test_distances_of_poor_local_models_mislead() -> None:
    """The numbers of docs/sr_fca.md: plain RECLUSTER moves well-placed clients of seed 4."""
    experiment = config.load("synthetic")
    federation = runner.make_federation(experiment, seed=4)
    truth = federation.data.truth
    assert truth is not None
    checked = runner.make_method(experiment, "sr-fca")
    plain = replace(checked, threshold=1.0)
    run = Run(federation, seed=4)
    local_models = train_locally(run, checked.local, Key(4, "one_shot"))
    models = ModelSet.of_clients(federation, local_models.answered)
    clusters = trimmed_mean_gd(run, checked, truth, step=1)
    found = OneShot(truth, Choice("distance", 1.0, None, ""), distance=checked.distance)
    moved = recluster(run, plain, clusters, models, found).partition
    assert moved.misclustering(truth) == pytest.approx(0.19)
    assert recluster(run, checked, clusters, models, found).partition == truth


def test_there_must_be_something_to_score_on(tmp_path: Path) -> None:
    experiment = experiment_from_data(write_npz(tmp_path / "data.npz"))
    experiment = experiment.set(["validation=0", "steps=1"])
    with pytest.raises(InputError, match="nothing to score on"):
        runner.run_method(experiment, "local", runner.make_federation(experiment, 0), 0)


def test_a_warm_start_is_trained_by_fedavg() -> None:
    settings = ["num_clients=8", "rotations=2", "steps=10"]
    plain = config.load("rotated-digits").set(settings)
    warm = plain.set(["warm_start=6"])
    start = runner.make_federation(warm, seed=3).initial_model(3)
    of_method = ["global.lr=0.01", "global.participation=0.5", "global.weighted=false"]
    same = runner.make_federation(warm.set(of_method), seed=3).initial_model(3)
    assert torch.equal(start, same), "these settings are for the method"
    federation = runner.make_federation(plain, seed=3)
    method = runner.make_method(plain.set(["local_training.steps=6"]), "global")
    assert torch.equal(start, method.fit(federation, seed=3).models[0])
    assert not torch.equal(start, federation.initial_model(3))
    factory = runner.make_federation(warm, seed=3).architecture.factory
    assert factory is not None
    assert factory.name == "mlp", "a result of a warm start can be loaded"


def test_a_warm_start_can_have_its_own_rate_and_is_not_fine_tuned() -> None:
    settings = ["num_clients=8", "rotations=2", "steps=10", "warm_start=6"]
    plain = config.load("rotated-digits").set(settings)
    slower = plain.set(["local_training.lr=0.01", "warm_lr=0.2", "fine_tune_steps=5"])
    expected = runner.make_federation(plain.set(["local_training.lr=0.2"]), seed=3).initial_model(3)
    stages: list[str] = []

    class Recorder(Monitor):
        def stage(self, name: str, steps: int) -> AbstractContextManager[progress.Callback]:
            stages.append(name)
            return nullcontext(progress.ignore)

    start = runner.make_federation(slower, seed=3, monitor=Recorder()).initial_model(3)
    assert torch.equal(start, expected)
    assert stages
    assert "FINE_TUNE" not in stages


@pytest.mark.parametrize("key", ["fedsoft", "ditto", "local", "global"])
def test_both_models_of_a_method_are_scored(key: str) -> None:
    settings = ["num_clients=8", "rotations=2", "steps=10", "hidden=8", "predicts_with=personal"]
    experiment = config.load("rotated-digits").set(settings)
    federation = runner.make_federation(experiment, 0)
    run = runner.run_method(experiment, key, federation, 0)
    metrics = run.metrics
    if key not in ("fedsoft", "ditto"):
        assert metrics["cluster_accuracy"] is metrics["cluster_loss"] is None
        return
    shared = replace(run.result, individual_models=None).scores(federation)
    assert shared.accuracy is not None
    assert metrics["cluster_accuracy"] == pytest.approx(float(shared.accuracy.mean()))
    assert metrics["cluster_loss"] == pytest.approx(float(shared.loss.mean()))
    assert metrics["cluster_loss"] != metrics["loss"]
    assert "cluster\nmodel %" in results([metrics]).columns
