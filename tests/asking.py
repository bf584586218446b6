"""Short forms of requests, for tests: each returns the values of the replies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from srfca.federation import (
    BalancedLosses,
    ClassCounts,
    ClientScores,
    Gradients,
    LocalTraining,
    Losses,
    LossMoments,
    Mixture,
    OutputMoments,
    Replies,
    Request,
    Scores,
    Shares,
    Split,
    Subsample,
    Subspaces,
    Train,
)
from srfca.federation.replies import Clients
from srfca.random import Key


class Asks(Protocol):
    """What answers requests."""

    def ask(self, request: Request[Any]) -> Replies[Any]: ...


def positions(clients: Iterable[int]) -> Clients:
    return np.array(list(clients), dtype=np.int64)


def train(
    federation: Asks,
    clients: Iterable[int],
    starts: Tensor,
    local: LocalTraining,
    key: Key,
    *args: Any,
    **options: Any,
) -> Tensor:
    """``[c, P]``"""
    request = Train(positions(clients), starts, local, key, *args, **options)
    return tensor(federation.ask(request))


def gradients(federation: Asks, clients: Iterable[int], models: Tensor) -> Tensor:
    """``[c, P]``"""
    return tensor(federation.ask(Gradients(positions(clients), models)))


def losses(
    federation: Asks,
    clients: Iterable[int],
    models: Tensor,
    split: Split = "train",
    subsample: Subsample | None = None,
) -> Tensor:
    """``[c, k]``"""
    return tensor(federation.ask(Losses(positions(clients), models, split, subsample)))


def class_counts(federation: Asks, clients: Iterable[int], presence: bool = False) -> Tensor:
    """``[c, C]``"""
    return tensor(federation.ask(ClassCounts(positions(clients), presence)))


def balanced_losses(
    federation: Asks,
    clients: Iterable[int],
    models: Tensor,
    class_shares: Tensor,
    subsample: Subsample | None = None,
) -> Tensor:
    """``[c, k]``"""
    request = BalancedLosses(positions(clients), models, class_shares, subsample)
    return tensor(federation.ask(request))


def loss_moments(
    federation: Asks,
    clients: Iterable[int],
    models: Tensor,
    scales: Tensor,
    splits: tuple[Split, ...] = ("train",),
) -> Tensor:
    """``[c, k, 3 + 2 g]``"""
    return tensor(federation.ask(LossMoments(positions(clients), models, scales, splits)))


def output_moments(
    federation: Asks,
    clients: Iterable[int],
    models: Tensor,
    splits: tuple[Split, ...] = ("train",),
) -> Tensor:
    """``[c, k, d + 2 d d]``"""
    return tensor(federation.ask(OutputMoments(positions(clients), models, splits)))


def shares(federation: Asks, clients: Iterable[int], models: Tensor | Mixture) -> Tensor:
    """``[c, k]``"""
    return tensor(federation.ask(Shares(positions(clients), models)))


def scores(
    federation: Asks, clients: Iterable[int], models: Tensor | Mixture, split: Split = "test"
) -> ClientScores:
    values = federation.ask(Scores(positions(clients), models, split)).values
    assert isinstance(values, ClientScores)
    return values


def subspaces(federation: Asks, clients: Iterable[int], rank: int) -> Tensor:
    """``[c, features, rank]``"""
    return tensor(federation.ask(Subspaces(positions(clients), rank)))


def tensor(replies: Replies[Any]) -> Tensor:
    assert isinstance(replies.values, Tensor)
    return replies.values
