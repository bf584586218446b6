"""q-FFL: two rounds by hand, FedAvg as a special case, and its paper's claim in a small form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import LocalTraining, Simulation
from srfca.methods import QFFL, FedAvg
from srfca.models import linear
from tests import examples
from tests.methods.helpers import descend

LOCAL = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)


def regressions(sizes: list[int]) -> Simulation:
    made = examples.regression(sizes, clusters=2)
    return Simulation(made, examples.doubled(linear(4, bias=False)))


@pytest.mark.parametrize("weighted", [False, True])
def test_two_rounds_by_hand(weighted: bool) -> None:
    federation = regressions([20, 21, 32])
    samples = [federation._samples["train"].of(c) for c in range(3)]
    arrays = [(x.numpy(), y.numpy()) for x, y in samples]
    w, q = np.zeros(4), 0.5
    for _ in range(2):
        step, total = np.zeros(4), 0.0
        for x, y in arrays:
            p = len(y) if weighted else 1
            loss = ((x @ w - y) ** 2).mean()
            update = (w - descend(w, x, y, 2, 0.05)) / 0.05
            step += p * loss**q * update
            total += p * (q * loss ** (q - 1) * (update @ update) + loss**q / 0.05)
        w = w - step / total
    result = QFFL(q=q, weighted=weighted, local=LOCAL).fit(federation)
    np.testing.assert_allclose(result.models[0].numpy(), w, rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_q_of_zero_is_fedavg(weighted: bool) -> None:
    federation = regressions([20, 25, 30])
    method = QFFL(q=0.0, weighted=weighted, local=LOCAL)
    expected = FedAvg(weighted=weighted, local=LOCAL).fit(federation)
    torch.testing.assert_close(method.fit(federation).models, expected.models)


def test_losses_are_more_even_with_a_larger_q() -> None:
    federation = regressions([60, 20, 60])
    local = LocalTraining(steps=400, local_steps=1, batch_size=None, lr=0.05)
    spreads = []
    for q in (0.0, 1.0, 5.0):
        result = QFFL(q=q, local=local).fit(federation)
        spreads.append(float(result.scores(federation, split="train").loss.std()))
    assert spreads[2] < spreads[1] < spreads[0]
