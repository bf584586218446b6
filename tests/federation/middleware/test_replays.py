"""The journal replays trainings whose clients keep state, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from srfca import Simulation, progress
from srfca.federation import (
    BalancedLosses,
    ClassCounts,
    ClientScores,
    Collect,
    Coordinates,
    Descent,
    Federation,
    Journal,
    LocalTraining,
    Losses,
    Personal,
    Request,
    Round,
    Scores,
    Subsample,
    Train,
    ask,
)
from srfca.federation.local_training import KEPT_TRAININGS
from srfca.federation.middleware import Journaling
from srfca.federation.middleware.journal import digest_of
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.asking import positions
from tests.federation.stub import Stub

LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=5, lr=0.05)
KEPT = replace(LOCAL, momentum=0.9, keep_state=True)
EVERYONE = positions(range(4))
DATA = examples.classification([12, 9, 14, 10])


def simulation() -> Simulation:
    return Simulation(DATA, mlp(6, 4, 3))


def head_of(federation: Federation) -> Coordinates:
    return Coordinates.of_layers(federation.layers, ["3"])


Requests = Generator[Request[Any], torch.Tensor, None]
"""Requests, each of which is sent the values of its replies."""
Script = Callable[[Federation], Requests]


def kept_state(federation: Federation) -> Requests:
    """One training that keeps optimizer states, with other requests between its rounds."""
    starts = federation.initial_model(0).repeat(4, 1)
    for number in range(3):
        starts = yield Train(EVERYONE, starts, KEPT, Key(0, "kept", number))
        yield Losses(EVERYONE, starts[:2])
        yield Train(EVERYONE, starts, LOCAL, Key(0, f"without state {number}"))


def interleaved(federation: Federation) -> Requests:
    """Two trainings that keep optimizer states, round by round."""
    first = second = federation.initial_model(0).repeat(4, 1)
    for number in range(3):
        first = yield Train(EVERYONE, first, KEPT, Key(0, "first", number))
        second = yield Train(EVERYONE, second, KEPT, Key(0, "second", number))


def personal(federation: Federation) -> Requests:
    """A training with a personal head, then what uses the head."""
    head = head_of(federation)
    heads = Personal(head, 0, "personal")
    body = federation.initial_model(0).repeat(4, 1)
    shared = head.complement(body.shape[1])
    for number, clients in enumerate(([0, 1, 2, 3], [2, 0], [1, 2, 3])):
        request = Train(
            positions(clients), body[clients], LOCAL, Key(0, "personal", number), personal=head
        )
        sent = yield request
        body = shared.put(body, sent.mean(0, keepdim=True).expand(4, -1))
        yield Scores(EVERYONE, body, "validation", heads)
    yield Train(EVERYONE, body, LOCAL, Key(0, "afterwards"))
    yield Scores(EVERYONE, body, "test", heads)
    yield Collect(EVERYONE, heads)


def rounds(federation: Federation) -> Requests:
    """Rounds of two clusters whose clients keep optimizer states."""
    models = torch.stack([federation.initial_model(seed) for seed in range(2)])
    for number in range(3):
        models = yield Round(EVERYONE, models, positions([0, 1, 1, 0]), KEPT, Key(0, "r", number))


SCRIPTS: list[Script] = [kept_state, interleaved, personal, rounds]


def run(federation: Federation, script: Script, limit: int = 10**9) -> list[torch.Tensor]:
    """Send the requests of a script, up to a limit; return all tensors of the replies."""
    steps: Any = script(federation)
    tensors: list[torch.Tensor] = []
    answer = None
    for _ in range(limit):
        try:
            request = steps.send(answer)
        except StopIteration:
            break
        answer = ask(federation, request).values
        tensors += [answer.loss] if isinstance(answer, ClientScores) else [answer]
    return tensors


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_replies_after_a_resume_are_the_same(script: Script, tmp_path: Path) -> None:
    expected = run(simulation(), script)
    for limit in range(len(expected) + 1):
        folder = tmp_path / str(limit)
        first = run(Journaling(simulation(), Journal(folder, {})), script, limit)
        again = run(Journaling(simulation(), Journal(folder, {})), script)
        for result in (first, again):
            assert all(map(torch.equal, result, expected))
        assert len(again) == len(expected)


def test_only_rounds_whose_state_is_needed_are_trained_again(tmp_path: Path) -> None:
    """After a resume, requests of other trainings do not train earlier rounds again."""
    w = torch.zeros(3, 2, dtype=torch.float64)
    clients = positions(range(3))
    before: list[Request[Any]] = [
        Train(clients, w, KEPT, Key(0, "kept", number)) for number in range(2)
    ]
    journaling = Journaling(Stub(), Journal(tmp_path, {}))
    for request in before:
        journaling.ask(request)
    stub = Stub()
    resumed = Journaling(stub, Journal(tmp_path, {}))
    for request in before:
        resumed.ask(request)
    assert stub.requests == []
    losses, last = Losses(clients, w), Train(clients, w, KEPT, Key(0, "kept", 2))
    resumed.ask(losses)
    assert stub.requests == [losses]
    resumed.ask(last)
    assert stub.requests == [losses, *before, last]
    resumed.ask(losses)
    assert stub.requests == [losses, *before, last, losses]


def test_requests_of_the_last_trainings_are_kept_and_those_of_personal_ones(
    tmp_path: Path,
) -> None:
    w, clients = torch.zeros(3, 2, dtype=torch.float64), positions(range(3))
    head = Coordinates(((1, 2),))
    requests: list[Request[Any]] = [
        Train(clients, w, LOCAL, Key(0, "personal"), personal=head),
        *(Train(clients, w, KEPT, Key(0, f"{number}")) for number in range(KEPT_TRAININGS + 1)),
    ]
    for _ in range(2):
        journaling = Journaling(Stub(), Journal(tmp_path, {}))
        for request in requests:
            journaling.ask(request)
    last = [(0, f"{number}") for number in range(1, KEPT_TRAININGS + 1)]
    assert list(journaling._replayed) == [(0, "personal"), *last]


def test_replayed_steps_are_reported_once(tmp_path: Path) -> None:
    def reported(limit: int) -> int:
        steps: list[int] = []
        with progress.reporting_to(steps.append):
            run(Journaling(simulation(), Journal(tmp_path, {})), interleaved, limit)
        return sum(steps)

    assert reported(4) == 4 * 4 * 2
    assert reported(6) == 6 * 4 * 2, "replayed steps count, those trained again do not"


def test_every_part_of_a_request_is_in_its_digest() -> None:
    federation = Simulation(examples.regression([8, 9]), linear(4))
    w = federation.initial_model(0).repeat(2, 1)
    clients, key = positions([0, 1]), Key(0, "x")
    request = Train(clients, w, LOCAL, key)
    variants: list[Request[Any]] = [
        request,
        Train(clients[::-1], w, LOCAL, key),
        Train(clients, w + 1, LOCAL, key),
        Train(clients, w.double(), LOCAL, key),
        Train(clients, w, replace(LOCAL, lr=0.1), key),
        Train(clients, w, LOCAL, replace(key, round=1)),
        Train(clients, w, LOCAL, key, Descent(anchors=w)),
        Train(clients, w, LOCAL, key, Descent(corrections=w)),
        Train(clients, w, LOCAL, key, personal=Coordinates(((0, 1),))),
        Train(clients, w, LOCAL, key, private=True),
        Losses(clients, w),
        Losses(clients, w, "validation"),
        ClassCounts(clients),
        ClassCounts(clients, presence=True),
        BalancedLosses(clients, w, torch.ones(2, 3)),
        BalancedLosses(clients, w, torch.ones(2, 4)),
        BalancedLosses(clients, w, torch.ones(2, 3), Subsample(4)),
        Scores(clients, w, "validation"),
    ]
    assert len({digest_of(variant) for variant in variants}) == len(variants)
    assert digest_of(request) == digest_of(Train(clients, w.clone(), LOCAL, key))
