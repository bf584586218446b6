from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from srfca import Global, Local, Simulation, Work
from srfca.federation.base import Focus, Mixture, Sample, Scores, Split, Tick, Wire, silent
from srfca.federation.counted import Budget, Counted, _fingerprints
from srfca.methods import Ditto
from srfca.models import linear
from srfca.random import Key
from tests import examples

CLIENTS, WIDTH = 3, 2
WORK = Work(steps=6, local_steps=2, batch_size=None, lr=0.05)


class Stub:
    """Three clients without data. What they train is another row every time."""

    clients = ("a", "b", "c")
    sizes = torch.tensor([5, 6, 7])
    splits: Sequence[Split] = ("train", "validation")
    layers: ClassVar = {"all": slice(0, WIDTH)}
    wire = Wire()

    def __init__(self) -> None:
        self.made = 100.0

    def fingerprint(self) -> str:
        return ""

    def initial(self, seed: int) -> Tensor:
        return torch.zeros(WIDTH, dtype=torch.float64)

    def fit(
        self,
        starts: Tensor,
        clients: Sequence[int],
        work: Work,
        key: Key,
        tick: Tick = silent,
        anchors: Tensor | None = None,
        focus: Focus | None = None,
    ) -> Tensor:
        return self._rows(len(clients))

    def gradients(self, at: Tensor, clients: Sequence[int]) -> Tensor:
        return self._rows(len(clients))

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Split = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        return torch.zeros(len(models), len(clients))

    def subspaces(self, clients: Sequence[int], rank: int) -> Tensor:
        raise NotImplementedError

    def shares(self, models: Tensor | Mixture, clients: Sequence[int]) -> Tensor:
        raise NotImplementedError

    def scores(
        self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
    ) -> Scores:
        return Scores(torch.zeros(len(clients)), None, torch.ones(len(clients)))

    def _rows(self, count: int) -> Tensor:
        self.made += count
        first = torch.arange(self.made - count, self.made, dtype=torch.float64)
        return torch.stack([first] * WIDTH, dim=1)


class Reference:
    """The obvious way: a set of rows for each client, a line of arithmetic for each call."""

    def __init__(self) -> None:
        self.has: dict[int, set[tuple[float, ...]]] = {c: set() for c in range(CLIENTS)}
        self.steps = self.down = self.up = self.evaluations = 0

    def send(self, client: int, row: Tensor) -> None:
        value = tuple(row.tolist())
        self.down += value not in self.has[client]
        self.has[client].add(value)

    def receive(self, client: int, row: Tensor, private: bool) -> None:
        self.has[client].add(tuple(row.tolist()))
        self.up += not private

    def budget(self) -> Budget:
        size = WIDTH * 8
        return Budget(
            self.steps, self.down, self.up, self.down * size, self.up * size, self.evaluations
        )


values = st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0])
rows = st.tuples(values, values)
some = st.lists(st.integers(0, CLIENTS - 1), min_size=1, max_size=CLIENTS, unique=True)


@settings(max_examples=200)
@given(st.data())
def test_it_counts_as_sets_of_rows_do(data: st.DataObject) -> None:
    counted, reference = Counted(Stub()), Reference()
    trained: list[Tensor] = [torch.zeros(WIDTH, dtype=torch.float64)]

    def draw(count: int) -> Tensor:
        known = st.sampled_from([tuple(row.tolist()) for row in trained])
        drawn = data.draw(st.lists(rows | known, min_size=count, max_size=count))
        return torch.tensor(drawn, dtype=torch.float64)

    for _ in range(data.draw(st.integers(1, 6))):
        call = data.draw(
            st.sampled_from(["fit", "pulled", "private", "gradients", "losses", "scores"])
        )
        who = data.draw(some)
        if call == "losses":
            models = draw(data.draw(st.integers(1, 3)))
            counted.losses(models, who)
            reference.evaluations += len(models) * len(who)
            for client in who:
                for row in models:
                    reference.send(client, row)
            continue
        given = draw(len(who))
        for client, row in zip(who, given, strict=True):
            reference.send(client, row)
        if call == "scores":
            counted.scores(given, who)
            reference.evaluations += len(who)
            continue
        if call == "gradients":
            found = counted.gradients(given, who)
            reference.steps += len(who)
        else:
            number = data.draw(st.integers(0, 3))
            anchors = draw(len(who)) if call == "pulled" else None
            key, work = Key(0, "x", number), Work(steps=7, local_steps=2)
            if call == "private":
                with counted.private():
                    found = counted.fit(given, who, work, key)
            else:
                found = counted.fit(given, who, work, key, anchors=anchors)
            reference.steps += len(who) * (1 if number == 3 else 2)
            if anchors is not None:
                for client, row in zip(who, anchors, strict=True):
                    reference.send(client, row)
        for client, row in zip(who, found, strict=True):
            reference.receive(client, row, private=call == "private")
        trained += list(found)
    assert counted.spent == reference.budget()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_rows_that_differ_in_few_bits_are_told_apart(dtype: torch.dtype) -> None:
    """Signs and powers of two: all numbers here are alike but for a few bits at one end."""
    values = torch.tensor([-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0], dtype=dtype)
    every = torch.cartesian_prod(values, values, values)
    assert len(set(_fingerprints(every).tolist())) == len(every)
    assert 0 not in _fingerprints(every)


def test_a_client_forgets_after_32_models() -> None:
    counted = Counted(Stub())
    models = torch.arange(33.0).unsqueeze(1).repeat(1, WIDTH)
    for row in models[:32]:
        counted.losses(row.unsqueeze(0), [0])
    counted.losses(models[:1], [0])
    assert counted.spent.models_down == 32, "the first is still there"
    counted.losses(models[32:], [0])
    counted.losses(models[:1], [0])
    assert counted.spent.models_down == 34, "and now it had to be sent again"


def test_as_in_ifca_k_models_go_down_and_one_comes_up() -> None:
    counted = Counted(Stub())
    models = torch.arange(8.0).view(4, WIDTH)
    counted.losses(models, range(3))
    counted.fit(models[[2, 0, 2]], range(3), WORK, Key(0, "x"))
    assert counted.spent == Budget(
        local_steps=3 * 2, models_down=3 * 4, models_up=3, bytes_down=12 * 8, bytes_up=3 * 16,
        evaluations=12,
    )  # fmt: skip


def federation() -> Simulation:
    return Simulation(examples.regression([8, 9, 10, 11]), linear(4))


BY_HAND: list[tuple[Any, tuple[int, int, int]]] = [
    (Global(work=WORK), (4 * 6, 4 * 3, 4 * 3)),
    (Global(work=WORK, participation=0.5), (2 * 6, 2 * 3, 2 * 3)),
    (Local(work=WORK), (4 * 6, 4, 0)),
    (Ditto(work=WORK), (2 * 4 * 6, 4 * 3, 4 * 3)),
]


@pytest.mark.parametrize(("method", "expected"), BY_HAND, ids=lambda value: str(value)[:20])
def test_by_hand(method: Any, expected: tuple[int, int, int]) -> None:
    spent = method.fit(federation()).budget
    assert (spent.local_steps, spent.models_down, spent.models_up) == expected
    row = 5 * 4
    assert (spent.bytes_down, spent.bytes_up) == (expected[1] * row, expected[2] * row)
    assert spent.evaluations == 0


def test_private_is_over_when_it_is_left_even_by_an_error() -> None:
    counted = Counted(Stub())
    with pytest.raises(KeyError), counted.private():
        raise KeyError
    counted.fit(torch.zeros(1, WIDTH), [0], WORK, Key(0, "x"))
    assert counted.spent.models_up == 1


def test_budgets_add_and_subtract() -> None:
    a, b = Budget(1, 2, 3, 4, 5, 6), Budget(1, 1, 1, 1, 1, 1)
    assert a + b == Budget(2, 3, 4, 5, 6, 7)
    assert a + b - b == a
