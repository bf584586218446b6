"""RSA: two rounds by hand, the bound on what a client can do, and its paper's claim."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from srfca import ClientData, LocalTraining, Simulation
from srfca.methods import RSA, FedAvg
from srfca.methods.rsa import Norm
from srfca.models import linear
from tests import examples
from tests.methods.helpers import Array

LOCAL = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)


def regressions(scale: float = 1.0, clients: int = 6) -> Simulation:
    """Return clients of one regression; the targets of the first are scaled."""
    made = examples.regression([20 + c for c in range(clients)])
    shards = [
        (x, y * (scale if client == 0 else 1.0))
        for client, (x, y) in enumerate(made.train.of(c) for c in range(clients))
    ]
    return Simulation(ClientData.from_arrays(shards), examples.doubled(linear(4, bias=False)))


def subgradients(differences: Array, norm: str) -> Array:
    """Return a subgradient of the norm of each row, in a plain loop."""
    rows = []
    for row in differences:
        if norm == "l1":
            rows.append(np.sign(row))
        elif norm == "l2":
            length = np.sqrt((row**2).sum())
            rows.append(row / length if length else row)
        else:
            largest = np.abs(row) == np.abs(row).max()
            rows.append(np.where(largest, np.sign(row), 0) / largest.sum())
    return np.stack(rows)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_two_rounds_by_hand(norm: Norm) -> None:
    """Rates fall with the square root of the step; the server hears this round's models."""
    federation = regressions(clients=3)
    samples = [federation._samples["train"].of(c) for c in range(3)]
    arrays = [(x.numpy(), y.numpy()) for x, y in samples]
    center, rows = np.zeros(4), np.zeros((3, 4))
    for round in range(2):
        penalties = 0.3 * subgradients(rows - center, norm)
        trained = []
        for w, (x, y), penalty in zip(rows, arrays, penalties, strict=True):
            for step in (2 * round, 2 * round + 1):
                w = w - 0.05 / np.sqrt(step + 1) * (2 * x.T @ (x @ w - y) / len(y) + penalty)
            trained.append(w)
        rows = np.stack(trained)
        pull = 0.3 * subgradients(center - rows, norm).sum(0)
        center = center - 0.5 * 2 * 0.05 / np.sqrt(2 * round + 1) * (0.1 * center + pull)
    assert np.abs(center).max() > 0
    local = replace(LOCAL, schedule="inverse_sqrt")
    method = RSA(lam=0.3, norm=norm, decay=0.1, server_lr=0.5, local=local)
    np.testing.assert_allclose(method.fit(federation).models[0].numpy(), center, rtol=1e-9)


@pytest.mark.parametrize(("norm", "order"), [("l1", torch.inf), ("l2", 2), ("max", 1)])
def test_a_client_moves_the_model_by_a_bounded_step_whatever_it_sends(
    norm: Norm, order: float
) -> None:
    """In the dual norm, by at most ``2 lam lr local_steps`` in a round."""
    local = replace(LOCAL, steps=2)
    models = [
        RSA(lam=0.01, norm=norm, local=local).fit(regressions(scale)).models
        for scale in (1.0, -1000.0)
    ]
    difference = float((models[0] - models[1]).norm(order))
    assert 0 < difference <= 2 * 0.01 * 0.05 * 2 + 1e-12


def test_a_corrupt_client_harms_it_less_than_fedavg() -> None:
    clean, corrupt = regressions(), regressions(-30.0)
    local = LocalTraining(steps=300, local_steps=1, batch_size=None, lr=0.02)
    honest = FedAvg(local=local).fit(clean).models
    distances = [
        float((method.fit(corrupt).models - honest).norm())
        for method in (RSA(lam=0.3, local=local), FedAvg(local=local))
    ]
    assert distances[0] < 0.3 * distances[1]


def test_it_learns_what_clients_have_in_common() -> None:
    federation = regressions()
    local = LocalTraining(steps=900, local_steps=1, batch_size=None, lr=0.02)
    expected = FedAvg(local=local).fit(federation).models
    result = RSA(lam=0.3, local=local).fit(federation).models
    assert float((result - expected).norm()) < 0.05 * float(expected.norm())
    assert torch.isfinite(result).all()
