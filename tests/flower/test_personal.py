"""Coordinates that stay with the clients: they are not sent, and scores include them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from flwr.app import Message
from torch import Tensor, nn

from srfca import progress
from srfca.clustering import Partition
from srfca.engine import Simulation
from srfca.federation import Coordinates, Federation, Personal, Scores, Train
from srfca.flower import FlowerFederation
from srfca.flower.records import ARRAYS, ROWS, arrays_of
from srfca.flower.serving import deliver_final_models, has_cluster_models
from srfca.methods import Answer, Method, Run
from srfca.random import Key
from tests.flower.grid import LocalGrid
from tests.flower.setup import (
    DATA,
    EVERYONE,
    LOCAL,
    FreshProcess,
    M,
    make_app,
    make_federation,
    make_grid,
    row_of,
    run_app,
    store_models,
)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))


LENGTH = 59
HEAD = Coordinates(((35, 59),))
BODY = HEAD.complement(LENGTH)
PERSONAL = Personal(HEAD, 0, "x")


def make_pair(grid: LocalGrid | None = None) -> tuple[FlowerFederation, Simulation]:
    grid = grid or make_grid(model=network)
    federation = make_federation(grid, model=network)
    return federation, Simulation(DATA, network, device="cpu")


def personal_train(start: Tensor, round: int, clients: np.ndarray = EVERYONE) -> Train:
    starts = start.expand(len(clients), -1)
    return Train(clients, starts, LOCAL, Key(0, "x", round), personal=HEAD)


def train_rounds(federation: Federation, rounds: int = 3) -> Tensor:
    """Average the body over the clients; return the model, whose head is that of no client."""
    model = federation.initial_model(7)
    for number in range(rounds):
        replies = federation.ask(personal_train(model, number))
        model = BODY.put(model.unsqueeze(0), replies.values.mean(0, keepdim=True))[0]
    return model


@pytest.mark.parametrize("app", [make_app(model=network), FreshProcess(model=network)])
def test_training_and_scores_are_those_of_a_simulation(app: Any) -> None:
    federation, simulation = make_pair(LocalGrid(app, range(M)))
    model = train_rounds(federation)
    expected = train_rounds(simulation)
    assert torch.allclose(model, expected, atol=1e-5)
    for split in ("validation", "test", "train"):
        request = Scores(EVERYONE, expected.expand(M, -1), split, PERSONAL)
        scores, of_simulation = federation.ask(request), simulation.ask(request)
        assert not scores.missing
        assert torch.allclose(scores.values.loss, of_simulation.values.loss.double(), atol=1e-5)
        assert torch.equal(
            torch.as_tensor(scores.values.accuracy),
            torch.as_tensor(of_simulation.values.accuracy).double(),
        )
    server_head = federation.ask(Scores(EVERYONE, expected.expand(M, -1))).values
    assert not torch.allclose(server_head.loss, scores.values.loss, atol=1e-2)


def test_only_the_other_coordinates_are_sent() -> None:
    grid = make_grid(model=network)
    federation, _ = make_pair(grid)
    replies_up: list[Message] = []
    deliver = grid.app

    def record(message: Message, context: Any) -> Message:
        replies_up.append(deliver(message, context))
        return replies_up[-1]

    grid.app = record
    hello = federation.traffic
    replies = federation.ask(personal_train(federation.initial_model(0), 0))
    assert replies.values.shape == (M, len(BODY))
    sent = [m for m in grid.sent.values() if m.metadata.message_type == "train.train"]
    row_bytes = 4 * len(BODY)
    down = [len(a.data) for m in sent for a in arrays_of(m.content, ROWS).values()]
    up = [len(a.data) for m in replies_up for a in arrays_of(m.content, ARRAYS).values()]
    assert down == up == [row_bytes] * M
    traffic = federation.traffic - hello
    names = len("rows") + len("client") + 1
    assert traffic.bytes_up == M * (row_bytes + names)
    again = federation.ask(Scores(EVERYONE, replies.values.new_zeros(M, LENGTH), "test", PERSONAL))
    assert not again.missing
    rows = [
        len(array.data)
        for message in grid.sent.values()
        if message.metadata.message_type == "query.scores"
        for array in arrays_of(message.content, ROWS).values()
    ]
    assert rows == [row_bytes] * M


def test_a_partial_row_that_a_client_trained_is_not_sent_again() -> None:
    grid = make_grid(model=network)
    federation, _ = make_pair(grid)
    replies = federation.ask(personal_train(federation.initial_model(0), 0))
    models = BODY.put(torch.zeros(M, LENGTH), replies.values)
    federation.ask(Scores(EVERYONE, models, "test", PERSONAL))
    [count] = {
        len(arrays_of(message.content, ROWS))
        for message in grid.sent.values()
        if message.metadata.message_type == "query.scores"
    }
    assert count == 0


def test_a_client_that_joins_late_starts_from_the_initial_model() -> None:
    federation, simulation = make_pair()
    some, model = np.array([0, 1]), federation.initial_model(7)
    for target in (federation, simulation):
        target.ask(personal_train(model, 0, some))
    request = personal_train(model, 1)
    expected = simulation.ask(request).values
    assert torch.allclose(federation.ask(request).values, expected, atol=1e-5)


def test_a_client_without_personal_coordinates_is_missing() -> None:
    federation, _ = make_pair()
    federation.ask(personal_train(federation.initial_model(0), 0, np.array([0, 1])))
    models = federation.initial_model(0).expand(M, -1)
    replies = federation.ask(Scores(EVERYONE, models, "test", PERSONAL))
    assert sorted(replies.missing) == list(range(2, M))
    assert re.search(r"client '2' has no .*coordinates .* the training 'x'", replies.missing[2])


@dataclass(frozen=True, kw_only=True)
class PersonalHead(Method):
    """Average the body over all clients; heads stay with them."""

    key: ClassVar[str] = "test-personal-head"
    name: ClassVar[str] = "Personal head"
    paper: ClassVar[str] = ""
    clustered: ClassVar[bool] = False

    def solve(self, run: Run) -> Answer:
        models = run.initial_model().unsqueeze(0)
        personal = Personal(HEAD, run.seed, "head")
        for number in range(self.local.rounds):
            request = Train(
                run.everyone, models.expand(run.num_clients, -1), self.local,
                run.key("head", number), personal=HEAD,
            )  # fmt: skip
            replies = run.train(request)
            models = BODY.put(models, replies.values.mean(0, keepdim=True))
        labels = np.zeros(run.num_clients, dtype=np.int64)
        answer = Answer(labels, models, personal=personal)
        run.record("HEAD", Partition(labels), answer.client_models, personal=personal)
        return answer


def test_a_method_with_a_personal_head() -> None:
    federation, simulation = make_pair()
    method = PersonalHead(local=LOCAL)
    with progress.reporting_to(progress.ignore):
        result, expected = method.fit(federation, seed=2), method.fit(simulation, seed=2)
    assert torch.allclose(result.models, expected.models, atol=1e-5)
    [stage], [expected_stage] = result.history, expected.history
    assert stage.loss == pytest.approx(expected_stage.loss, abs=1e-5)
    assert stage.budget == expected_stage.budget
    loss = expected.scores(simulation).loss.double()
    assert torch.allclose(result.scores(federation).loss, loss, atol=1e-5)
    assert not has_cluster_models(result)


def test_clients_receive_final_models_with_their_own_coordinates() -> None:
    received: dict[int, nn.Module] = {}
    grid = LocalGrid(FreshProcess(model=network, receive=store_models(received)), range(M))
    results: list[Any] = []
    run_app(
        grid, {"num-clients": M, "seed": 2}, model=network, method=PersonalHead(local=LOCAL),
        on_result=lambda result, federation: results.append((result, federation)),
    )  # fmt: skip
    [(result, federation)] = results
    simulation = Simulation(DATA, network, device="cpu")
    expected = PersonalHead(local=LOCAL).fit(simulation, seed=2)
    assert expected.personal is not None
    heads = simulation.personal.get(expected.personal, EVERYONE, simulation.client_ids)
    assert sorted(received) == list(range(M))
    for client in range(M):
        row = HEAD.put(expected.models, heads[client : client + 1])[0]
        assert torch.allclose(row_of(received[client]), row, atol=1e-5)
    messages = federation.traffic.messages
    deliver_final_models(federation, result)
    assert federation.traffic.messages == messages, "each client has its model"
