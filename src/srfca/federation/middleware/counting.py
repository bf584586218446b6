"""What a federation is asked to do, counted: local steps, models that travel, evaluations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.federation.base import (
    Federation,
    Focus,
    Mixture,
    Sample,
    Scores,
    Split,
    Tick,
    Work,
    silent,
)
from srfca.federation.wrapped import Wrapped
from srfca.random import Key, bits

_REMEMBERED = 32
"""Models that a client still has of those it last received or trained."""
_SAMPLED = 4096
"""Coordinates by which models are told apart."""


@dataclass(frozen=True)
class Budget:
    """What something has cost the clients, all of them together."""

    local_steps: int = 0
    """Optimiser steps, or whole gradients, that clients were asked for."""
    models_down: int = 0
    """Models sent to clients; not those that a client has already."""
    models_up: int = 0
    """Models, or gradients, sent by clients."""
    bytes_down: int = 0
    bytes_up: int = 0
    """Of models, gradients and subspaces."""
    evaluations: int = 0
    """How often a model was evaluated on one client's data, or on a sample of them."""

    def __add__(self, other: Budget) -> Budget:
        return Budget(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Budget) -> Budget:
        return Budget(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Counted(Wrapped):
    """A federation that counts what it is asked for.

    Figures that travel beside models (losses, counts) are not counted. A client is not sent a model
    that it has: one of the last 32 that it received or trained.

    >>> from srfca import Simulation, data, models
    >>> fed = Counted(Simulation(data.rotated_digits(clients=4), models.linear(64, 10)))
    >>> w0 = fed.initial(0).unsqueeze(0)
    >>> losses = fed.losses(w0, range(4))
    >>> rows = fed.fit(w0.expand(4, -1), range(4), Work(steps=5), Key(0, "demo"))
    >>> fed.spent
    Budget(local_steps=20, models_down=4, models_up=4, bytes_down=10400, bytes_up=10400, \
evaluations=4)
    """

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self.spent = Budget()
        self._private = False
        count = len(federation.clients)
        self._has = np.zeros((count, _REMEMBERED), dtype=np.int64)
        self._next = np.zeros(count, dtype=np.int64)

    @contextmanager
    def private(self) -> Iterator[None]:
        """What is trained meanwhile stays with the clients."""
        before, self._private = self._private, True
        try:
            yield
        finally:
            self._private = before

    def state(self) -> dict[str, Tensor]:
        """What has been counted, and what the clients have, so that counting can go on later."""
        spent = torch.tensor(astuple(self.spent))
        return {"spent": spent, "has": torch.tensor(self._has), "next": torch.tensor(self._next)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a ``state``."""
        self.spent = Budget(*state["spent"].tolist())
        self._has, self._next = (state[name].numpy().copy() for name in ("has", "next"))

    def fit(
        self,
        starts: Tensor,
        clients: Sequence[int],
        work: Work,
        key: Key,
        tick: Tick = silent,
        anchors: Tensor | None = None,
        focus: Focus | None = None,
    ) -> Tensor:
        """``[c, P]`` each client trains from its row."""
        rows = self.federation.fit(starts, clients, work, key, tick, anchors, focus)
        self.spent += Budget(local_steps=len(clients) * len(work.span(key.round)))
        self._send(starts, clients)
        if anchors is not None:
            self._send(anchors, clients)
        if focus is not None:
            self._evaluate(focus.mixture.models, np.unique(np.asarray(clients, dtype=np.int64)))
        self._receive(rows, clients)
        return rows

    def gradients(self, at: Tensor, clients: Sequence[int]) -> Tensor:
        """``[c, P]`` each client's gradient at its row."""
        rows = self.federation.gradients(at, clients)
        self.spent += Budget(local_steps=len(clients))
        self._send(at, clients)
        self._receive(rows, clients)
        return rows

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Split = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        """``[k, c]`` mean loss of every model on every client's samples, or on some of them."""
        self._evaluate(models, np.asarray(clients, dtype=np.int64))
        return self.federation.losses(models, clients, split, sample)

    def shares(self, models: Tensor | Mixture, clients: Sequence[int]) -> Tensor:
        """``[c, k]`` the share of each client's training samples that each model accounts for."""
        rows = models.models if isinstance(models, Mixture) else models
        self._evaluate(rows, np.asarray(clients, dtype=np.int64))
        return self.federation.shares(models, clients)

    def scores(
        self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
    ) -> Scores:
        """Loss and accuracy of each client's own row, or mixture, on its own data."""
        if isinstance(models, Mixture):
            self._evaluate(models.models, np.asarray(clients, dtype=np.int64))
        else:
            self._send(models, clients)
            self.spent += Budget(evaluations=len(clients))
        return self.federation.scores(models, clients, split)

    def subspaces(self, clients: Sequence[int], rank: int) -> Tensor:
        """``[c, features, rank]`` leading left singular vectors of each client's inputs."""
        bases = self.federation.subspaces(clients, rank)
        self.spent += Budget(bytes_up=bases.numel() * bases.element_size())
        return bases

    def _evaluate(self, models: Tensor, who: NDArray[np.int64]) -> None:
        """Every client evaluates every model: those that it lacks are sent."""
        prints, clients = np.unique(_fingerprints(models)), np.unique(who)
        if len(prints) <= len(clients):
            lacking = np.array([~(self._has[clients] == one).any(1) for one in prints])
            for one, lacks in zip(prints, lacking, strict=True):
                self._remember(clients[lacks], np.full(int(lacks.sum()), one))
        else:
            lacking = np.array([~np.isin(prints, self._has[client]) for client in clients])
            for client, lacks in zip(clients, lacking, strict=True):
                last = prints[lacks][-_REMEMBERED:]
                self._remember(np.full(len(last), client), last)
        sent = int(lacking.sum())
        self.spent += Budget(
            models_down=sent,
            bytes_down=sent * _size(models),
            evaluations=len(models) * len(who),
        )

    def _send(self, rows: Tensor, clients: Sequence[int]) -> None:
        """Each client is sent its row."""
        self._deliver(np.asarray(clients, dtype=np.int64), _fingerprints(rows), _size(rows))

    def _receive(self, rows: Tensor, clients: Sequence[int]) -> None:
        """Each client sends its row, unless it is private, or does not answer."""
        self._remember(np.asarray(clients, dtype=np.int64), _fingerprints(rows))
        if not self._private:
            count = len(rows)
            if self.wire.absences:
                count -= int(rows.isnan().all(1).sum())
            self.spent += Budget(models_up=count, bytes_up=count * _size(rows))

    def _deliver(self, who: NDArray[np.int64], prints: NDArray[np.int64], size: int) -> None:
        """Client ``who[i]`` is sent the model ``prints[i]`` unless it has it."""
        who, prints = np.unique(np.stack([who, prints]), axis=1)
        new = ~(self._has[who] == prints[:, None]).any(1)
        count = int(new.sum())
        self.spent += Budget(models_down=count, bytes_down=count * size)
        self._remember(who[new], prints[new])

    def _remember(self, who: NDArray[np.int64], prints: NDArray[np.int64]) -> None:
        order = np.argsort(who, kind="stable")
        who, prints = who[order], prints[order]
        first = np.searchsorted(who, who)
        place = self._next[who] + np.arange(len(who)) - first
        self._has[who, place % _REMEMBERED] = prints
        np.maximum.at(self._next, who, place + 1)


def _size(rows: Tensor) -> int:
    """Bytes of one row."""
    return rows.shape[1] * rows.element_size()


def _fingerprints(rows: Tensor) -> NDArray[np.int64]:
    """A number for each row ``[c, P]`` that tells it from others, and from 0, no row: ``[c]``."""
    stride = -(-rows.shape[1] // _SAMPLED)
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[rows.element_size()]
    sample = rows.detach()[:, ::stride].contiguous().view(integer).long()
    places = bits(torch.tensor([1], device=rows.device), sample.shape[1])
    mixed = bits(sample + places, 1).squeeze(2)
    return np.asarray(mixed.sum(1).add(1).cpu().numpy())
