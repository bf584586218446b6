"""Rounds: training and aggregation, or the answer of a federation that knows better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from srfca import Simulation, progress
from srfca.aggregation.rules import Aggregation, Mean, Median, TrimmedMean
from srfca.federation import (
    Coordinates,
    Counting,
    DropReplies,
    Gradients,
    Journal,
    LocalTraining,
    Middleware,
    Replies,
    Request,
    Round,
    Train,
    ask,
    train_and_aggregate,
)
from srfca.federation.middleware import Journaling
from srfca.models import mlp
from srfca.random import Key
from tests import examples
from tests.asking import positions
from tests.federation.stub import Stub

DATA = examples.classification([12, 9, 14, 10, 7])
LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=5, lr=0.05, schedule="linear")
SIMULATION = Simulation(DATA, examples.doubled(mlp(6, 4, 3)))
MODELS = torch.stack([SIMULATION.initial_model(seed) for seed in range(3)])


class AnswersRounds(Middleware):
    """A federation that reduces where its clients are."""

    answers_rounds = True

    def ask(self, request: Request[Any]) -> Replies[Any]:
        if isinstance(request, Round):
            return train_and_aggregate(self.federation, request)
        return super().ask(request)


def by_hand(request: Round, lost: set[int]) -> Tensor:
    """The models of the clusters, one participant after another."""
    rows: dict[int, list[Tensor]] = {cluster: [] for cluster in range(len(request.models))}
    sizes: dict[int, list[int]] = {cluster: [] for cluster in range(len(request.models))}
    for client, label in zip(request.clients.tolist(), request.labels.tolist(), strict=True):
        start = request.models[label : label + 1]
        if request.server_lr is None:
            part: Request[Any] = Train(positions([client]), start, request.local, request.key)
            row = SIMULATION.ask(part).values[0]
        else:
            gradient = SIMULATION.ask(Gradients(positions([client]), start)).values[0]
            factor = request.local.rate(request.key.round) / request.local.lr
            row = start[0] - request.server_lr * factor * gradient
        if client not in lost:
            rows[label].append(row)
            sizes[label].append(int(SIMULATION.sizes[client]))
    return torch.stack(
        [
            request.aggregation(torch.stack(rows[cluster]), torch.tensor(sizes[cluster]))
            if rows[cluster]
            else request.models[cluster]
            for cluster in rows
        ]
    )


class Drops(Middleware):
    """Loses the replies of some clients."""

    def __init__(self, lost: set[int]) -> None:
        super().__init__(SIMULATION)
        self.lost = lost

    def ask(self, request: Request[Any]) -> Replies[Any]:
        return super().ask(request).without(self.lost, "lost")


@settings(max_examples=40)
@given(
    clients=st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True),
    labels=st.lists(st.integers(0, 2), min_size=5, max_size=5),
    lost=st.sets(st.integers(0, 4)),
    aggregation=st.sampled_from([Mean(), Mean(weighted=False), Median(), TrimmedMean(beta=0.3)]),
    server_lr=st.sampled_from([None, 0.3]),
    number=st.integers(0, 2),
)
def test_a_round_is_training_and_aggregation(
    clients: list[int],
    labels: list[int],
    lost: set[int],
    aggregation: Aggregation,
    server_lr: float | None,
    number: int,
) -> None:
    request = Round(
        positions(clients), MODELS, positions(labels[: len(clients)]), LOCAL,
        Key(1, "round", number), aggregation, server_lr,
    )  # fmt: skip
    replies = ask(Drops(lost), request)
    torch.testing.assert_close(replies.values, by_hand(request, lost), rtol=1e-9, atol=1e-10)
    assert replies.missing == dict.fromkeys(set(clients) & lost, "lost")
    assert replies.requested.tolist() == clients
    assert replies.clients.tolist() == [client for client in clients if client not in lost]


def test_shared_coordinates_are_aggregated_over_all_participants() -> None:
    body = Coordinates(((0, 28),))
    clients, labels = positions([0, 1, 2, 3]), positions([0, 1, 0, 1])
    request = Round(clients, MODELS[:2], labels, LOCAL, Key(0, "x"), shared=body)
    models = ask(SIMULATION, request).values
    separate = by_hand(Round(clients, MODELS[:2], labels, LOCAL, Key(0, "x")), set())
    rows = SIMULATION.ask(Train(clients, MODELS[labels], LOCAL, Key(0, "x"))).values
    together = Mean()(rows, SIMULATION.sizes[:4])
    torch.testing.assert_close(models[:, :28], together[:28].expand(2, -1))
    torch.testing.assert_close(models[:, 28:], separate[:, 28:])


def test_gradients_report_one_step_for_each_participant() -> None:
    reported: list[int] = []
    labels = positions([0, 0, 1])
    request = Round(positions([0, 1, 2]), MODELS, labels, LOCAL, Key(0, "x"), server_lr=0.1)
    with progress.reporting_to(reported.append):
        ask(SIMULATION, request)
    assert sum(reported) == 3


def rounds(federation: Any, server_lr: float | None) -> Tensor:
    models = MODELS
    for number in range(LOCAL.rounds):
        request = Round(
            np.arange(5), models, positions([0, 1, 0, 0, 1]), LOCAL, Key(0, "x", number),
            TrimmedMean(beta=0.2), server_lr,
        )  # fmt: skip
        models = ask(federation, request).values
    return models


@pytest.mark.parametrize("server_lr", [None, 0.1])
def test_a_federation_that_answers_rounds_gives_the_same_models(
    server_lr: float | None, tmp_path: Path
) -> None:
    expected = rounds(SIMULATION, server_lr)
    inside = AnswersRounds(SIMULATION)
    counting = Counting(inside)
    assert counting.answers_rounds
    assert torch.equal(rounds(counting, server_lr), expected)
    split = Counting(SIMULATION)
    assert not split.answers_rounds
    assert torch.equal(rounds(split, server_lr), expected)
    assert counting.spent == split.spent
    assert counting.spent.local_steps == 5 * (6 if server_lr is None else 3)
    assert counting.spent.models_up == 5 * 3
    for _ in range(2):
        journaling = Journaling(inside, Journal(tmp_path / str(server_lr), {}))
        assert journaling.answers_rounds
        assert torch.equal(rounds(Counting(journaling), server_lr), expected)
    replayed = Counting(Journaling(Silent(inside), Journal(tmp_path / str(server_lr), {})))
    assert torch.equal(rounds(replayed, server_lr), expected)
    assert replayed.spent == counting.spent


class Silent(AnswersRounds):
    """Answers nothing: all replies must come from the journal."""

    def ask(self, request: Request[Any]) -> Replies[Any]:
        raise AssertionError(request.name)


def test_middleware_sees_a_round_as_training_unless_it_says_otherwise() -> None:
    assert not DropReplies(AnswersRounds(SIMULATION), 0.5).answers_rounds
    stub = Stub(answers_rounds=True)
    request = Round(positions([0, 1]), torch.zeros(1, 2), positions([0, 0]), LOCAL, Key(0, "x"))
    ask(Middleware(stub), request)
    ask(stub, request)
    assert [request.name for request in stub.requests] == ["train", "round"]
