"""What requests cost the clients, against sets of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from srfca import FedAvg, Local, Simulation
from srfca.federation import (
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    Coordinates,
    DataMoments,
    Descent,
    Gradients,
    LocalTraining,
    Losses,
    Mixture,
    Outputs,
    Personal,
    Phase,
    Posterior,
    Round,
    Scores,
    SharedSamples,
    Shares,
    Subspaces,
    Train,
    ask,
)
from srfca.federation.algorithms.shared_data import SharedDataDescent
from srfca.federation.compression import num_words
from srfca.federation.middleware import Budget, Counting
from srfca.federation.middleware.counting import MissingReply, _fingerprints
from srfca.federation.replies import Clients
from srfca.methods import Ditto
from srfca.models import linear
from srfca.random import Key
from tests import examples
from tests.asking import positions
from tests.federation.stub import WIDTH, Stub

CLIENTS = 3
LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=None, lr=0.05)
KEY = Key(0, "x")
EVERYONE = np.arange(CLIENTS)


class ReferenceCount:
    """The obvious way: a set of rows for each client, and a few additions for each request."""

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
some_clients = st.lists(st.integers(0, CLIENTS - 1), min_size=1, max_size=CLIENTS, unique=True)
kinds = st.sampled_from(
    ["train", "anchors", "private", "gradients", "losses", "balanced", "scores"]
)


@settings(max_examples=200)
@given(st.data())
def test_the_budget_agrees_with_sets_of_rows(data: st.DataObject) -> None:
    counting, reference = Counting(Stub()), ReferenceCount()
    trained: list[Tensor] = [torch.zeros(WIDTH, dtype=torch.float64)]

    def draw(count: int) -> Tensor:
        trained_before = st.sampled_from([tuple(row.tolist()) for row in trained])
        drawn = data.draw(st.lists(rows | trained_before, min_size=count, max_size=count))
        return torch.tensor(drawn, dtype=torch.float64)

    for _ in range(data.draw(st.integers(1, 6))):
        kind, clients = data.draw(kinds), data.draw(some_clients)
        if kind in ("losses", "balanced"):
            models = draw(data.draw(st.integers(1, 3)))
            if kind == "losses":
                counting.ask(Losses(positions(clients), models))
            else:
                shares = torch.ones(len(models), 3)
                counting.ask(ClassCounts(positions(clients)))
                counting.ask(BalancedLosses(positions(clients), models, shares))
            reference.evaluations += len(models) * len(clients)
            for client in clients:
                for row in models:
                    reference.send(client, row)
            continue
        models = draw(len(clients))
        for client, row in zip(clients, models, strict=True):
            reference.send(client, row)
        if kind == "scores":
            counting.ask(Scores(positions(clients), models))
            reference.evaluations += len(clients)
            continue
        if kind == "gradients":
            sent = counting.ask(Gradients(positions(clients), models)).values
            reference.steps += len(clients)
        else:
            number = data.draw(st.integers(0, 3))
            anchors = draw(len(clients)) if kind == "anchors" else None
            request = Train(
                positions(clients), models, LocalTraining(steps=7, local_steps=2),
                Key(0, "x", number), Descent(anchors=anchors), private=kind == "private",
            )  # fmt: skip
            sent = counting.ask(request).values
            reference.steps += len(clients) * (1 if number == 3 else 2)
            if anchors is not None:
                for client, row in zip(clients, anchors, strict=True):
                    reference.send(client, row)
        for client, row in zip(clients, sent, strict=True):
            reference.receive(client, row, private=kind == "private")
        trained += list(sent)
    assert counting.spent == reference.budget()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_rows_that_differ_in_few_bits_have_different_fingerprints(dtype: torch.dtype) -> None:
    """Signs and powers of two: these numbers differ in a few bits at one end."""
    numbers = torch.tensor([-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0], dtype=dtype)
    triples = torch.cartesian_prod(numbers, numbers, numbers)
    assert len(set(_fingerprints(triples).tolist())) == len(triples)
    assert 0 not in _fingerprints(triples)


def test_a_client_forgets_after_32_models() -> None:
    counting, first = Counting(Stub()), positions([0])
    models = torch.arange(33.0).unsqueeze(1).repeat(1, WIDTH)
    for row in models[:32]:
        counting.ask(Losses(first, row.unsqueeze(0)))
    counting.ask(Losses(first, models[:1]))
    assert counting.spent.models_down == 32, "the client still has the first one"
    counting.ask(Losses(first, models[32:]))
    counting.ask(Losses(first, models[:1]))
    assert counting.spent.models_down == 34, "it had to be sent again"


def test_as_in_ifca_k_models_go_down_and_one_comes_up() -> None:
    counting = Counting(Stub())
    models = torch.arange(8.0).view(4, WIDTH)
    counting.ask(Losses(EVERYONE, models))
    counting.ask(Train(EVERYONE, models[[2, 0, 2]], LOCAL, KEY))
    assert counting.spent == Budget(
        local_steps=3 * 2, models_down=3 * 4, models_up=3, bytes_down=12 * 8, bytes_up=3 * 16,
        evaluations=12,
    )  # fmt: skip


def federation() -> Simulation:
    return Simulation(examples.regression([8, 9, 10, 11]), linear(4))


BY_HAND: list[tuple[Any, tuple[int, int, int]]] = [
    (FedAvg(local=LOCAL), (4 * 6, 4 * 3, 4 * 3)),
    (FedAvg(local=LOCAL, participation=0.5), (2 * 6, 2 * 3, 2 * 3)),
    (Local(local=LOCAL), (4 * 6, 4, 0)),
    (Ditto(local=LOCAL), (2 * 4 * 6, 4 * 3, 4 * 3)),
]


@pytest.mark.parametrize(("method", "expected"), BY_HAND, ids=lambda value: str(value)[:20])
def test_budgets_of_methods_counted_by_hand(method: Any, expected: tuple[int, int, int]) -> None:
    spent = method.fit(federation()).budget
    assert (spent.local_steps, spent.models_down, spent.models_up) == expected
    row = 5 * 4
    assert (spent.bytes_down, spent.bytes_up) == (expected[1] * row, expected[2] * row)
    assert spent.evaluations == 0


def test_budgets_add_and_subtract() -> None:
    a, b = Budget(1, 2, 3, 4, 5, 6), Budget(1, 1, 1, 1, 1, 1)
    assert a + b == Budget(2, 3, 4, 5, 6, 7)
    assert a + b - b == a


def starts(clients: Clients = EVERYONE) -> Tensor:
    return torch.zeros(len(clients), WIDTH, dtype=torch.float64)


def test_private_models_are_not_counted() -> None:
    counting = Counting(Stub())
    counting.ask(Train(EVERYONE, starts(), LOCAL, KEY, private=True))
    assert counting.spent.models_up == counting.spent.bytes_up == 0
    counting.ask(Train(EVERYONE, starts(), LOCAL, KEY))
    assert counting.spent.models_up == 3


def test_personal_coordinates_are_not_counted() -> None:
    counting, head = Counting(Stub()), Coordinates(((1, 2),))
    counting.ask(Train(EVERYONE, starts(), LOCAL, KEY, personal=head))
    assert counting.spent == Budget(
        local_steps=6, models_down=3, models_up=3, bytes_down=3 * 8, bytes_up=3 * 8
    )
    personal = Personal(head, KEY.seed, KEY.purpose)
    before = counting.spent
    counting.ask(Scores(EVERYONE, 7 + starts(), "validation", personal))
    assert counting.spent - before == Budget(models_down=3, bytes_down=3 * 8, evaluations=3)


def test_corrections_and_mixtures_are_sent() -> None:
    counting = Counting(Stub())
    counting.ask(Train(EVERYONE, starts(), LOCAL, KEY, Descent(corrections=1 + starts())))
    assert counting.spent.models_down == 6
    phases = Descent(phases=(Phase(Coordinates(((0, 1),))),))
    before = counting.spent
    counting.ask(Train(EVERYONE, starts(), LOCAL, KEY, phases))
    assert (counting.spent - before).models_down == 0, "phases are no models"
    mixture = Mixture(torch.arange(6.0).double().view(3, WIDTH) + 1, torch.ones(3, 3) / 3)
    posterior = Descent(posterior=Posterior(mixture, torch.zeros(3, dtype=torch.int64)))
    before = counting.spent
    counting.ask(Train(EVERYONE, starts(), LOCAL, KEY, posterior))
    assert (counting.spent - before).models_down == 3 * 3
    assert (counting.spent - before).evaluations == 3 * 3


def test_missing_replies_cost_the_way_down_but_not_up() -> None:
    counting = Counting(Stub(missing={1: "asleep"}))
    counting.ask(Train(EVERYONE, starts(), LOCAL, KEY))
    assert counting.spent == Budget(
        local_steps=6, models_down=3, models_up=2, bytes_down=3 * 16, bytes_up=2 * 16
    )
    counting.ask(Losses(positions([0, 1]), starts()))
    counting.ask(Losses(positions([0]), starts()))
    assert counting.missing == [
        MissingReply("b", "train", "asleep"),
        MissingReply("b", "losses", "asleep"),
    ]


def test_subspaces_and_shares_are_counted() -> None:
    counting = Counting(Stub())
    counting.ask(Subspaces(EVERYONE, rank=2))
    assert counting.spent == Budget(bytes_up=3 * 3 * 2 * 4)
    counting.ask(Shares(EVERYONE, starts()[:1]))
    assert counting.spent.evaluations == 3
    assert counting.spent.models_down == 3


def test_resamples_and_sums_of_data_are_counted() -> None:
    counting = Counting(Stub())
    counting.ask(DataMoments(EVERYONE))
    assert counting.spent == Budget(bytes_up=3 * 2 * 7 * 8)
    counting.ask(BootstrapLosses(EVERYONE, starts()[:1]))
    assert counting.spent.evaluations == 3
    assert counting.spent.models_down == 3


def test_samples_that_travel_are_counted_in_bytes_and_only_once() -> None:
    counting = Counting(Stub())
    counting.ask(SharedSamples(EVERYONE, 5))
    assert counting.spent == Budget(bytes_up=3 * 5 * 4 * 8)
    inputs = torch.ones(6, 3, dtype=torch.float64)
    for _ in range(2):
        counting.ask(Outputs(EVERYONE, starts(), inputs))
    assert counting.spent == Budget(
        models_down=3, bytes_down=3 * 16 + 3 * 6 * 3 * 8, evaluations=6,
        bytes_up=3 * 5 * 4 * 8 + 2 * 3 * 6 * 3 * 4,
    )  # fmt: skip


def test_tensors_of_an_algorithm_that_are_no_models_are_counted_in_bytes() -> None:
    samples = torch.ones(1, 5, 4, dtype=torch.float64).expand(3, 5, 4)
    steps = SharedDataDescent(samples=samples, shares=torch.full((3, 1), 0.5))
    counting = Counting(Stub())
    for _ in range(2):
        counting.ask(Train(EVERYONE, starts(), LOCAL, KEY, steps))
    assert counting.spent.models_down == 3
    assert counting.spent.bytes_down == 3 * 16 + 3 * 5 * 4 * 8 + 3 * 4


def test_compressed_updates_cost_the_length_of_their_codes() -> None:
    counting, local = Counting(Stub()), replace(LOCAL, compress=0.5)
    counting.ask(Train(EVERYONE, starts(), local, KEY))
    assert counting.spent.models_up == 3
    assert counting.spent.bytes_up == 3 * 8 * num_words(WIDTH, 0.5)
    counting.ask(Train(EVERYONE, starts(), local, KEY, private=True))
    assert counting.spent.models_up == 3


def test_a_round_that_the_federation_answers_costs_what_its_parts_cost() -> None:
    models = torch.arange(4.0, dtype=torch.float64).view(2, WIDTH)
    for server_lr in (None, 0.1):
        request = Round(EVERYONE, models, positions([0, 1, 0]), LOCAL, KEY, server_lr=server_lr)
        budgets = []
        for answers_rounds in (False, True):
            counting = Counting(Stub(answers_rounds=answers_rounds))
            assert counting.answers_rounds == answers_rounds
            ask(counting, request)
            budgets.append(counting.spent)
        assert budgets[0] == budgets[1]
        assert budgets[0].models_up == 3


def test_the_state_is_restored() -> None:
    counting = Counting(Stub(missing={2: "asleep"}))
    counting.ask(Train(EVERYONE, starts(), LOCAL, KEY))
    again = Counting(Stub())
    again.restore(counting.state())
    assert again.spent == counting.spent
    assert again.missing == counting.missing
    again.ask(Losses(EVERYONE, starts()[:1]))
    assert again.spent.models_down == counting.spent.models_down, "the clients have this model"
