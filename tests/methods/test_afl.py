"""AFL: two rounds by hand, the projection, and its paper's claim in a small form."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import LocalTraining, Simulation
from srfca.methods import AFL, FedAvg
from srfca.methods.afl import project_to_simplex
from srfca.models import linear
from tests import examples
from tests.methods.helpers import descend

LOCAL = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)


def regressions(sizes: list[int]) -> Simulation:
    made = examples.regression(sizes, clusters=2)
    return Simulation(made, examples.doubled(linear(4, bias=False)))


def test_two_rounds_by_hand() -> None:
    federation = regressions([20, 21, 22])
    samples = [federation._samples["train"].of(c) for c in range(3)]
    arrays = [(x.numpy(), y.numpy()) for x, y in samples]
    n = np.array([len(y) for _, y in arrays])
    w, weights = np.zeros(4), n / n.sum()
    for _ in range(2):
        losses = np.array([((x @ w - y) ** 2).mean() for x, y in arrays])
        w = weights @ np.stack([descend(w, x, y, 2, 0.05) for x, y in arrays])
        moved = weights + 0.001 * losses
        weights = moved - (moved.sum() - 1) / 3  # nothing becomes negative
        assert weights.min() > 0
    result = AFL(lambda_lr=0.001, local=LOCAL).fit(federation)
    np.testing.assert_allclose(result.models[0].numpy(), w, rtol=1e-9)
    np.testing.assert_allclose(result.history[-1].notes["lambda"], weights, rtol=1e-9)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6), st.integers(0, 100))
def test_the_projection_is_the_nearest_point(values: list[float], seed: int) -> None:
    at = torch.tensor(values, dtype=torch.float64)
    nearest = project_to_simplex(at)
    assert abs(float(nearest.sum()) - 1) < 1e-9
    assert float(nearest.min()) >= 0
    other = torch.tensor(np.random.default_rng(seed).dirichlet(np.ones(len(values))))
    assert float((nearest - at).norm()) <= float((other - at).norm()) + 1e-9


def test_the_worst_client_does_better_than_with_fedavg() -> None:
    """Two clients of one kind have most of the samples: FedAvg serves these."""
    federation = Simulation(examples.regression([60, 20, 60], clusters=2), linear(4))
    local = LocalTraining(steps=400, local_steps=1, batch_size=None, lr=0.05)
    worst = [
        float(method.fit(federation).scores(federation, split="train").loss.max())
        for method in (AFL(lambda_lr=0.005, local=local), FedAvg(local=local))
    ]
    assert worst[0] < 0.7 * worst[1]


def test_weights_that_do_not_move_are_fedavg() -> None:
    federation = regressions([20, 25, 30])
    torch.testing.assert_close(
        AFL(lambda_lr=0.0, local=LOCAL).fit(federation).models,
        FedAvg(local=LOCAL).fit(federation).models,
    )
