"""Buffers are reused only when nothing refers to them any more."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from srfca import Simulation
from srfca.engine import buffer_pool
from srfca.engine.buffer_pool import BufferPool
from srfca.federation import LocalTraining
from srfca.models import mlp
from srfca.random import Key
from tests import examples
from tests.asking import train


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([(2, 3), (3, 2), (4, 4), (0, 5)])),
        max_size=30,
    )
)
def test_memory_in_use_is_not_overwritten(requests: list[tuple[int, tuple[int, int]]]) -> None:
    pool, held = BufferPool(), dict[int, tuple[int, Tensor]]()
    for number, (slot, shape) in enumerate(requests):
        held.pop(slot, None)
        held[slot] = number, pool.empty(shape, torch.float32).fill_(number)
        assert held[slot][1].shape == shape
        assert all((t == filled).all() for filled, t in held.values())


@pytest.mark.parametrize(
    "view", [lambda t: t[1], lambda t: t.numpy(), lambda t: t.view(-1).detach()]
)
def test_a_view_of_a_part_keeps_the_memory(view: object) -> None:
    assert callable(view)
    pool = BufferPool()
    part = view(pool.empty((2, 3), torch.float64).fill_(1))
    pool.empty((2, 3), torch.float64).fill_(2)
    assert (part == 1).all()
    del part
    pool.empty((2, 3), torch.float64)
    assert len(pool._free) == 1


def test_memory_is_reused_for_the_same_size_unless_it_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = BufferPool()
    address = pool.empty((5, 3), torch.float32).data_ptr()
    again = pool.empty((3, 5), torch.float32)
    assert again.data_ptr() == address
    del again
    assert pool.empty((2,), torch.float64).shape == (2,)
    assert [len(buffer) for buffer in pool._free] == [16]
    monkeypatch.setattr(buffer_pool, "_MAX_BYTES", 15)
    pool.empty((2,), torch.float64)
    assert pool._free == []


def test_threads_never_share_memory() -> None:
    pool, wrong = BufferPool(), list[int]()

    def work(number: int) -> None:
        for _ in range(300):
            t = pool.empty((64,), torch.int64).fill_(number)
            if not (t == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_models_of_earlier_rounds_do_not_change() -> None:
    federation = Simulation(examples.classification([20] * 4), mlp(6, 5, 3), device="cpu")
    local = LocalTraining(steps=9, local_steps=3, lr=0.1)
    rows = [federation.initial_model(0).repeat(4, 1)]
    copies = [rows[0].clone()]
    for number in range(local.rounds):
        rows.append(train(federation, range(4), rows[-1], local, Key(0, "x", number)))
        copies.append(rows[-1].clone())
    assert len({t.data_ptr() for t in rows}) == len(rows)
    assert all(torch.equal(*both) for both in zip(rows, copies, strict=True))
    dropped = rows.pop().data_ptr()
    again = train(federation, range(4), rows[-1], local, Key(0, "x", 2))
    assert again.data_ptr() == dropped
    assert torch.equal(again, copies[-1])
