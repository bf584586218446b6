"""HypCluster: starts and rounds against a plain loop, and where distant starts win."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from srfca import ClientData, FedAvg, InputError, LocalTraining, Partition, Simulation
from srfca.methods import IFCA, HypCluster
from srfca.models import linear, mlp
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import (
    DIGITS,
    LOCAL,
    Array,
    Arrays,
    arrays,
    descend,
    digits,
    ifca_by_hand,
    regressions,
    training_losses,
)


def starts_by_hand(
    clients: Arrays, first: int, k: int, steps: int, lr: float
) -> tuple[Array, list[int]]:
    """Return the first client's model, then always that of the client with the largest loss."""
    centers, models = [first], []
    while True:
        x, y = clients[centers[-1]]
        models.append(descend(np.zeros(x.shape[1]), x, y, steps, lr))
        if len(centers) == k:
            return np.array(models), centers
        best = training_losses(clients, np.array(models)).min(0)
        best[centers] = -1
        centers.append(int(best.argmax()))


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=15)
def test_starts_and_rounds_are_those_of_a_plain_loop(
    seed: int, k: int, rounds_between: int
) -> None:
    federation = regressions(validation=0)
    clients = arrays(federation.data)
    local = LocalTraining(steps=10, local_steps=2, batch_size=None, lr=0.05)
    options = HypCluster(k=k, rounds_between=rounds_between, start_steps=7, local=local)
    result = options.fit(federation, seed)
    starts = [int(name) for name in result.history[-1].notes["starts"]]
    models, centers = starts_by_hand(clients, starts[0], k, 7, 0.05)
    assert starts == centers
    models, labels = ifca_by_hand(clients, models, 5, 2, 0.05, rounds_between)
    assert result.partition == Partition(labels)
    used = list(dict.fromkeys(labels))
    np.testing.assert_allclose(result.models.numpy(), models[used], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_rotations_and_beats_one_model(seed: int) -> None:
    federation = digits(seed)
    result = HypCluster(k=4, local=DIGITS).fit(federation, seed)
    assert result.partition == federation.data.truth
    one_model = FedAvg(local=DIGITS).fit(federation, seed)
    loss, baseline = (float(r.scores(federation).loss.mean()) for r in (result, one_model))
    assert loss < 0.8 * baseline


def test_distant_starts_are_better_than_those_of_clients_at_random() -> None:
    """If 16 of 20 clients are of one group, k clients at random are mostly of that one."""
    made = examples.regression([20] * 20, clusters=5)
    chosen = [i for i in range(20) if i % 5 == 0] * 4 + [1, 2, 3, 4]
    truth = [0] * 16 + [1, 2, 3, 4]
    repeated = ClientData.from_arrays([made.train.of(i) for i in chosen], truth=truth)
    federation = Simulation(repeated, linear(4))
    exact = {HypCluster: 0, IFCA: 0}
    for seed in range(5):
        for method in (HypCluster(k=5, local=LOCAL), IFCA(k=5, start="clients", local=LOCAL)):
            exact[type(method)] += method.fit(federation, seed).partition == repeated.truth
    assert exact == {HypCluster: 5, IFCA: 0}


def test_gradients_are_one_full_batch_step_of_models() -> None:
    federation = regressions()
    one_step = LocalTraining(steps=12, local_steps=1, batch_size=None, lr=0.02)
    options = HypCluster(k=3, start_steps=6, local=one_step)
    models = options.fit(federation)
    gradients = replace(options, exchange="gradients").fit(federation)
    torch.testing.assert_close(gradients.models, models.models, rtol=1e-9, atol=1e-9)
    faster = replace(options, exchange="gradients", server_lr=0.2).fit(federation)
    assert faster.history[-1].notes["training_loss"] < models.history[-1].notes["training_loss"]


def test_the_starts_are_counted() -> None:
    options = HypCluster(k=3, local=LOCAL)
    assert options.trainings == 1, "of a client that is no start"
    spent = options.fit(regressions()).budget
    assert spent.local_steps == 12 * 30 + 3 * 8, "a quarter, rounded up"
    assert spent.evaluations == 2 * 12 + (2 + 1) * 3 * 12, "ten rounds, five between two choices"


@pytest.mark.parametrize("options", [{}, {"centers": "drawn", "participation": 0.5}])
def test_same_seed_same_result_as_the_reference(options: dict[str, Any]) -> None:
    made = examples.classification([20 + i % 3 for i in range(8)])
    model = examples.doubled(mlp(6, 5, 3))
    method = HypCluster(k=3, rounds_between=2, local=replace(LOCAL, steps=12), **options)
    expected = method.fit(ReferenceFederation(made, model), seed=2)
    for block_size in (1, 3):
        result = method.fit(Simulation(made, model, block_size=block_size), seed=2)
        assert np.array_equal(result.labels, expected.labels)
        torch.testing.assert_close(result.models, expected.models, rtol=1e-9, atol=1e-9)
    other = method.fit(Simulation(made, model), seed=3)
    assert not torch.allclose(result.client_models, other.client_models)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0), ("rounds_between", 0), ("exchange", "all"), ("server_lr", -1.0),
        ("centers", "best"), ("start_steps", 0),
        ("start_steps", 251), ("participation", 2.0),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_at_once(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        HypCluster(**{name: value})


def test_more_clusters_than_clients_are_refused() -> None:
    with pytest.raises(InputError, match="k=13 is more than the 12 clients"):
        HypCluster(k=13, local=LOCAL).fit(regressions())
