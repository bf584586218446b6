"""Where the authors' published code departs from the paper: a test for each that would catch it.

The numbers are those of docs/sr_fca.md.
"""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import srfca
from srfca import SRFCA, Global, Local, Partition, Simulation, Work
from srfca.aggregation import trimmed_mean
from srfca.distances import Side
from srfca.experiments import config, runner
from srfca.federation.base import Focus, Mixture, Sample, Scores, Split, Tick, silent
from srfca.methods.rounds import local_training
from srfca.methods.run import Run
from srfca.methods.sr_fca import Clusters, merge, recluster, trimmed_mean_gd
from srfca.models import linear
from srfca.random import Key
from tests import examples

WORK = Work(steps=12, local_steps=3, batch_size=10, lr=0.05)


def federation(clients: int = 12, clusters: int = 3) -> Simulation:
    sizes = [20 + i % 3 for i in range(clients)]
    return Simulation(examples.regression(sizes, clusters=clusters), linear(4))


class Watched:
    """A federation that writes down what it is asked, and refuses its test data."""

    def __init__(self, inner: Simulation) -> None:
        self.inner = inner
        self.fits: list[tuple[Key, Tensor, list[int]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def fit(
        self,
        starts: Tensor,
        clients: Sequence[int],
        work: Work,
        key: Key,
        tick: Tick = silent,
        anchors: Tensor | None = None,
        focus: Focus | None = None,
    ) -> Tensor:
        self.fits.append((key, starts.clone(), list(clients)))
        return self.inner.fit(starts, clients, work, key, tick, anchors, focus)

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Split = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        assert split != "test"
        return self.inner.losses(models, clients, split, sample)

    def scores(
        self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
    ) -> Scores:
        assert split != "test"
        return self.inner.scores(models, clients, split)


def test_1_t_is_inclusive_and_no_client_leaves_the_mean() -> None:
    assert Partition([0, 0, 1]).drop_smaller_than(2) == Partition([0, 0, -1]), "exactly t clients are enough"
    experiment = config.load("rotated-digits").set(["num_clients=12", "steps=60", "min_size=4"])
    clients = runner.federation(experiment, seed=0)
    outcome = runner.run(experiment, "sr-fca", clients, seed=0)
    assert len(outcome.scores.loss) == 12
    assert (outcome.result.labels >= 0).all()


def test_2_recluster_keeps_models_and_numbers_together() -> None:
    w = torch.tensor([[9.0], [9.1], [0.0], [0.2]])
    models = torch.tensor([[0.0], [5.0], [9.0]])
    clusters = Clusters(Partition([0, 0, 1, 2]), models)
    found = recluster(SRFCA(distance="l2", threshold=1.0), Side.clients(federation(4), w), clusters)
    assert found.partition.labels.tolist() == [0, 0, 1, 1], "renumbered, and one has disappeared"
    assert found.models.tolist() == [[9.0], [0.0]], "and so have the models"


def test_3_merge_averages_and_what_is_reported_comes_after_it() -> None:
    clusters = Clusters(Partition([0, 0, 1, 1, 2, 2]), torch.tensor([[0.0], [1.0], [9.0]]))
    options = SRFCA(distance="l2", merge_threshold=2.0)
    merged, _ = merge(options, federation(6), clusters, None, seed=0)  # type: ignore[arg-type]
    assert merged.models.tolist() == [[0.5], [9.0]]
    clients = federation()
    result = SRFCA(work=WORK).fit(clients)
    last = result.history[-1]
    assert last.name == "MERGE 1"
    assert last.labels == tuple(result.labels.tolist())
    scores = clients.scores(result.client_models, range(12), "validation")
    assert last.loss == pytest.approx(float(scores.loss.mean()))


def test_4_everybody_starts_from_one_w0() -> None:
    watched = Watched(Simulation(examples.classification([20] * 8), srfca.models.mlp(6, 5, 3)))
    SRFCA(work=WORK, threshold=100.0, resample=True).fit(watched, seed=3)
    first = [starts for key, starts, _ in watched.fits if key.round == 0]
    assert len(first) == 5, "ONE_SHOT, and twice RESAMPLE and REFINE"
    w0 = watched.inner.initial(3)
    assert all(torch.equal(starts, w0.expand_as(starts)) for starts in first)


def test_5_clients_of_a_round_do_not_see_each_other() -> None:
    clients = federation()
    starts = clients.initial(0).repeat(12, 1)
    before = starts.clone()
    forward = clients.fit(starts, range(12), WORK, Key(0, "x"))
    assert torch.equal(starts, before), "the server's models are not written to"
    backward = clients.fit(starts, list(reversed(range(12))), WORK, Key(0, "x"))
    torch.testing.assert_close(backward.flip(0), forward)


def test_6_the_trim_is_symmetric_and_never_silently_a_mean() -> None:
    rows = torch.arange(10.0).unsqueeze(1)
    assert trimmed_mean(rows, 0.15).item() == 4.5, "one from each end"
    outliers = torch.tensor([[0.0]] * 8 + [[-100.0], [300.0]])
    assert trimmed_mean(outliers, 0.1).item() == 0.0
    with pytest.raises(srfca.InputError):
        trimmed_mean(outliers, 0.5)


def test_7_a_loss_is_a_mean_over_samples_whatever_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = federation()
    w = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    whole = clients.losses(w, range(12))
    monkeypatch.setattr(clients._evaluation, "_outputs", 40)
    torch.testing.assert_close(clients.losses(w, range(12)), whole)
    x, y = clients._samples["train"].of(7)
    by_hand = ((x @ w[1, :4] + w[1, 4] - y) ** 2).mean()
    torch.testing.assert_close(whole[1, 7], by_hand)


def test_8_buffers_are_aggregated() -> None:
    clients = Simulation(examples.classification([20] * 4, (1, 6, 6)), examples.batch_normed)
    one_round = replace(WORK, steps=3)
    w0 = clients.initial(0)
    rows = clients.fit(w0.repeat(4, 1), range(4), one_round, Key(0, "refine 1", 0))
    both = Partition([0, 0, 0, 0])
    options = SRFCA(work=one_round, trim=0.25)
    model = trimmed_mean_gd(options, w0, both, r=1, run=Run(clients)).models[0]
    torch.testing.assert_close(model, trimmed_mean(rows, 0.25))
    running_mean = clients.module(model)[1].running_mean  # type: ignore[index]
    assert float(running_mean.abs().sum()) > 0


def test_8_test_data_is_never_looked_at_and_all_clients_take_part() -> None:
    watched = Watched(federation())
    for method in (SRFCA(work=WORK, final_steps=3), Global(work=WORK), Local(work=WORK)):
        method.fit(watched)
    assert all(sorted(clients) == list(range(12)) for _, _, clients in watched.fits)


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
    clients = federation()
    result = Local(work=WORK).fit(clients, seed=4)
    expected = local_training(clients, clients.initial(4), WORK, Key(4, "local"))
    assert torch.equal(result.client_models, expected)
    assert not result.clustered


def test_10_global_is_fedavg() -> None:
    """One full-batch step of FedAvg is one gradient step on the pooled data."""
    clients = federation()
    step = Work(steps=1, local_steps=1, batch_size=None, lr=0.05)
    result = Global(work=step).fit(clients, seed=0)
    x, y = clients._samples["train"].x, clients._samples["train"].y
    by_hand = 0.05 * 2 * torch.cat([x.T @ y, y.sum().unsqueeze(0)]) / len(y)
    torch.testing.assert_close(result.models[0], by_hand)
    plain = Global(work=step, weighted=False).fit(clients, seed=0)
    means = [
        0.1 * torch.cat([x.T @ y, y.sum().unsqueeze(0)]) / len(y)
        for x, y in map(clients._samples["train"].of, range(12))
    ]
    torch.testing.assert_close(plain.models[0], torch.stack(means).mean(0))


def test_11_everything_starts_without_a_gpu() -> None:
    for module in pkgutil.walk_packages(srfca.__path__, "srfca."):
        if module.name not in ("srfca.__main__", "srfca.aggregation.rank_mean_triton"):
            import_module(module.name)
    command = [sys.executable, "-m", "srfca", "run", "rotated-digits", "--json", "--set", "steps=2"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"CUDA_VISIBLE_DEVICES": ""}
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
