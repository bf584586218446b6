"""Modules with a frozen part in a simulation, compared with a plain loop over the clients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from srfca.federation import Simulation, Work
from srfca.models import frozen_digest
from srfca.random import Key
from tests import examples
from tests.loop_federation import LoopFederation

WORKS = {
    "momentum": Work(steps=5, local_steps=3, batch_size=6, lr=0.05, momentum=0.9, keep_state=True),
    "adam": Work(steps=3, local_steps=3, batch_size=None, optimizer="adam", lr=0.01),
}


def frozen_backbone() -> nn.Module:
    """A frozen linear layer and BatchNorm, then a trained perceptron."""
    backbone = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)).requires_grad_(False)
    head = nn.Sequential(nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    return nn.Sequential(backbone, head).double()


@pytest.mark.parametrize("block_size", [None, 1, 3])
@pytest.mark.parametrize("work", WORKS)
def test_a_frozen_backbone_agrees_with_the_loop_and_never_changes(
    work: str, block_size: int | None
) -> None:
    data = examples.classification([7, 14, 9, 9])
    simulation = Simulation(data, frozen_backbone, block_size=block_size)
    loop = LoopFederation(data, frozen_backbone)
    digest = frozen_digest(simulation.module(simulation.initial(0)))
    rows, clients = loop.initial(1).repeat(4, 1), [2, 0, 1, 3]
    assert rows.shape == (4, 5 * 4 + 4 + 4 * 3 + 3)
    trained, expected = (
        federation.fit(rows, clients, WORKS[work], Key(3, "models"))
        for federation in (simulation, loop)
    )
    torch.testing.assert_close(trained, expected, rtol=1e-9, atol=1e-10)
    assert not torch.equal(trained, rows)
    for question in ("losses", "gradients"):
        answer, expected = (
            getattr(federation, question)(rows, range(4)) for federation in (simulation, loop)
        )
        torch.testing.assert_close(answer, expected, rtol=1e-9, atol=1e-10)
    assert frozen_digest(simulation._network.module) == digest
