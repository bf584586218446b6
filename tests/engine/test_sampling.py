"""A plan step by step: the way of a GPU, which can be tried on a CPU, against the way of a CPU."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca.federation.plan import Listed, Plan, Replayed

SAMPLES = 11


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5), st.sampled_from([(), (2,)]))
def test_replayed_steps_are_those_of_the_list(
    steps: int, clients: int, batch: int, shape: tuple[int, ...]
) -> None:
    y = torch.randn(SAMPLES, *shape)
    plans = [
        Plan(
            torch.randint(SAMPLES, (steps, clients, batch)),
            torch.rand(steps, clients, batch),
            torch.randint(100, (steps, clients)),
            torch.rand(steps, dtype=torch.float64),
        )
        for _ in range(2)
    ]
    listed, replayed = Listed(y), Replayed(y, plans[0])
    for plan in plans:
        listed.load(plan)
        replayed.load(plan)
        for step in range(steps):
            mine, theirs = listed.next(), replayed.next()
            assert torch.equal(mine.y, y[plan.index[step]])
            assert float(theirs.rate) == mine.rate == float(plan.rates[step])
            for a, b in zip(mine[:-1], theirs[:-1], strict=True):
                assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
