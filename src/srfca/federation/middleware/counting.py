"""Counting: what a run costs the clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.federation.algorithms import Descent
from srfca.federation.compression import num_words
from srfca.federation.middleware.base import Middleware
from srfca.federation.mixture import Mixture
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, Replies, T, Traffic
from srfca.federation.requests import (
    BalancedLosses,
    BootstrapLosses,
    DataMoments,
    Gradients,
    Losses,
    LossMoments,
    OutputMoments,
    Outputs,
    Request,
    Round,
    Scores,
    SharedSamples,
    Shares,
    Subspaces,
    Train,
)
from srfca.random import bits

_REMEMBERED = 32
"""Models that a client keeps of those it last received or trained."""
_SAMPLED = 4096
"""Coordinates that a model's fingerprint is computed from."""
_WORD_BYTES = 8
"""Bytes of a word of a compressed update."""

Fingerprints = NDArray[np.int64]


@dataclass(frozen=True)
class Budget:
    """What a run, or a stage of it, costs all clients together.

    Args:
        local_steps: Optimizer steps, or full gradients.
        models_down: Models sent to clients, without those that a client has already.
        models_up: Models, or gradients, sent by clients.
        bytes_down: Bytes of models sent to clients.
        bytes_up: Bytes of models, gradients, subspaces and sums of data sent by clients.
        evaluations: Evaluations of a model on one client's data, or on a sample of it.

    Examples:
        >>> Budget(local_steps=10, models_up=1) + Budget(local_steps=5)
        Budget(local_steps=15, models_down=0, models_up=1, bytes_down=0, bytes_up=0, evaluations=0)
    """

    local_steps: int = 0
    models_down: int = 0
    models_up: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    evaluations: int = 0

    def __add__(self, other: Budget) -> Budget:
        return Budget(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Budget) -> Budget:
        return Budget(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class MissingReply:
    """A client that was asked and did not reply."""

    client: str
    request: str
    reason: str


class Counting(Middleware):
    """Count what requests cost the clients.

    Numbers that travel beside models (losses, counts) are not counted. A client is not sent a model
    that it has: one of the last 32 that it received or trained.

    Attributes:
        spent: The budget so far.
        traffic: What went over a network so far.
        missing: The replies that did not come.

    >>> from srfca import LocalTraining, Simulation, data, models
    >>> from srfca.random import Key
    >>> fed = Counting(Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10)))
    >>> w0 = fed.initial_model(0).unsqueeze(0)
    >>> losses = fed.ask(Losses(range(4), w0))
    >>> rows = fed.ask(Train(range(4), w0.expand(4, -1), LocalTraining(steps=5), Key(0, "demo")))
    >>> fed.spent
    Budget(local_steps=20, models_down=4, models_up=4, bytes_down=10400, bytes_up=10400, \
evaluations=4)
    """

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self.spent = Budget()
        self.traffic = Traffic()
        self.missing: list[MissingReply] = []
        count = len(federation.client_ids)
        self._has = np.zeros((count, _REMEMBERED), dtype=np.int64)
        self._next = np.zeros(count, dtype=np.int64)

    @property
    def answers_rounds(self) -> bool:
        """As the federation inside."""
        return self.federation.answers_rounds

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on, and count it."""
        replies = self.federation.ask(request)
        self._count(request, replies)
        self.note_missing(request, replies)
        return replies

    def note_missing(self, request: Request[T], replies: Replies[T]) -> None:
        """Note traffic and missing replies, also of a request that is not counted.

        Args:
            request: What was asked.
            replies: To this request.
        """
        self.traffic += replies.traffic
        self.missing += [
            MissingReply(self.client_ids[client], request.name, reason)
            for client, reason in replies.missing.items()
        ]

    def state(self) -> dict[str, Tensor]:
        """Return what has been counted, and what the clients have, so that a run can resume."""
        missing = json.dumps([asdict(reply) for reply in self.missing]).encode()
        return {
            "spent": torch.tensor(astuple(self.spent)),
            "has": torch.tensor(self._has),
            "next": torch.tensor(self._next),
            "missing": torch.tensor(list(missing), dtype=torch.uint8),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a ``state``.

        Args:
            state: What ``state`` returned.
        """
        self.spent = Budget(*state["spent"].tolist())
        self._has, self._next = (state[name].numpy().copy() for name in ("has", "next"))
        replies = json.loads(bytes(state["missing"].tolist()))
        self.missing = [MissingReply(**reply) for reply in replies]

    def _count(self, request: Request[T], replies: Replies[T]) -> None:
        match request:
            case Train():
                assert isinstance(replies.values, Tensor)
                self._count_training(request, replies.clients, replies.values)
            case Round():
                assert isinstance(replies.values, Tensor)
                self._count_round(request, replies.clients, replies.values)
            case Gradients():
                assert isinstance(replies.values, Tensor)
                self.spent += Budget(local_steps=len(request.clients))
                self._send(request.models, request.clients)
                self._receive(replies.values, replies.clients)
            case (
                Losses(models=rows)
                | BalancedLosses(models=rows)
                | BootstrapLosses(models=rows)
                | LossMoments(models=rows)
                | OutputMoments(models=rows)
            ):
                self._evaluate(rows, request.clients)
            case Shares(models=models):
                rows = models.models if isinstance(models, Mixture) else models
                self._evaluate(rows, request.clients)
            case Scores(models=Mixture(models=rows)):
                self._evaluate(rows, request.clients)
            case Scores(models=Tensor() as rows, personal=personal):
                if personal is not None:
                    rows = personal.coordinates.complement(rows.shape[1]).take(rows)
                self._send(rows, request.clients)
                self.spent += Budget(evaluations=len(request.clients))
            case Subspaces() | DataMoments() | SharedSamples():
                assert isinstance(replies.values, Tensor)
                self.spent += Budget(bytes_up=replies.values.nbytes)
            case Outputs(models=models, inputs=inputs):
                assert isinstance(replies.values, Tensor)
                self._send(models, request.clients)
                self._send_numbers(
                    inputs.expand(len(request.clients), *inputs.shape), request.clients
                )
                self.spent += Budget(
                    bytes_up=replies.values.nbytes, evaluations=len(request.clients)
                )

    def _count_training(self, request: Train, answered: Clients, rows: Tensor) -> None:
        starts, sent = request.starts, request.sent
        self.spent += Budget(local_steps=len(request.clients) * request.steps)
        self._send(starts if sent is None else sent.take(starts), request.clients)
        for tensor in request.algorithm.tensors().values():
            if tensor.ndim == 2 and tensor.shape[1] == starts.shape[1]:
                self._send(tensor, request.clients)
            else:
                self._send_numbers(tensor, request.clients)
        if isinstance(request.algorithm, Descent) and request.algorithm.posterior is not None:
            mixture = request.algorithm.posterior.mixture
            self._evaluate(mixture.models, np.unique(request.clients))
        if request.compressed and request.local.compress is not None:
            size = _WORD_BYTES * num_words(rows.shape[1], request.local.compress)
            self.spent += Budget(models_up=len(rows), bytes_up=len(rows) * size)
        else:
            self._receive(rows, answered, private=request.private)

    def _count_round(self, request: Round, answered: Clients, models: Tensor) -> None:
        """Count a round that the federation answered itself: clients' rows are not seen here.

        Of these, only those are known that alone make a new model.
        """
        steps = 1 if request.server_lr is not None else len(request.local.span(request.key.round))
        starts = request.models[torch.as_tensor(request.labels, device=request.models.device)]
        self.spent += Budget(local_steps=steps * len(request.clients))
        self._send(starts, request.clients)
        count, size = len(answered), _row_bytes(models)
        if request.local.compress is not None and request.server_lr is None:
            size = _WORD_BYTES * num_words(models.shape[1], request.local.compress)
        self.spent += Budget(models_up=count, bytes_up=count * size)
        if request.shared is None and request.local.compress is None:
            labels = request.labels[np.isin(request.clients, answered)]
            alone = np.bincount(labels, minlength=len(models))[labels] == 1
            self._remember(answered[alone], _fingerprints(models)[labels[alone]])

    def _evaluate(self, models: Tensor, clients: Clients) -> None:
        """Let every client evaluate every model; models that a client lacks are sent."""
        prints, distinct = np.unique(_fingerprints(models)), np.unique(clients)
        if len(prints) <= len(distinct):
            lacking = np.array([~(self._has[distinct] == one).any(1) for one in prints])
            for one, lacks in zip(prints, lacking, strict=True):
                self._remember(distinct[lacks], np.full(int(lacks.sum()), one))
        else:
            lacking = np.array([~np.isin(prints, self._has[client]) for client in distinct])
            for client, lacks in zip(distinct, lacking, strict=True):
                last = prints[lacks][-_REMEMBERED:]
                self._remember(np.full(len(last), client), last)
        sent = int(lacking.sum())
        self.spent += Budget(
            models_down=sent,
            bytes_down=sent * _row_bytes(models),
            evaluations=len(models) * len(clients),
        )

    def _send(self, rows: Tensor, clients: Clients) -> None:
        """Send each client its model, unless the client has it."""
        count = self._send_new(_fingerprints(rows), clients)
        self.spent += Budget(models_down=count, bytes_down=count * _row_bytes(rows))

    def _send_numbers(self, tensors: Tensor, clients: Clients) -> None:
        """Send each client a tensor ``[c, ...]`` that is no model, unless the client has it."""
        are_equal = len(tensors) > 1 and tensors.stride(0) == 0
        rows = tensors[:1] if are_equal else tensors
        rows = rows.reshape(len(rows), -1).expand(len(tensors), -1)
        prints = _fingerprints(rows) ^ (2 * rows.shape[1])  # zeros of another length differ
        count = self._send_new(prints, clients)
        self.spent += Budget(bytes_down=count * _row_bytes(rows))

    def _send_new(self, fingerprints: Fingerprints, clients: Clients) -> int:
        """Note that each client has what it is sent, and return how many did not have it."""
        pairs = np.stack([clients, fingerprints])
        receivers, prints = np.unique(pairs, axis=1)
        new = ~(self._has[receivers] == prints[:, None]).any(1)
        self._remember(receivers[new], prints[new])
        return int(new.sum())

    def _receive(self, rows: Tensor, clients: Clients, private: bool = False) -> None:
        """Receive a row from each client; private rows are not counted."""
        self._remember(clients, _fingerprints(rows))
        if not private:
            count = len(rows)
            self.spent += Budget(models_up=count, bytes_up=count * _row_bytes(rows))

    def _remember(self, clients: Clients, prints: Fingerprints) -> None:
        order = np.argsort(clients, kind="stable")
        clients, prints = clients[order], prints[order]
        first = np.searchsorted(clients, clients)
        place = self._next[clients] + np.arange(len(clients)) - first
        self._has[clients, place % _REMEMBERED] = prints
        np.maximum.at(self._next, clients, place + 1)


def _row_bytes(rows: Tensor) -> int:
    return rows.shape[1] * rows.element_size()


def _fingerprints(rows: Tensor) -> Fingerprints:
    """Return a number for each row ``[c, P]`` that identifies it, and is never 0: ``[c]``.

    It is a sum of the row's 32-bit words (16-bit for half precision) times random 64-bit numbers.
    """
    if rows.shape[1] == 0:
        return np.ones(len(rows), dtype=np.int64)
    stride = -(-rows.shape[1] // _SAMPLED)
    integer = torch.int16 if rows.element_size() == 2 else torch.int32
    words = rows.detach()[:, ::stride].contiguous().view(integer)
    numbers = (words * _multipliers(words.shape[1], rows.device)).sum(1).cpu().numpy()
    return np.where(numbers == 0, 1, numbers)


@cache
def _multipliers(count: int, device: torch.device) -> Tensor:
    """Return random 64-bit numbers ``[count]``."""
    return bits(torch.tensor([1], device=device), count)[0]
