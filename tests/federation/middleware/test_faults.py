"""Replies that never arrive."""

from __future__ import annotations

import pytest
import torch

from srfca import FedAvg, InputError, Simulation
from srfca.federation import DropReplies, LocalTraining, Losses, Train
from srfca.models import linear
from srfca.random import Key
from tests import examples
from tests.asking import positions
from tests.federation.stub import Stub

ROWS = torch.zeros(3, 2)
EVERYONE = positions(range(3))


def dropped(probability: float, seed: int, requests: int = 400) -> list[list[int]]:
    federation = DropReplies(Stub(), probability, seed)
    return [sorted(federation.ask(Losses(EVERYONE, ROWS)).missing) for _ in range(requests)]


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_each_reply_is_lost_with_the_probability(probability: float) -> None:
    lost = dropped(probability, seed=0)
    for client in range(3):
        rate = sum(client in missing for missing in lost) / len(lost)
        assert abs(rate - probability) < 0.08


def test_losses_are_independent_of_each_other_and_depend_on_the_seed() -> None:
    lost = dropped(0.5, seed=0)
    assert lost == dropped(0.5, seed=0)
    assert lost != dropped(0.5, seed=1)
    patterns = {tuple(missing) for missing in lost}
    assert len(patterns) == 8, "every set of clients is lost sometimes"


def test_values_are_those_of_the_clients_that_replied() -> None:
    simulation = Simulation(examples.regression([8, 9, 10]), linear(4))
    starts = simulation.initial_model(0).repeat(3, 1)
    request = Train(EVERYONE, starts, LocalTraining(steps=3), Key(0, "x"))
    expected = simulation.ask(request).values
    federation = DropReplies(simulation, 0.5)
    sizes = set()
    for _ in range(20):
        replies = federation.ask(request)
        assert torch.equal(replies.values, expected[replies.clients])
        assert replies.missing == dict.fromkeys(set(range(3)) - set(replies.clients), "dropped")
        sizes.add(len(replies.clients))
    assert sizes == {0, 1, 2, 3}


def test_a_client_that_is_asked_twice_in_a_request_is_lost_in_both_entries() -> None:
    federation = DropReplies(Stub(), 0.5)
    clients = positions([0, 1, 0])
    for _ in range(20):
        replies = federation.ask(Losses(clients, ROWS))
        assert len(replies.values) == sum(client not in replies.missing for client in clients)


def test_a_method_works_without_some_replies() -> None:
    simulation = Simulation(examples.regression([20] * 6), linear(4))
    method = FedAvg(local=LocalTraining(steps=40, local_steps=5, lr=0.05))
    complete = method.fit(simulation)
    result = method.fit(DropReplies(simulation, 0.3))
    assert any("missing" in stage.notes for stage in result.history)
    torch.testing.assert_close(result.models, complete.models, rtol=0, atol=0.3)


@pytest.mark.parametrize("probability", [-0.1, 1.1])
def test_the_probability_is_checked(probability: float) -> None:
    with pytest.raises(InputError, match=r"probability must be in \[0, 1\]"):
        DropReplies(Stub(), probability)
