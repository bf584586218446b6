"""What the tests of methods share: small federations, requests in one line, middleware."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca import ClientData, LocalTraining, Simulation, data, progress
from srfca.federation import (
    ClientScores,
    Descent,
    Federation,
    Losses,
    Middleware,
    Replies,
    Request,
    Scores,
    Split,
    Train,
)
from srfca.federation.replies import T
from srfca.methods import Monitor
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples

LOCAL = LocalTraining(steps=30, local_steps=3, batch_size=10, lr=0.05)
DIGITS = LocalTraining(steps=100, local_steps=5, batch_size=10, lr=0.5)

Array = NDArray[np.float64]
Arrays = list[tuple[Array, Array]]
"""Inputs and targets of each client."""


def train(
    federation: Federation,
    starts: Tensor,
    clients: Sequence[int],
    local: LocalTraining,
    key: Key,
    anchors: Tensor | None = None,
) -> Tensor:
    """Train clients and return their rows: ``[c, P]``."""
    request = Train(np.asarray(clients), starts, local, key, Descent(anchors=anchors))
    return federation.ask(request).values


def losses(
    federation: Federation,
    models: Tensor,
    clients: Sequence[int] | None = None,
    split: Split = "train",
) -> Tensor:
    """Return the loss of each model on each client's data: ``[c, k]``."""
    chosen = range(len(federation.client_ids)) if clients is None else clients
    return federation.ask(Losses(np.asarray(chosen), models, split)).values


def scores(federation: Federation, models: Tensor, split: Split = "test") -> ClientScores:
    """Return the scores of all clients' models ``[m, P]``."""
    return federation.ask(Scores(np.arange(len(federation.client_ids)), models, split)).values


def regressions(num_clients: int = 12, clusters: int = 3, **options: Any) -> Simulation:
    """Return linear regressions in double precision, of 20 to 22 samples each."""
    made = examples.regression([20 + i % 3 for i in range(num_clients)], clusters=clusters)
    return Simulation(made, examples.doubled(linear(4)), **options)


def digits(seed: int = 0, num_clients: int = 24, rotations: int = 4, **options: Any) -> Simulation:
    """Return rotated digits with a small network."""
    made = data.rotated_digits(num_clients=num_clients, rotations=rotations, seed=seed)
    return Simulation(made, mlp(64, 32, 10), seed=seed, **options)


def arrays(made: ClientData) -> Arrays:
    """Return each client's inputs with a 1 for the intercept, and its targets."""
    pairs = (made.train.of(client) for client in range(len(made.client_ids)))
    return [(np.c_[x.double().numpy(), np.ones(len(x))], y.double().numpy()) for x, y in pairs]


def training_losses(clients: Arrays, models: Array) -> Array:
    """Return squared errors of linear models ``[k, d]`` on each client's data: ``[k, m]``."""
    return np.array([[((x @ w - y) ** 2).mean() for x, y in clients] for w in models])


def descend(w: Array, x: Array, y: Array, steps: int, lr: float) -> Array:
    """Return a linear model after full-batch steps on the mean squared error."""
    for _ in range(steps):
        w = w - lr * 2 * x.T @ (x @ w - y) / len(y)
    return w


def ifca_by_hand(
    clients: Arrays,
    models: Array,
    rounds: int,
    local_steps: int,
    lr: float,
    rounds_between: int = 1,
) -> tuple[Array, list[int]]:
    """Run IFCA on linear regressions with full batches, as a plain loop."""
    for number in range(rounds):
        if number % rounds_between == 0:
            labels = training_losses(clients, models).argmin(0)
        sums, weights = np.zeros_like(models), np.zeros(len(models))
        for (x, y), label in zip(clients, labels, strict=True):
            sums[label] += len(y) * descend(models[label], x, y, local_steps, lr)
            weights[label] += len(y)
        models = np.array(
            [
                total / weight if weight else model  # a cluster without clients keeps its model
                for total, weight, model in zip(sums, weights, models, strict=True)
            ]
        )
    return models, training_losses(clients, models).argmin(0).tolist()


class DropByNumber(Middleware):
    """Lose the replies of some clients to some requests, by the number of the request.

    Args:
        federation: Where requests are passed on to.
        drops: The clients that do not reply, by the number of the request, from 0.
    """

    def __init__(
        self, federation: Federation, drops: Mapping[int, Collection[int]] | None = None
    ) -> None:
        super().__init__(federation)
        self.drops = drops or {}
        self.requests: list[Request[Any]] = []
        self.lost: set[int] = set()

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on, and drop some of the replies."""
        replies = self.federation.ask(request)
        lost = set(self.drops.get(len(self.requests), ())) & set(replies.clients.tolist())
        self.requests.append(request)
        self.lost |= lost
        return replies.without(sorted(lost), "dropped")


class NoTestData(Middleware):
    """Refuse requests for test data, and record all others."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self.requests: list[Request[Any]] = []

    def ask(self, request: Request[T]) -> Replies[T]:
        """Record a request and pass it on."""
        assert getattr(request, "split", "train") != "test"
        self.requests.append(request)
        return self.federation.ask(request)

    @property
    def trainings(self) -> list[Train]:
        """The requests to train."""
        return [request for request in self.requests if isinstance(request, Train)]


class ScriptedLosses(Middleware):
    """Reply to every request for losses from a table.

    Args:
        federation: Where other requests are passed on to.
        table: ``[m, k]``
    """

    def __init__(self, federation: Federation, table: Tensor) -> None:
        super().__init__(federation)
        self.table = table

    def ask(self, request: Request[T]) -> Replies[T]:
        """Answer a request for losses, and pass all others on."""
        if isinstance(request, Losses):
            return Replies(request.clients, self.table[torch.as_tensor(request.clients)])
        return self.federation.ask(request)


class StageSteps(Monitor):
    """A monitor that adds up the steps of each stage: announced, and reported as done."""

    def __init__(self) -> None:
        self.stages: dict[str, tuple[int, int]] = {}

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[progress.Callback]:
        """Follow one stage."""
        done: list[int] = []
        yield done.append
        self.stages[name] = (steps, sum(done))
