"""Replies: the answers that came, the clients that gave them, and why others did not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import require

Clients = NDArray[np.int64]
"""Positions of clients in ``Federation.client_ids``, ``[c]``."""


@dataclass(frozen=True, eq=False)
class ClientScores:
    """How each client's model does on the client's data.

    Args:
        loss: ``[c]``
        accuracy: ``[c]``, a fraction; None if the targets are not classes.
        num_samples: ``[c]``

    Examples:
        >>> scores = ClientScores(torch.tensor([0.5]), torch.tensor([0.9]), torch.tensor([10]))
        >>> scores.spread(np.array([1]), num_clients=3).accuracy
        tensor([   nan, 0.9000,    nan])
    """

    loss: Tensor
    accuracy: Tensor | None
    num_samples: Tensor

    def __len__(self) -> int:
        return len(self.loss)

    def __getitem__(self, index: Tensor) -> ClientScores:
        """Return the scores of some of the clients."""
        accuracy = None if self.accuracy is None else self.accuracy[index]
        return ClientScores(self.loss[index], accuracy, self.num_samples[index])

    def spread(self, clients: Clients, num_clients: int) -> ClientScores:
        """Return scores of all clients, NaN for those that are not among ``clients`` ``[c]``.

        Args:
            clients: ``[c]``
            num_clients: m

        Returns:
            Scores ``[m]``.
        """
        return _spread_scores(self, torch.as_tensor(clients), num_clients, torch.nan)

    def where(self, mask: Tensor, other: ClientScores) -> ClientScores:
        """Return these scores where the mask ``[c]`` is true, else the other ones.

        Args:
            mask: ``[c]``, boolean.
            other: ``[c]``

        Returns:
            Scores ``[c]``, with the numbers of samples of these ones.
        """
        accuracy = None
        if self.accuracy is not None and other.accuracy is not None:
            accuracy = torch.where(mask, self.accuracy, other.accuracy)
        return ClientScores(torch.where(mask, self.loss, other.loss), accuracy, self.num_samples)


@dataclass(frozen=True)
class Traffic:
    """What went over a network between the server and its clients.

    Args:
        messages: Messages to clients.
        bytes_down: Bytes to clients.
        bytes_up: Bytes from clients.

    Examples:
        >>> Traffic(messages=2, bytes_down=100) + Traffic(messages=1, bytes_up=8)
        Traffic(messages=3, bytes_down=100, bytes_up=8)
    """

    messages: int = 0
    bytes_down: int = 0
    bytes_up: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.messages + other.messages,
            self.bytes_down + other.bytes_down,
            self.bytes_up + other.bytes_up,
        )

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.messages - other.messages,
            self.bytes_down - other.bytes_down,
            self.bytes_up - other.bytes_up,
        )


T = TypeVar("T", Tensor, ClientScores)


@dataclass(frozen=True, eq=False)
class Replies(Generic[T]):
    """The replies to one request.

    The first dimension of ``values`` is that of ``clients``: those that replied, in the order of
    the request. (A ``Round`` is the exception: its value is one model for each cluster.)

    Args:
        requested: The clients that were asked, ``[c]``; one may be asked for several entries.
        values: The answers of those that replied.
        missing: The reason for each client that did not reply.
        traffic: What went over a network, if anything did.

    >>> replies = Replies(np.array([4, 7]), torch.tensor([[1.0], [2.0]]))
    >>> late = replies.without([4], "late")
    >>> late.clients.tolist(), late.values.tolist(), late.missing
    ([7], [[2.0]], {4: 'late'})
    >>> late.fill(torch.zeros(2, 1)).tolist()
    [[0.0], [2.0]]
    """

    requested: Clients
    values: T
    missing: Mapping[int, str] = field(default_factory=dict)
    traffic: Traffic = Traffic()

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which of the requested entries were answered: ``[c]``."""
        if not self.missing:
            return np.ones(len(self.requested), dtype=bool)
        return ~np.isin(self.requested, list(self.missing))

    @property
    def clients(self) -> Clients:
        """The clients that replied, in the order of the request."""
        return self.requested[self.answered] if self.missing else self.requested

    @overload
    def fill(self: Replies[Tensor], default: Tensor) -> Tensor: ...
    @overload
    def fill(self: Replies[ClientScores], default: float) -> ClientScores: ...
    def fill(self, default: Tensor | float) -> Tensor | ClientScores:
        """Return a value for every requested entry.

        Args:
            default: What a missing reply is replaced by: ``[c, ...]``, or a number for scores.

        Returns:
            ``[c, ...]``, or scores ``[c]``.
        """
        if not self.missing:
            return self.values
        answered = torch.as_tensor(self.answered)
        if isinstance(self.values, ClientScores):
            assert not isinstance(default, Tensor)
            positions = answered.nonzero().squeeze(1)
            return _spread_scores(self.values, positions, len(answered), default)
        assert isinstance(default, Tensor)
        filled = default.to(self.values).clone()
        filled[answered.to(filled.device)] = self.values
        return filled

    def without(self, clients: Iterable[int], reason: str) -> Replies[T]:
        """Return the same replies without those of some clients; others are ignored.

        Args:
            clients: Positions of clients.
            reason: Why their replies are missing.
        """
        replied = set(self.clients.tolist())
        lost = {int(client): reason for client in clients if int(client) in replied}
        if not lost:
            return self
        keep = torch.as_tensor(~np.isin(self.clients, list(lost)))
        if isinstance(self.values, Tensor):
            keep = keep.to(self.values.device)
        return replace(self, values=self.values[keep], missing={**self.missing, **lost})


def as_clients(clients: Iterable[int]) -> Clients:
    """Return positions of clients as an integer array."""
    array = np.asarray(
        clients if isinstance(clients, np.ndarray | range) else list(clients), dtype=np.int64
    )
    require(array.ndim == 1, f"clients must be a list of positions, not of shape {array.shape}")
    return array


def _spread_scores(
    scores: ClientScores, positions: Tensor, count: int, default: float
) -> ClientScores:
    def spread(values: Tensor, fill: float) -> Tensor:
        filled = values.new_full((count,), fill)
        filled[positions] = values
        return filled

    accuracy = None if scores.accuracy is None else spread(scores.accuracy, default)
    return ClientScores(spread(scores.loss, default), accuracy, spread(scores.num_samples, 0))
