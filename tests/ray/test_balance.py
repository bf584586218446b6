"""Shards move away from slow workers, and no answer changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("ray")

from srfca import LocalTraining, Simulation
from srfca.aggregation.rules import Aggregation, Mean, Median
from srfca.federation.requests import Round
from srfca.federation.rounds import ask
from srfca.random import Key
from srfca.ray import shards
from srfca.ray.balance import REQUESTS, Balance, Move, Timing
from srfca.ray.shards import num_shards
from tests.ray.helpers import DigitsShard, close, digits, on_ray, small_model
from tests.ray.in_process import InProcess

LOCAL = LocalTraining(steps=40, local_steps=1, batch_size=8, lr=0.3)
KEPT = replace(LOCAL, lr=0.1, momentum=0.9, keep_state=True)


@dataclass
class FakeClock:
    """A clock by which every call takes as long."""

    seconds: float
    now: float = 0.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def set_clocks(stand_in: InProcess, *seconds: float) -> None:
    for actor, of_actor in zip(stand_in.actors, seconds, strict=True):
        actor.made.clock = FakeClock(of_actor)


def do_rounds(federation: Any, local: LocalTraining, rule: Aggregation) -> torch.Tensor:
    models = torch.stack([federation.initial_model(seed) for seed in range(2)])
    for number in range(3 * REQUESTS):
        request = Round(np.arange(12), models, np.arange(12) % 2, local, Key(3, "x", number), rule)
        models = ask(federation, request).values
    return models


@pytest.mark.parametrize(("local", "rule"), [(LOCAL, Mean()), (KEPT, Mean()), (LOCAL, Median())])
def test_a_slow_worker_loses_a_shard_and_the_answer_is_the_same(
    monkeypatch: pytest.MonkeyPatch, local: LocalTraining, rule: Aggregation
) -> None:
    expected = do_rounds(Simulation(digits(), small_model), local, rule)
    makers = [DigitsShard(*pair) for pair in pairwise((0, 3, 6, 9, 12))]
    answers = []
    for slow in (1.0, 4.0):
        stand_in = InProcess()
        stand_in.install(monkeypatch)
        with on_ray(makers) as federation:
            set_clocks(stand_in, slow, 1.0)
            answers.append(do_rounds(federation, local, rule))
            assert federation.num_moves == (slow > 1)
            assert federation.num_losses == 0
    assert torch.equal(*answers)
    assert close(answers[0], expected)


def note(balance: Balance, host_of: list[int], seconds: list[float]) -> None:
    for _ in range(REQUESTS):
        balance.note(host_of, {shard: Timing(s, 100) for shard, s in enumerate(seconds)})


def test_what_moves() -> None:
    host_of = [0, 1, 2, 0, 1, 2]
    for seconds, expected in (
        ([1, 1, 1, 1, 1, 1], None),
        ([1, 2, 1, 1, 2, 1], Move(1, 0)),
        ([1, 1.4, 1, 1, 1.4, 1], None),
        ([1, 3, 0.5, 1, 3, 0.5], Move(1, 2)),
        ([0, 0.04, 0, 0, 0, 0], None),  # too short to say anything
    ):
        balance = Balance()
        note(balance, host_of, seconds)  # type: ignore[arg-type]
        assert balance.suggest(host_of) == expected
        assert balance.suggest(host_of) is None  # not again at once


def test_a_worker_with_one_shard_keeps_it() -> None:
    balance = Balance()
    note(balance, [0, 1], [1, 9])
    assert balance.suggest([0, 1]) is None


def test_no_move_makes_requests_slower() -> None:
    balance = Balance()
    host_of = [0, 1, 1, 1, 1, 0]
    note(balance, host_of, [1.6, 1, 1, 1, 1, 1.6])  # the fast one would take five seconds
    assert balance.suggest(host_of) is None


def test_a_slow_moment_moves_nothing() -> None:
    balance, host_of = Balance(), [0, 1, 0, 1]
    for number in range(3 * REQUESTS):
        slow = 9.0 if number % REQUESTS else 1.0
        balance.note(host_of, {s: Timing(slow if h else 1.0, 100) for s, h in enumerate(host_of)})
        assert balance.suggest(host_of) is None


def test_many_clients_are_cut_into_two_shards_for_each_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert num_shards(shards.MIN_CLIENTS * 4, 2) == 4
    monkeypatch.setattr(shards, "MIN_CLIENTS", 3)
    InProcess().install(monkeypatch)
    with on_ray(digits()) as federation:
        assert "4 shards on 2 workers" in repr(federation)
