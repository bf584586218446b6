"""DAPPER: rounds by hand, its limits, and its paper's claim in a small form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from srfca import FedAvg, InputError, Local, LocalTraining, Simulation
from srfca.federation import Privacy, Private, SharedSamples
from srfca.methods import DAPPER
from srfca.models import linear
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import Array, DropByNumber
from tests.methods.test_ditto import loss, similar

LOCAL = LocalTraining(steps=8, local_steps=2, batch_size=None, lr=0.05)


def two_clients() -> Simulation:
    data = examples.regression([6, 18], d=3, clusters=2)
    return Simulation(data, examples.doubled(linear(3, bias=False)), validation=0)


def test_rounds_by_hand() -> None:
    """Two samples of each client are shared; batches are full."""
    federation = two_clients()
    shared = federation.ask(SharedSamples(np.arange(2), 2, seed=0)).values.flatten(0, 1).numpy()
    pool = shared[:, :3], shared[:, 3]
    samples = [tuple(t.numpy() for t in federation._samples["train"].of(c)) for c in range(2)]

    def gradient(row: Array, x: Array, y: Array) -> Array:
        return np.asarray(2 / len(y) * x.T @ (x @ row - y))

    def error(row: Array, client: int) -> float:
        x, y = samples[client]
        return float(((x @ row - y) ** 2).mean())

    h = np.zeros(3)
    for _ in range(2):
        sent = []
        for i in range(2):
            row = h
            for _ in range(2):
                row = row - 0.05 * gradient(row, *samples[i])
            sent.append(row)
        h = (6 * sent[0] + 18 * sent[1]) / 24
    candidates = list[list[Array]]()
    for i in range(2):
        candidates.append([h])
        for share in (0.5, 1.0):
            row = h
            for _ in range(4):
                step = share * gradient(row, *samples[i]) + (1 - share) * gradient(row, *pool)
                row = row - 0.05 * step
            candidates[i].append(row)
    errors = np.array([[error(row, i) for row in rows] for i, rows in enumerate(candidates)])
    steadied = np.array([[6], [18]]) * errors + 20 * errors.mean(0)
    best = steadied.argmin(1)
    expected = [rows[place] for rows, place in zip(candidates, best, strict=True)]
    result = DAPPER(local=LOCAL, grid=2, shared=2, central_rounds=2).fit(federation)
    assert result.history[-1].notes["lambda"] == pytest.approx(best / 2)
    np.testing.assert_allclose(result.models[0].numpy(), h, rtol=1e-10)
    np.testing.assert_allclose(result.client_models.numpy(), np.stack(expected), rtol=1e-8)


def test_it_beats_one_model_and_local_models_on_similar_clients() -> None:
    """The paper's claim: samples of all keep a client of few samples from overfitting."""
    federation = Simulation(similar(samples=16), linear(10, bias=False), validation=0.25)
    local = LocalTraining(steps=60, batch_size=None, lr=0.05)
    mixed = loss(DAPPER(local=local).fit(federation), federation)
    assert mixed < 0.95 * loss(FedAvg(local=local).fit(federation), federation)
    assert mixed < 0.95 * loss(Local(local=local).fit(federation), federation)


def test_it_is_that_of_the_reference_loop() -> None:
    data, model = examples.regression([9, 11], d=3), examples.doubled(linear(3))
    method = DAPPER(local=replace(LOCAL, batch_size=5), central_rounds=2, participation=0.5)
    result = method.fit(Simulation(data, model), seed=3)
    expected = method.fit(ReferenceFederation(data, model), seed=3)
    torch.testing.assert_close(result.client_models, expected.client_models, rtol=1e-9, atol=1e-9)


def test_the_budget_has_the_samples_that_travel() -> None:
    """Two samples of four numbers in double precision go up, four of them come down, once."""
    method = DAPPER(local=LOCAL, grid=2, shared=2, central_rounds=2)
    spent = method.fit(two_clients()).budget
    row = 3 * 8
    assert method.trainings == pytest.approx((4 + 2 * 4) / 8)
    assert spent.local_steps == 2 * (4 + 2 * 4)
    assert spent.models_up == 2 * 2
    assert spent.bytes_up == 2 * 2 * row + 2 * 2 * 4 * 8
    assert spent.bytes_down == spent.models_down * row + 2 * (4 * 4 * 8) + 2 * 2 * 4


def test_a_client_that_shares_nothing_is_served_all_the_same() -> None:
    result = DAPPER(local=LOCAL, shared=2).fit(DropByNumber(two_clients(), {0: [1]}))
    assert result.history[-1].notes["shared"] == 2
    assert result.client_models.isfinite().all()


def test_private_clients_share_no_samples() -> None:
    private = Private(two_clients(), Privacy())
    with pytest.raises(InputError, match="no client shares samples"):
        DAPPER(local=LOCAL).fit(private)


def test_rounds_must_be_left_for_the_clients() -> None:
    with pytest.raises(InputError, match="central_rounds must be less than the 4 rounds, not 4"):
        DAPPER(local=LOCAL, central_rounds=4)
