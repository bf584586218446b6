"""Middleware passes everything on; all of ours passes the checks of a federation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from srfca import Simulation
from srfca.federation import (
    BalancedLosses,
    ClassCounts,
    Counting,
    DropReplies,
    Federation,
    Gradients,
    Journal,
    LocalTraining,
    Losses,
    Middleware,
    Request,
    Scores,
    Shares,
    Subspaces,
    Train,
)
from srfca.federation.middleware import Journaling
from srfca.random import Key
from srfca.testing import check_federation
from tests.asking import positions
from tests.federation.stub import Stub

Wrap = Callable[[Federation, Path], Federation]
_folders = count()

MIDDLEWARE: dict[str, Wrap] = {
    "base": lambda federation, folder: Middleware(federation),
    "counting": lambda federation, folder: Counting(federation),
    "journaling": lambda federation, folder: Journaling(
        federation, Journal(folder / str(next(_folders)), {})
    ),
    "dropping nothing": lambda federation, folder: DropReplies(federation, 0.0),
    "all of them": lambda federation, folder: Counting(
        Journaling(DropReplies(federation, 0.0), Journal(folder / str(next(_folders)), {}))
    ),
}


@pytest.mark.parametrize("name", MIDDLEWARE)
def test_everything_is_passed_on(name: str, tmp_path: Path) -> None:
    stub = Stub()
    wrapped = MIDDLEWARE[name](stub, tmp_path)
    assert wrapped.client_ids is stub.client_ids
    assert wrapped.sizes is stub.sizes
    assert wrapped.splits is stub.splits
    assert wrapped.layers is stub.layers
    assert not wrapped.answers_rounds
    assert wrapped.fingerprint() == "stub"
    assert torch.equal(wrapped.initial_model(3), stub.initial_model(3))
    clients, rows = positions([2, 0]), torch.zeros(2, 2, dtype=torch.float64)
    requests: list[Request[Any]] = [
        Train(clients, rows, LocalTraining(), Key(0, "x")),
        Gradients(clients, rows),
        Losses(clients, rows),
        ClassCounts(clients),
        BalancedLosses(clients, rows, torch.ones(2, 3)),
        Scores(clients, rows),
        Shares(clients, rows),
        Subspaces(clients, 2),
    ]
    for request in requests:
        replies = wrapped.ask(request)
        assert replies.clients.tolist() == [2, 0]
        assert not replies.missing
    assert stub.requests == requests


@pytest.mark.parametrize("name", MIDDLEWARE)
def test_middleware_passes_the_checks(name: str, tmp_path: Path) -> None:
    check_federation(
        lambda data, model: MIDDLEWARE[name](Simulation(data, model), tmp_path),
        make_unreliable=lambda data, model: MIDDLEWARE[name](
            DropReplies(Simulation(data, model), 0.4), tmp_path
        ),
        dtypes=[torch.float64],
    )
