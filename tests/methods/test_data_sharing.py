"""Data sharing: rounds by hand, and its paper's claim in a small form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from srfca import ClientData, FedAvg, InputError, LocalTraining, Simulation, data
from srfca.federation import SharedSamples
from srfca.methods import DataSharing
from srfca.methods._common.pool import deal
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.methods.helpers import Array

LOCAL = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)


def test_rounds_by_hand() -> None:
    """A warm-up on shared samples alone, then a round on the union of a client's and theirs."""
    made = examples.regression([6, 18], d=3, clusters=2)
    federation = Simulation(made, examples.doubled(linear(3, bias=False)), validation=0)
    shared = federation.ask(SharedSamples(np.arange(2), 3, seed=0)).values.flatten(0, 1).numpy()
    pool = shared[:, :3], shared[:, 3]
    samples = [tuple(t.numpy() for t in federation._samples["train"].of(c)) for c in range(2)]

    def gradient(row: Array, x: Array, y: Array) -> Array:
        return np.asarray(2 / len(y) * x.T @ (x @ row - y))

    w = np.zeros(3)
    for number in range(2):
        sent = []
        for x, y in samples:
            row = w
            for _ in range(2):
                share = 1.0 if number == 0 else 6 / (len(y) + 6)
                step = share * gradient(row, *pool) + (1 - share) * gradient(row, x, y)
                row = row - 0.05 * step
            sent.append(row)
        w = (6 * sent[0] + 18 * sent[1]) / 24
    method = DataSharing(local=LOCAL, shared=3, fraction=1.0, warm_up=1)
    result = method.fit(federation)
    np.testing.assert_allclose(result.models[0].numpy(), w, rtol=1e-8)
    assert result.history[-1].notes["shared"] == 6


def one_class_each(seed: int) -> ClientData:
    """Return digits of which each client has those of one class."""
    made = data.rotated_digits(num_clients=1, rotations=1, seed=seed)
    x, y = made.train.of(0)
    assert made.test is not None
    train = [(x[y == label][:60], y[y == label][:60]) for label in range(10)]
    return ClientData.from_arrays(train, [made.test.of(0)] * 10)


def test_a_few_shared_samples_help_where_clients_have_one_class_each() -> None:
    """The paper's claim: accuracy falls with skewed labels, and rises again with shared data."""
    local = LocalTraining(steps=100, local_steps=10, batch_size=10, lr=0.3)
    federation = Simulation(one_class_each(seed=0), mlp(64, 32, 10))
    alone = FedAvg(local=local).fit(federation).scores(federation).accuracy
    shared = DataSharing(local=local, shared=3).fit(federation).scores(federation).accuracy
    assert alone is not None
    assert shared is not None
    assert shared.mean() > alone.mean() + 0.1


def test_a_fraction_of_the_pool_is_dealt_to_each_client() -> None:
    pool = torch.arange(10.0).view(10, 1)
    dealt = deal(pool, 0.5, 4, Key(0, "test"))
    assert dealt.shape == (4, 5, 1)
    assert all(len(set(part.flatten().tolist())) == 5 for part in dealt)
    assert len({tuple(part.flatten().tolist()) for part in dealt}) == 4
    assert deal(pool, 0.01, 2, Key(0, "test")).shape == (2, 1, 1)


def test_by_default_few_samples_are_shared_and_fewer_are_dealt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenth of the samples; half of them, but no more than a client has of its own."""
    dealt = list[int]()

    def spy(pool: torch.Tensor, fraction: float, *rest: Any) -> torch.Tensor:
        samples = deal(pool, fraction, *rest)
        dealt.append(samples.shape[1])
        return samples

    monkeypatch.setattr("srfca.methods.data_sharing.deal", spy)
    for clients, expected in ((4, 4), (24, 20)):
        made = examples.regression([20] * clients)
        federation = Simulation(made, examples.doubled(linear(4, bias=False)), validation=0)
        result = DataSharing(local=LOCAL).fit(federation)
        assert result.history[-1].notes["shared"] == 2 * clients
        assert dealt.pop() == expected


def test_warm_up_must_leave_a_round() -> None:
    with pytest.raises(InputError, match="warm_up must be less than the 2 rounds, not 2"):
        DataSharing(local=LOCAL, warm_up=2)
