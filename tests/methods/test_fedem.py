"""FedEM: a round by hand, its paper's claim in a small form, and results with mixtures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from srfca import FedAvg, InputError, Local, LocalTraining, Partition, Result, Simulation
from srfca.aggregation import Mean
from srfca.federation import Counting, Descent, Mixture, Posterior, Scores, Shares, Train
from srfca.methods import FedEM, Oracle, Run
from srfca.methods._common.init import random_models
from srfca.methods._common.rounds import federated_training, one_cluster
from srfca.methods.fedem import aggregate
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples

SHARES = [0.1, 0.3, 0.5, 0.7, 0.9] * 2
LOCAL = LocalTraining(steps=100, local_steps=5, batch_size=10, lr=0.05)


def regressions(**options: Any) -> Simulation:
    return Simulation(examples.mixed_regressions(SHARES, seed=1), linear(4), **options)


def one_input() -> nn.Module:
    return nn.Linear(1, 1).double()


@pytest.mark.parametrize("weighting", ["samples", "responsibilities"])
def test_a_round_by_hand(weighting: Literal["samples", "responsibilities"]) -> None:
    federation = Simulation(examples.mixed_regressions([0.2, 0.5, 0.9], n=7, d=1), one_input)
    theta = random_models(Run(federation, 3), 2, "start").numpy()
    step = LocalTraining(steps=1, local_steps=1, batch_size=None, lr=0.1)
    method = FedEM(k=2, start="random", weighting=weighting, local=step)
    result = method.fit(federation, seed=3)

    def losses(x: np.ndarray, y: np.ndarray, models: np.ndarray) -> np.ndarray:
        return np.stack([(x * a + b - y) ** 2 for a, b in models])

    samples = [federation._samples["train"].of(i) for i in range(3)]
    arrays = [(x.numpy()[:, 0], y.numpy()) for x, y in samples]
    sums, total, pi = np.zeros((2, 2)), np.zeros(2), []
    for x, y in arrays:
        odds = 0.5 * np.exp(-losses(x, y, theta))
        q = odds / odds.sum(0)
        pi.append(q.mean(1))
        for j, (a, b) in enumerate(theta):
            slope = 2 * q[j] * (x * a + b - y) / len(x)
            moved = np.array([a - 0.1 * (slope * x).sum(), b - 0.1 * slope.sum()])
            weight = len(x) * (pi[-1][j] if weighting == "responsibilities" else 1)
            sums[j] += weight * moved
            total[j] += weight
    expected = sums / total[:, None]
    last = []
    for (x, y), before in zip(arrays, pi, strict=True):
        odds = before[:, None] * np.exp(-losses(x, y, expected))
        last.append((odds / odds.sum(0)).mean(1))
    largest = np.stack(last).argmax(1)
    order = [largest[0], 1 - largest[0]]
    np.testing.assert_allclose(result.models.numpy(), expected[order], rtol=1e-12)
    assert result.mixture_weights is not None
    np.testing.assert_allclose(result.mixture_weights.numpy(), np.stack(last)[:, order], rtol=1e-12)
    assert result.partition == Partition(largest)


def test_it_finds_the_regressions_and_their_shares() -> None:
    result = FedEM(k=2, local=replace(LOCAL, steps=200)).fit(regressions(), seed=0)
    true = 2 * torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    distances = torch.cdist(result.models[:, :4], true)
    assert float(distances.min(1).values.max()) < 0.3
    assert result.mixture_weights is not None
    first = result.mixture_weights[:, int(distances[:, 0].argmin())]
    assert np.corrcoef(first.numpy(), SHARES)[0, 1] > 0.8, "of 18 samples each"


@pytest.mark.parametrize("task", ["regressions", "labels"])
def test_it_beats_one_model_local_models_and_the_true_groups(task: str) -> None:
    federation, local = regressions(), LOCAL
    if task == "labels":
        federation = Simulation(examples.mixed_labels(SHARES, n=60, seed=1), mlp(6, 16, 4))
        local = LocalTraining(steps=200, local_steps=5, batch_size=20, lr=0.3)
    loss = FedEM(k=2, local=local).fit(federation).scores(federation).loss.mean()
    groups = Oracle(truth=federation.data.truth, local=local)
    for other in (FedAvg(local=local), Local(local=local), groups):
        baseline = other.fit(federation).scores(federation).loss.mean()
        assert float(loss) < 0.95 * float(baseline), other.name


def test_it_finds_groups_too() -> None:
    federation = Simulation(examples.regression([20] * 9, clusters=3), linear(4))
    result = FedEM(k=3, local=LOCAL).fit(federation)
    assert result.partition == federation.data.truth
    assert result.mixture_weights is not None
    assert float(result.mixture_weights.max(1).values.min()) > 0.8
    assert np.array_equal(result.assign(federation).losses.argmin(1).numpy(), result.labels)


def test_one_component_is_fedavg() -> None:
    federation = Simulation(examples.classification([20, 30, 25]), mlp(6, 5, 3))
    local = LocalTraining(steps=10, local_steps=5, batch_size=8, lr=0.2)
    result = FedEM(k=1, start="random", weighting="samples", local=local).fit(federation)
    run = Run(federation, 0)
    start = random_models(run, 1, "start")
    expected = federated_training(run, "X", start, one_cluster(run), local, Mean(), purpose="fedem")
    torch.testing.assert_close(result.models, expected)


def test_block_size_and_repetition_do_not_matter() -> None:
    method = FedEM(k=2, local=replace(LOCAL, steps=15), participation=0.5)
    result = method.fit(regressions(), seed=2)
    for again in (method.fit(regressions(), seed=2), method.fit(regressions(block_size=3), seed=2)):
        torch.testing.assert_close(again.models, result.models)
        torch.testing.assert_close(again.mixture_weights, result.mixture_weights)
    assert not torch.allclose(method.fit(regressions(), seed=3).models, result.models)


def test_the_budget() -> None:
    local = LocalTraining(steps=10, local_steps=5, batch_size=10, lr=0.05)
    method = FedEM(k=3, local=local)
    spent = method.fit(regressions()).budget
    assert method.trainings == 3
    assert spent.local_steps == 10 * 3 * 10 + 3 * 10, "components of all clients, and the start"
    assert spent.models_up == 10 * 3 * 2 + 3
    assert spent.evaluations == 10 * 2 + (2 * 2 + 1) * 3 * 10


def test_models_of_a_mixture_are_sent_once() -> None:
    federation = Counting(regressions())
    models = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    federation.ask(Shares(np.array([4, 7]), Mixture(models, torch.full((2, 3), 1 / 3))))
    assert federation.spent.models_down == federation.spent.evaluations == 6
    component = torch.tensor([0, 1, 0, 2])
    posterior = Posterior(Mixture(models, torch.full((4, 3), 1 / 3)), component)
    local = LocalTraining(steps=5, local_steps=5)
    clients, descent = np.array([4, 4, 7, 7]), Descent(posterior=posterior)
    federation.ask(Train(clients, models[component], local, Key(0, "x"), descent))
    spent = federation.spent
    assert (spent.models_down, spent.models_up) == (6, 4)
    assert (spent.local_steps, spent.evaluations) == (20, 12)
    federation.ask(Scores(np.array([0]), Mixture(models, torch.full((1, 3), 1 / 3))))
    assert federation.spent.models_down == 9
    assert federation.spent.evaluations == 15


def test_mixtures_are_saved_and_scored(tmp_path: Path) -> None:
    federation = regressions()
    result = FedEM(k=2, local=LOCAL).fit(federation)
    loaded = Result.load(result.save(tmp_path))
    assert result.mixture_weights is not None
    torch.testing.assert_close(loaded.mixture_weights, result.mixture_weights)
    scores = loaded.scores(federation, "validation")
    assert result.history[-1].loss == pytest.approx(float(scores.loss.mean()))
    mixture = Mixture(result.models, result.mixture_weights)
    expected = federation.ask(Scores(np.arange(10), mixture, "validation")).values
    assert torch.equal(scores.loss, expected.loss)


def test_components_that_are_no_clients_largest_are_kept_but_are_no_clusters() -> None:
    federation = regressions()
    result = FedEM(k=4, local=replace(LOCAL, steps=10)).fit(federation)
    assert len(result.models) == 4
    weights = result.mixture_weights
    assert weights is not None
    assert np.array_equal(weights.argmax(1).numpy(), result.labels)
    count = result.partition.num_clusters
    assert result.assign(federation).losses.shape == (10, count)
    assert result.partition.describe() in result.summary()


def test_a_client_fine_tunes_or_keeps_its_mixture() -> None:
    federation = regressions()
    result = FedEM(k=2, local=LOCAL, fine_tune_steps=40).fit(federation)
    before = result.scores(federation, "validation")
    after = result.scores(federation, "validation", fine_tuned=True)
    assert result.fine_tuned_steps is not None
    unchanged = result.fine_tuned_steps == 0
    assert 0 < int(unchanged.sum()) < 10, "some of each, or this test shows nothing"
    assert torch.equal(after.loss[unchanged], before.loss[unchanged])
    assert bool((after.loss[~unchanged] < before.loss[~unchanged]).all())
    assert result.history[-1].loss == pytest.approx(float(after.loss.mean()))


def test_a_component_without_weight_keeps_its_model() -> None:
    rows = torch.tensor([[[1.0], [5.0]], [[3.0], [7.0]]])
    means = aggregate(rows, torch.tensor([[3, 0], [1, 0]]), torch.tensor([[0.0], [9.0]]))
    assert means.tolist() == [[1.5], [9.0]]


@pytest.mark.parametrize(
    ("name", "value"),
    [("k", 0), ("start", "best"), ("weighting", "x"), ("lr_factor", 0.0), ("participation", 0.0)],
)
def test_wrong_values_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        FedEM(**{name: value})


def test_starts_that_cannot_work_are_refused() -> None:
    with pytest.raises(InputError, match="use start='clients'"):
        FedEM(k=2, start="random", local=LOCAL).fit(regressions())
    with pytest.raises(InputError, match="k=11 is more than the 10 clients"):
        FedEM(k=11, local=LOCAL).fit(regressions())
    with pytest.raises(InputError, match="diverged"):
        FedEM(k=2, local=replace(LOCAL, lr=1e8)).fit(regressions())
