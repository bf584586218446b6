"""Batches step by step: those for CUDA graphs, which also work on a CPU, against the list."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca.engine.sampling import BatchPlan, ListedBatches, ReplayedBatches

SAMPLES = 11


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5), st.sampled_from([(), (2,)]))
def test_replayed_batches_are_those_of_the_list(
    steps: int, clients: int, size: int, shape: tuple[int, ...]
) -> None:
    y = torch.randn(SAMPLES, *shape)
    plans = [
        BatchPlan(
            torch.randint(SAMPLES, (steps, clients, size)),
            torch.rand(steps, clients, size),
            torch.randint(100, (steps, clients)),
            torch.rand(steps, dtype=torch.float64),
        )
        for _ in range(2)
    ]
    listed, replayed = ListedBatches(y), ReplayedBatches(y, plans[0])
    for plan in plans:
        listed.load(plan)
        replayed.load(plan)
        for step in range(steps):
            batch, again = listed.next(), replayed.next()
            assert torch.equal(batch.y, y[plan.index[step]])
            assert float(again.rate) == batch.rate == float(plan.rates[step])
            for a, b in zip(batch[:-1], again[:-1], strict=True):
                assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))


def test_the_plan_of_some_steps_and_clients() -> None:
    plan = BatchPlan(
        torch.arange(24).view(4, 3, 2),
        torch.rand(4, 3, 2),
        torch.arange(12).view(4, 3),
        torch.rand(4, dtype=torch.float64),
    )
    assert plan.steps(range(4)) is plan
    part = plan.steps(range(1, 3))
    assert torch.equal(part.index, plan.index[1:3])
    assert torch.equal(part.weights, plan.weights[1:3])
    assert torch.equal(part.augment_streams, plan.augment_streams[1:3])
    assert torch.equal(part.rates, plan.rates[1:3])
    block = plan.block(slice(1, 3), width=1)
    assert torch.equal(block.index, plan.index[:, 1:3, :1])
    assert torch.equal(block.rates, plan.rates)
