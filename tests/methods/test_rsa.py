"""RSA: two rounds by hand, the bound on what a client can do, and its paper's claim."""

from __future__ import annotations

import numpy as np
import torch

from srfca import ClientData, LocalTraining, Simulation
from srfca.methods import RSA, FedAvg
from srfca.models import linear
from tests import examples

LOCAL = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)


def regressions(scale: float = 1.0, clients: int = 6) -> Simulation:
    """Return clients of one regression; the targets of the first are scaled."""
    made = examples.regression([20 + c for c in range(clients)])
    shards = [
        (x, y * (scale if client == 0 else 1.0))
        for client, (x, y) in enumerate(made.train.of(c) for c in range(clients))
    ]
    return Simulation(ClientData.from_arrays(shards), examples.doubled(linear(4, bias=False)))


def test_two_rounds_by_hand() -> None:
    federation = regressions(clients=3)
    samples = [federation._samples["train"].of(c) for c in range(3)]
    arrays = [(x.numpy(), y.numpy()) for x, y in samples]
    center, rows = np.zeros(4), np.zeros((3, 4))
    for _ in range(2):
        signs = np.sign(center - rows).sum(0)
        trained = []
        for w, (x, y) in zip(rows, arrays, strict=True):
            penalty = 0.3 * np.sign(w - center)
            for _ in range(2):
                w = w - 0.05 * (2 * x.T @ (x @ w - y) / len(y) + penalty)
            trained.append(w)
        rows = np.stack(trained)
        center = center - 2 * 0.05 * (0.1 * center + 0.3 * signs)
    assert np.abs(center).min() > 0
    result = RSA(lam=0.3, decay=0.1, local=LOCAL).fit(federation)
    np.testing.assert_allclose(result.models[0].numpy(), center, rtol=1e-9)


def test_a_client_moves_a_coordinate_by_a_bounded_step_whatever_it_sends() -> None:
    """In the second round, the first in which signs differ: at most ``2 lam lr local_steps``."""
    lam = 0.01
    models = [RSA(lam=lam, local=LOCAL).fit(regressions(scale)).models for scale in (1.0, -1000.0)]
    difference = (models[0] - models[1]).abs()
    assert 0 < float(difference.max()) <= 2 * lam * 0.05 * 2 + 1e-12


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
    local = LocalTraining(steps=300, local_steps=1, batch_size=None, lr=0.02)
    expected = FedAvg(local=local).fit(federation).models
    result = RSA(lam=0.3, local=local).fit(federation).models
    assert float((result - expected).norm()) < 0.2 * float(expected.norm())
    assert torch.isfinite(result).all()
