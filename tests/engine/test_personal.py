"""Coordinates that stay with the clients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from srfca import InputError, Simulation
from srfca.federation import (
    Collect,
    Coordinates,
    Descent,
    LocalTraining,
    Personal,
    Phase,
    Scores,
    Train,
)
from srfca.models import mlp
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.asking import positions, tensor, train
from tests.engine.cases import assert_same

DATA = examples.classification([12, 9, 14, 10])
MODEL = examples.doubled(mlp(6, 4, 3))
LOCAL = LocalTraining(steps=12, local_steps=3, batch_size=5, lr=0.1)
HEAD = Coordinates(((28, 43),))


def federations() -> tuple[Simulation, ReferenceFederation]:
    return Simulation(DATA, MODEL), ReferenceFederation(DATA, MODEL)


def collected(federation: Any, purpose: str, clients: list[int]) -> Tensor:
    request = Collect(positions(clients), Personal(HEAD, 0, purpose))
    return tensor(federation.ask(request))


@settings(deadline=None, max_examples=25)
@given(
    rounds=st.lists(
        st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True), min_size=1, max_size=4
    ),
    bounds=st.sets(st.integers(0, 43), min_size=2, max_size=4),
    keep_state=st.booleans(),
)
def test_training_agrees_with_the_reference(
    rounds: list[list[int]], bounds: set[int], keep_state: bool
) -> None:
    simulation, reference = federations()
    ends = sorted(bounds)[: len(bounds) // 2 * 2]
    personal = Coordinates(tuple(zip(ends[::2], ends[1::2], strict=True)))
    local = LocalTraining(**{**vars(LOCAL), "momentum": 0.9, "keep_state": keep_state})
    starts = torch.stack([reference.initial_model(seed) for seed in range(4, 8)])
    for number, clients in enumerate(rounds):
        key = Key(0, "x", number)
        sent, expected = (
            train(f, clients, starts[clients], local, key, personal=personal)
            for f in (simulation, reference)
        )
        assert sent.shape == (len(clients), 43 - len(personal))
        assert_same(sent, expected)
    seen = sorted(set().union(*rounds))
    request = Collect(positions(seen), Personal(personal, 0, "x"))
    assert_same(*(tensor(f.ask(request)) for f in (simulation, reference)))
    for split in simulation.splits:
        scores = Scores(positions(seen), starts[seen], split, Personal(personal, 0, "x"))
        assert_same(*(f.ask(scores).values.loss for f in (simulation, reference)))


def test_a_client_continues_with_its_own_coordinates() -> None:
    """The head that a client starts from is the one it had, whatever the server sends."""
    simulation, _ = federations()
    starts = simulation.initial_model(5).repeat(4, 1)
    other_heads = HEAD.put(starts, torch.full((4, 15), 9.0, dtype=torch.float64))
    first = train(simulation, range(4), starts, LOCAL, Key(0, "a"), personal=HEAD)
    again = train(simulation, range(4), other_heads, LOCAL, Key(0, "b"), personal=HEAD)
    assert not torch.equal(first, again), "different purposes draw different batches"
    heads = collected(simulation, "a", [0, 1, 2, 3])
    assert torch.equal(
        train(simulation, range(4), other_heads, LOCAL, Key(0, "a"), personal=HEAD), first
    ), "round 0 starts from the initial model's head"
    assert torch.equal(collected(simulation, "a", [0, 1, 2, 3]), heads)
    by_hand = HEAD.put(starts, heads)
    expected = train(simulation, range(4), by_hand, LOCAL, Key(0, "a", 1))
    second = train(simulation, range(4), other_heads, LOCAL, Key(0, "a", 1), personal=HEAD)
    assert torch.equal(second, HEAD.complement(43).take(expected))
    assert torch.equal(collected(simulation, "a", [0, 1, 2, 3]), HEAD.take(expected))


def test_a_client_that_joins_later_starts_from_the_initial_model() -> None:
    simulation, _ = federations()
    starts = simulation.initial_model(5).repeat(4, 1)
    train(simulation, [0, 1], starts[:2], LOCAL, Key(7, "x"), personal=HEAD)
    sent = train(simulation, [3], starts[3:], LOCAL, Key(7, "x", 2), personal=HEAD)
    w0 = simulation.initial_model(7).unsqueeze(0)
    by_hand = HEAD.put(starts[3:], HEAD.take(w0))
    expected = train(simulation, [3], by_hand, LOCAL, Key(7, "x", 2))
    assert torch.equal(sent, HEAD.complement(43).take(expected))


def test_heads_of_different_trainings_are_apart() -> None:
    simulation, _ = federations()
    starts = simulation.initial_model(0).repeat(4, 1)
    train(simulation, range(4), starts, LOCAL, Key(0, "a"), personal=HEAD)
    heads = collected(simulation, "a", [1, 3])
    for key in (Key(0, "b"), Key(1, "a")):
        train(simulation, range(4), starts, LOCAL, key, personal=HEAD)
    assert torch.equal(collected(simulation, "a", [1, 3]), heads)
    assert not torch.equal(collected(simulation, "b", [1, 3]), heads)


def test_a_body_and_a_head_train_in_turn() -> None:
    """FedRep: the head trains first, then the body; only the body is sent."""
    simulation, reference = federations()
    algorithm = Descent(phases=(Phase(HEAD, 2), Phase(HEAD.complement(43))))
    body = reference.initial_model(0).repeat(4, 1)
    for number in range(3):
        request = Train(positions(range(4)), body, LOCAL, Key(0, "fedrep", number), algorithm, HEAD)
        sent, expected = (tensor(f.ask(request)) for f in (simulation, reference))
        assert_same(sent, expected)
        body = HEAD.complement(43).put(body, expected.mean(0, keepdim=True).expand(4, -1))
    assert_same(*(collected(f, "fedrep", [2, 0]) for f in (simulation, reference)))


def test_a_client_without_personal_coordinates_is_named() -> None:
    simulation, _ = federations()
    starts = simulation.initial_model(0).repeat(4, 1)
    train(simulation, [0, 2], starts[:2], LOCAL, Key(0, "x"), personal=HEAD)
    with pytest.raises(
        InputError, match="client '1' has no personal coordinates of the training 'x' with seed 0"
    ):
        collected(simulation, "x", [0, 1])
    scores = Scores(positions([0]), starts[:1], "test", Personal(HEAD, 0, "never"))
    with pytest.raises(InputError, match="of the training 'never' with seed 0"):
        simulation.ask(scores)
