"""Local, FedAvg, FedProx, robust FedAvg and Oracle: rounds by hand, and what each is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from srfca import (
    ClientData,
    FedAvg,
    InputError,
    Local,
    LocalTraining,
    Method,
    Partition,
    Simulation,
)
from srfca.methods import FedProx, Oracle, RobustFedAvg
from srfca.models import linear
from srfca.random import Key
from tests import examples
from tests.methods.helpers import Array, train

LOCAL = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)
SIZES = [6, 9, 12, 21]


def regressions(clusters: int = 1, **options: Any) -> Simulation:
    made = examples.regression(SIZES, d=3, clusters=clusters)
    return Simulation(made, examples.doubled(linear(3, bias=False)), validation=0, **options)


def descend(federation: Simulation, client: int, w: Array, count: int, mu: float = 0.0) -> Array:
    """Take full-batch steps of 0.05 on the mean squared error and ``mu/2 |w - start|^2``."""
    x, y = (tensor.numpy() for tensor in federation._samples["train"].of(client))
    start = w
    for _ in range(count):
        w = w - 0.05 * (2 / len(y) * x.T @ (x @ w - y) + mu * (w - start))
    return w


def two_rounds(
    federation: Simulation, aggregate: Callable[[Array], Array], mu: float = 0.0
) -> Array:
    """Do two rounds of two steps of all clients from zero."""
    w = np.zeros(3)
    for _ in range(2):
        w = aggregate(np.stack([descend(federation, c, w, 2, mu) for c in range(4)]))
    return w


def weighted_mean(rows: Array) -> Array:
    return np.asarray(sum(n * row for n, row in zip(SIZES, rows, strict=True)) / sum(SIZES))


def plain_mean(rows: Array) -> Array:
    return np.asarray(rows.mean(0))


def mean_of_middle_two(rows: Array) -> Array:
    return np.asarray(np.sort(rows, axis=0)[1:3].mean(0))


BY_HAND = [
    (FedAvg(local=LOCAL), weighted_mean, 0.0),
    (FedAvg(local=LOCAL, weighted=False), plain_mean, 0.0),
    (FedProx(local=LOCAL, mu=2.0), weighted_mean, 2.0),
    (FedProx(local=LOCAL, mu=2.0, weighted=False), plain_mean, 2.0),
    (RobustFedAvg(local=LOCAL, trim=0.25), mean_of_middle_two, 0.0),
    (RobustFedAvg(local=LOCAL, trim=0.2), mean_of_middle_two, 0.0),
    (RobustFedAvg(local=LOCAL, trim=0.0), plain_mean, 0.0),
    (RobustFedAvg(local=LOCAL, aggregation="median"), mean_of_middle_two, 0.0),
]


@pytest.mark.parametrize(("method", "aggregate", "mu"), BY_HAND)
def test_one_model_by_hand(method: Method, aggregate: Callable[[Array], Array], mu: float) -> None:
    federation = regressions()
    result = method.fit(federation)
    assert result.labels.tolist() == [0, 0, 0, 0]
    assert not result.clustered
    expected = two_rounds(federation, aggregate, mu)
    np.testing.assert_allclose(result.models[0].numpy(), expected, rtol=1e-9)


def test_local_by_hand() -> None:
    federation = regressions()
    result = Local(local=LOCAL).fit(federation)
    expected = np.stack([descend(federation, c, np.zeros(3), 4) for c in range(4)])
    np.testing.assert_allclose(result.client_models.numpy(), expected, rtol=1e-9)


def test_oracle_by_hand() -> None:
    federation = regressions(clusters=2)
    models = []
    for members in ([0, 2], [1, 3]):
        w = np.zeros(3)
        for _ in range(2):
            rows = [descend(federation, c, w, 2) for c in members]
            n = [SIZES[c] for c in members]
            w = (n[0] * rows[0] + n[1] * rows[1]) / sum(n)
        models.append(w)
    result = Oracle(truth=federation.data.truth, local=LOCAL).fit(federation)
    assert result.labels.tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(result.models.numpy(), np.stack(models), rtol=1e-9)


def test_participation_draws_another_half_in_every_round() -> None:
    federation = regressions()
    method = FedAvg(local=replace(LOCAL, steps=2), participation=0.5, weighted=False)
    drawn = set()
    for seed in range(12):
        w = method.fit(federation, seed=seed).models[0]
        rows = [descend(federation, c, np.zeros(3), 2) for c in range(4)]
        pairs = [
            (a, b) for a in range(4) for b in range(a) if np.allclose((rows[a] + rows[b]) / 2, w)
        ]
        assert len(pairs) == 1, "the mean of exactly two"
        drawn |= set(pairs)
    assert len(drawn) > 2


def test_oracle_refuses_data_without_truth_when_it_runs() -> None:
    method = Oracle(truth=None, local=LOCAL)
    with pytest.raises(InputError, match="true clusters, which this data does not have"):
        method.fit(regressions())
    with pytest.raises(InputError, match="truth is for 3 clients, not for 4"):
        Oracle(truth=Partition([0, 0, 1]), local=LOCAL).fit(regressions())
    with pytest.raises(InputError, match="truth must place every client"):
        Oracle(truth=Partition([0, 0, 1, -1]), local=LOCAL)


def poisoned(count: int) -> Simulation:
    """Return twelve clients with the same regression; some have the wrong sign, a hundredfold."""
    made = examples.regression([20] * 12, d=3)
    samples = [made.train.of(c) for c in range(12)]
    samples = [(x, -100 * y if c < count else y) for c, (x, y) in enumerate(samples)]
    assert made.test is not None
    test = [made.test.of(c) for c in range(12)]
    return Simulation(ClientData.from_arrays(samples, test), linear(3))


def test_a_few_poisoned_clients_ruin_the_mean_but_not_robust_aggregation() -> None:
    local = LocalTraining(steps=200, local_steps=5, batch_size=None, lr=0.05)

    def loss(method: Method, num_poisoned: int) -> float:
        federation = poisoned(num_poisoned)
        return float(method.fit(federation).scores(federation).loss.mean())

    trimmed = RobustFedAvg(local=local, aggregation="trimmed_mean", trim=0.25)
    median = RobustFedAvg(local=local, aggregation="median", trim=0.25)
    assert loss(FedAvg(local=local), 0) < 0.1
    assert loss(FedAvg(local=local), 3) > 100
    assert loss(trimmed, 3) < 0.1
    assert loss(median, 3) < 0.1
    assert loss(trimmed, 4) > 1, "one more than is trimmed"


def test_the_proximal_term_keeps_clients_that_differ_together() -> None:
    """FedProx's claim: with many local steps on different data, mu keeps the drift small.

    With curvatures that differ, FedAvg of clients that reach their own minima ends at the mean of
    these; FedProx ends nearer to the minimum of the mean loss.
    """
    x = [torch.ones(20, 1), 3 * torch.ones(20, 1)]
    y = [torch.full((20,), 4.0), torch.full((20,), -3.0)]
    made = ClientData.from_arrays(list(zip(x, y, strict=True)))
    federation = Simulation(made, linear(1, bias=False), validation=0)
    best = (1 * 4 + 3 * -3) / (1 + 9)
    local = LocalTraining(steps=3000, local_steps=100, batch_size=None, lr=0.05)

    def end(mu: float) -> float:
        method = FedProx(local=local, mu=mu) if mu else FedAvg(local=local)
        return float(method.fit(federation).models[0])

    ends = {mu: end(mu) for mu in (0.0, 1.0, 10.0)}
    assert ends[0.0] == pytest.approx((4 - 1) / 2, abs=1e-3)
    assert abs(ends[10.0] - best) < abs(ends[1.0] - best) < abs(ends[0.0] - best)
    starts = torch.zeros(2, 1)
    drift = [
        train(federation, starts, range(2), replace(local, mu=mu), Key(0, "drift")).abs().max()
        for mu in (0.0, 1.0, 10.0)
    ]
    assert drift[0] > 1.4 * drift[1] > 1.4 * 1.4 * drift[2]


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        (FedAvg, "participation", 0.0), (FedAvg, "fine_tune_steps", -1),
        (Local, "fine_tune_lr", 0.0), (Local, "fine_tune_steps", -1),
        (FedProx, "mu", 0.0), (FedProx, "participation", 2.0), (RobustFedAvg, "trim", 0.5),
        (RobustFedAvg, "aggregation", "mean"), (RobustFedAvg, "participation", -1.0),
    ],
)  # fmt: skip
def test_wrong_values_are_named(method: type[Method], name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        method(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [FedAvg, Local, FedProx, RobustFedAvg])
def test_the_seed_decides_and_blocks_do_not(method: type[Method]) -> None:
    local = LocalTraining(steps=4, local_steps=2, batch_size=5, lr=0.05)
    chosen = method(local=local, fine_tune_steps=10)
    made, model = examples.classification([20] * 5), examples.doubled(linear(6, 3))
    result = chosen.fit(Simulation(made, model), seed=5)
    again = chosen.fit(Simulation(made, model, block_size=1), seed=5)
    torch.testing.assert_close(result.client_models, again.client_models)
    torch.testing.assert_close(result.fine_tuned_models, again.fine_tuned_models)
    other = chosen.fit(Simulation(made, model), seed=6)
    assert not torch.allclose(result.client_models, other.client_models)
