"""Memory that is used again: only when nobody looks at it any more."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from srfca import Simulation, Work
from srfca.federation import memory
from srfca.federation.memory import Memory
from srfca.models import mlp
from srfca.random import Key
from tests import examples


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([(2, 3), (3, 2), (4, 4), (0, 5)])),
        max_size=30,
    )
)
def test_what_is_held_is_left_alone(asked: list[tuple[int, tuple[int, int]]]) -> None:
    lender, held = Memory(), dict[int, tuple[int, Tensor]]()
    for number, (place, shape) in enumerate(asked):
        held.pop(place, None)
        held[place] = number, lender.empty(shape, torch.float32).fill_(number)
        assert held[place][1].shape == shape
        assert all((t == filled).all() for filled, t in held.values())


@pytest.mark.parametrize(
    "look", [lambda t: t[1], lambda t: t.numpy(), lambda t: t.view(-1).detach()]
)
def test_who_looks_at_a_part_holds_it(look: object) -> None:
    assert callable(look)
    lender = Memory()
    part = look(lender.empty((2, 3), torch.float64).fill_(1))
    lender.empty((2, 3), torch.float64).fill_(2)
    assert (part == 1).all()
    del part
    lender.empty((2, 3), torch.float64)
    assert len(lender._free) == 1


def test_it_is_used_again_where_it_is_as_large_and_not_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lender = Memory()
    place = lender.empty((5, 3), torch.float32).data_ptr()
    again = lender.empty((3, 5), torch.float32)
    assert again.data_ptr() == place
    del again
    assert lender.empty((2,), torch.float64).shape == (2,)
    assert [len(kept) for kept in lender._free] == [16]
    monkeypatch.setattr(memory, "_LARGEST", 15)
    lender.empty((2,), torch.float64)
    assert lender._free == []


def test_threads_never_share() -> None:
    lender, wrong = Memory(), list[int]()

    def work(own: int) -> None:
        for _ in range(300):
            t = lender.empty((64,), torch.int64).fill_(own)
            if not (t == own).all():
                wrong.append(own)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_models_of_a_round_stay_as_they_are_while_others_train() -> None:
    federation = Simulation(examples.classification([20] * 4), mlp(6, 5, 3), device="cpu")
    work = Work(steps=9, local_steps=3, lr=0.1)
    rows = [federation.initial(0).repeat(4, 1)]
    copies = [rows[0].clone()]
    for number in range(work.rounds):
        rows.append(federation.fit(rows[-1], range(4), work, Key(0, "x", number)))
        copies.append(rows[-1].clone())
    assert len({t.data_ptr() for t in rows}) == len(rows)
    assert all(torch.equal(*both) for both in zip(rows, copies, strict=True))
    dropped = rows.pop().data_ptr()
    again = federation.fit(rows[-1], range(4), work, Key(0, "x", 2))
    assert again.data_ptr() == dropped
    assert torch.equal(again, copies[-1])
