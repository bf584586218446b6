"""Where the authors' published code departs from the paper: a test for each that would catch it.

The numbers are those of docs/sr_fca.md.
"""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch

import srfca
from srfca import SRFCA, FedAvg, InputError, Local, LocalTraining, Partition, Simulation
from srfca.aggregation import trimmed_mean
from srfca.clustering import Choice
from srfca.distances import ModelSet
from srfca.federation import Train
from srfca.methods import Run
from srfca.methods._common.rounds import train_locally
from srfca.methods.sr_fca.algorithm import merge, recluster, trimmed_mean_gd
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.thresholds import OneShot
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.methods.helpers import NoTestData, losses, scores, train

LOCAL = LocalTraining(steps=12, local_steps=3, batch_size=10, lr=0.05)


def regressions(num_clients: int = 12, clusters: int = 3) -> Simulation:
    sizes = [20 + i % 3 for i in range(num_clients)]
    return Simulation(examples.regression(sizes, clusters=clusters), linear(4))


def test_1_t_is_inclusive_and_no_client_leaves_the_mean() -> None:
    exactly_t = Partition([0, 0, 1]).drop_smaller_than(2)
    assert exactly_t == Partition([0, 0, -1]), "exactly t clients are enough"
    federation = Simulation(srfca.data.rotated_digits(num_clients=12), mlp(64, 64, 10))
    local = LocalTraining(steps=60, local_steps=5, batch_size=10, lr=0.5)
    result = SRFCA(local=local, min_size=4).fit(federation, seed=0)
    assert len(result.scores(federation).loss) == 12
    assert bool(result.scores(federation).loss.isfinite().all())
    assert (result.labels >= 0).all()


def test_2_recluster_keeps_models_and_numbers_together() -> None:
    run = Run(regressions(4))
    local_models = ModelSet.of_clients(run, torch.tensor([[9.0], [9.1], [0.0], [0.2]]))
    models = torch.tensor([[0.0], [5.0], [9.0]])
    clusters = Clusters(Partition([0, 0, 1, 2]), models)
    options = SRFCA(distance="l2", threshold=1.0)
    found = OneShot(clusters.partition, Choice("distance", 1.0, None, ""), distance="l2")
    result = recluster(run, options, clusters, local_models, found)
    assert result.partition.labels.tolist() == [0, 0, 1, 1], "renumbered, and one has disappeared"
    assert result.models.tolist() == [[9.0], [0.0]], "and so have the models"


def test_3_merge_averages_and_what_is_reported_comes_after_it() -> None:
    clusters = Clusters(Partition([0, 0, 1, 1, 2, 2]), torch.tensor([[0.0], [1.0], [9.0]]))
    options = SRFCA(distance="l2", merge_threshold=2.0)
    found = OneShot(clusters.partition, Choice("distance", None, None, ""), distance="l2")
    merged, _ = merge(Run(regressions(6)), options, clusters, found)
    assert merged.models.tolist() == [[0.5], [9.0]]
    federation = regressions()
    result = SRFCA(local=LOCAL, threshold=2.5, distance="l2").fit(federation)
    last = result.history[-1]
    assert last.name.startswith("MERGE")
    assert last.labels == tuple(result.labels.tolist())
    validation = scores(federation, result.client_models, "validation")
    assert last.loss == pytest.approx(float(validation.loss.mean()))


def test_4_every_client_and_cluster_starts_from_one_initial_model() -> None:
    watched = NoTestData(Simulation(examples.classification([20] * 8), mlp(6, 5, 3)))
    SRFCA(local=LOCAL, threshold=100.0, resample=True).fit(watched, seed=3)
    first = [request.starts for request in watched.trainings if request.key.round == 0]
    assert len(first) == 5, "ONE_SHOT, and twice RESAMPLE and REFINE"
    w0 = watched.initial_model(3)
    assert all(torch.equal(starts, w0.expand_as(starts)) for starts in first)


def test_5_clients_of_a_round_do_not_see_each_other() -> None:
    federation = regressions()
    starts = federation.initial_model(0).repeat(12, 1)
    before = starts.clone()
    forward = train(federation, starts, range(12), LOCAL, Key(0, "x"))
    assert torch.equal(starts, before), "the server's models are not written to"
    backward = train(federation, starts, list(reversed(range(12))), LOCAL, Key(0, "x"))
    torch.testing.assert_close(backward.flip(0), forward)


def test_6_the_trim_is_symmetric_and_never_silently_a_mean() -> None:
    rows = torch.arange(10.0).unsqueeze(1)
    assert trimmed_mean(rows, 0.15).item() == 4.5, "one from each end"
    outliers = torch.tensor([[0.0]] * 8 + [[-100.0], [300.0]])
    assert trimmed_mean(outliers, 0.1).item() == 0.0
    with pytest.raises(InputError):
        trimmed_mean(outliers, 0.5)


def test_7_a_loss_is_a_mean_over_samples_whatever_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    federation = regressions()
    w = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    at_once = losses(federation, w)
    monkeypatch.setattr(federation._evaluation, "_outputs", 40)
    torch.testing.assert_close(losses(federation, w), at_once)
    x, y = federation._samples["train"].of(7)
    by_hand = ((x @ w[1, :4] + w[1, 4] - y) ** 2).mean()
    torch.testing.assert_close(at_once[7, 1], by_hand)


def test_8_buffers_are_aggregated() -> None:
    federation = Simulation(examples.classification([20] * 4, (1, 6, 6)), examples.batch_normed)
    one_round = replace(LOCAL, steps=3)
    w0 = federation.initial_model(0)
    rows = train(federation, w0.repeat(4, 1), range(4), one_round, Key(0, "refine 1", 0))
    together = Partition([0, 0, 0, 0])
    options = SRFCA(local=one_round, trim=0.25)
    model = trimmed_mean_gd(Run(federation), options, together, step=1).models[0]
    torch.testing.assert_close(model, trimmed_mean(rows, 0.25))
    running_mean = federation.module(model)[1].running_mean  # type: ignore[index]
    assert float(running_mean.abs().sum()) > 0


def test_8_test_data_are_never_used_and_all_clients_take_part() -> None:
    watched = NoTestData(regressions())
    for method in (SRFCA(local=LOCAL, final_steps=3), FedAvg(local=LOCAL), Local(local=LOCAL)):
        method.fit(watched)
    for request in watched.trainings:
        assert sorted(request.clients.tolist()) == list(range(12))
    assert any(isinstance(request, Train) for request in watched.requests)


def test_9_synthetic_test_labels_are_not_scaled() -> None:
    made = srfca.data.synthetic(num_clients=4, samples=50, dimension=20)
    assert made.test is not None
    assert float(made.test.y.std()) == pytest.approx(float(made.train.y.std()), rel=0.3)


def test_9_all_rotations_are_on_one_scale() -> None:
    made = srfca.data.rotated_digits()
    for client in range(40):
        x = made.train.of(client)[0]
        assert float(x.min()) == 0.0
        assert float(x.max()) == 1.0


def test_10_local_is_as_strong_as_one_shot() -> None:
    federation = regressions()
    result = Local(local=LOCAL).fit(federation, seed=4)
    expected = train_locally(Run(federation, seed=4), LOCAL, Key(4, "local"))
    assert torch.equal(result.client_models, expected.rows)
    assert not result.clustered


def test_10_global_is_fedavg() -> None:
    """One full-batch step of FedAvg is one gradient step on the pooled data."""
    federation = regressions()
    step = LocalTraining(steps=1, local_steps=1, batch_size=None, lr=0.05)
    result = FedAvg(local=step).fit(federation, seed=0)
    x, y = federation._samples["train"].x, federation._samples["train"].y
    by_hand = 0.05 * 2 * torch.cat([x.T @ y, y.sum().unsqueeze(0)]) / len(y)
    torch.testing.assert_close(result.models[0], by_hand)
    plain = FedAvg(local=step, weighted=False).fit(federation, seed=0)
    means = [
        0.1 * torch.cat([x.T @ y, y.sum().unsqueeze(0)]) / len(y)
        for x, y in map(federation._samples["train"].of, range(12))
    ]
    torch.testing.assert_close(plain.models[0], torch.stack(means).mean(0))


def test_11_everything_starts_without_a_gpu() -> None:
    for module in pkgutil.walk_packages(srfca.__path__, "srfca."):
        if module.name != "srfca.__main__" and not module.name.endswith("_triton"):
            import_module(module.name)
    code = (
        "from srfca import SRFCA, LocalTraining, Simulation, data, models\n"
        "fed = Simulation(data.rotated_digits(num_clients=4), models.mlp(64, 8, 10))\n"
        "print(SRFCA(local=LocalTraining(steps=2)).fit(fed))"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_12_the_divergence_of_two_regressions_has_no_factor_d() -> None:
    """E KL(p(y_i|x) || p(y_j|x)) = |w_i - w_j|^2 / (2 sigma^2) for x ~ N(0, I)."""
    rng = np.random.default_rng(0)
    d, sigma = 50, 0.7
    gap = rng.standard_normal(d)
    x = rng.standard_normal((200_000, d))
    divergence = ((x @ gap) ** 2 / (2 * sigma**2)).mean()
    assert divergence == pytest.approx(gap @ gap / (2 * sigma**2), rel=0.02)
