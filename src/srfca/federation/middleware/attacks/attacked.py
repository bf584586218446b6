"""The middleware that puts an attack around a federation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import require
from srfca.federation.middleware.attacks.base import Attack, Updates
from srfca.federation.middleware.base import Middleware
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, ClientScores, Replies, T, as_clients
from srfca.federation.requests import (
    BalancedLosses,
    BootstrapLosses,
    Gradients,
    Losses,
    LossMoments,
    Request,
    Split,
    Train,
)
from srfca.random import Key, client_words, streams


class Attacked(Middleware):
    """A federation some of whose clients are corrupt.

    Args:
        federation: Where requests are passed on to. For an attack on data it holds poisoned data
            already (``srfca.data.flip_labels``).
        attack: What the attackers do.
        attackers: ``[a]`` their positions.
        seed: Decides every draw, with the client and the request.
        groups: ``[m]`` the groups that attackers know of: they look at honest clients of their
            own group. None is one group of all clients.

    Raises:
        InputError: If an attacker does not exist, or groups are not one for each client.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.federation.middleware.attacks import SignFlip
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> attacked = Attacked(fed, SignFlip(), [3])
        >>> w0 = fed.initial_model(0).expand(4, -1)
        >>> request = Train(range(4), w0, LocalTraining(steps=2, lr=0.1), Key(0, "example"))
        >>> honest, sent = fed.ask(request).values - w0, attacked.ask(request).values - w0
        >>> bool((sent[:3] == honest[:3]).all()), bool((sent[3] + honest[3]).abs().max() < 1e-6)
        (True, True)
    """

    def __init__(
        self,
        federation: Federation,
        attack: Attack,
        attackers: Clients | list[int],
        seed: int = 0,
        groups: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(federation)
        count = len(federation.client_ids)
        self.attack, self.attackers = attack, as_clients(attackers)
        require(
            all(0 <= client < count for client in self.attackers.tolist()),
            f"attackers must be positions from 0 to {count - 1}, not {self.attackers.tolist()}",
        )
        groups = np.zeros(count, dtype=np.int64) if groups is None else np.asarray(groups)
        require(
            groups.shape == (count,),
            f"groups must be one number for each of {count} clients, not of shape {groups.shape}",
        )
        self._seed, self._requests = seed, 0
        self._groups = np.unique(groups, return_inverse=True)[1]

    @property
    def sizes(self) -> Tensor:
        """``[m]`` number of training samples that each client reports."""
        sizes = self.federation.sizes
        index = torch.as_tensor(self.attackers, device=sizes.device)
        return sizes.index_copy(0, index, self.attack.sizes(sizes[index]))

    def fingerprint(self) -> str:
        """Return a digest of what the clients hold, with the attack."""
        digest = self.federation.fingerprint()
        return digest and f"{digest} {self.attack} {self.attackers.tolist()} {self._seed}"

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on, and change the attackers' replies."""
        replies = self.federation.ask(request)
        corrupt = np.flatnonzero(np.isin(replies.clients, self.attackers))
        self._requests += 1
        if not len(corrupt):
            return replies
        values = replies.values
        is_report = not isinstance(request, Train | Gradients)
        if is_report and not self.attack.lies_about(_splits(request)):
            return replies
        if isinstance(values, ClientScores):
            lies = self.attack.scores(values[torch.as_tensor(corrupt)])
            return replace(replies, values=_put_scores(values, corrupt, lies))
        match request:
            case Train() | Gradients():
                rows = self._rows(request, replies, corrupt)
            case Losses() | BalancedLosses():
                rows = self.attack.losses(values[torch.as_tensor(corrupt)])
            case LossMoments() | BootstrapLosses():
                rows = values[torch.as_tensor(corrupt)].clone()
                rows[..., 0] = self.attack.losses(rows[..., 0])
            case _:
                return replies
        index = torch.as_tensor(corrupt, device=values.device)
        return replace(replies, values=values.index_copy(0, index, rows.to(values)))

    def _rows(
        self, request: Train | Gradients, replies: Replies[Tensor], corrupt: Clients
    ) -> Tensor:
        """Return what attackers send instead of the rows of some entries ``[a]``: ``[a, P]``."""
        rows, clients = replies.values, replies.clients
        useless = self.initial_model(self._seed + 1)
        key = Key(self._seed, "attack", self._requests)
        starts = torch.zeros_like(rows)
        if isinstance(request, Train):
            key = Key(self._seed, f"attack {request.key.purpose}", request.key.round)
            sent = request.starts[torch.as_tensor(replies.answered)].to(rows)
            starts = sent if request.sent is None else request.sent.take(sent)
            if request.sent is not None:
                useless = request.sent.take(useless.unsqueeze(0))[0]
        changes, groups = rows - starts, self._groups[clients]
        honest = ~np.isin(clients, self.attackers)
        index = torch.as_tensor(corrupt, device=rows.device)
        updates = Updates(
            starts=starts[index],
            changes=changes[index],
            groups=torch.as_tensor(groups[corrupt], device=rows.device),
            peers=[
                changes[torch.as_tensor(honest & (groups == group), device=rows.device)]
                for group in range(self._groups.max() + 1)
            ],
            streams=streams(
                key, client_words([f"{self.client_ids[clients[i]]}/{i}" for i in corrupt])
            ),
            useless=useless.to(rows),
        )
        return updates.starts + self.attack.changes(updates)


def _splits(request: Request[Any]) -> tuple[Split, ...]:
    """Return the data that a request for losses or scores is about."""
    split: Split = getattr(request, "split", "train")
    splits: tuple[Split, ...] = getattr(request, "splits", (split,))
    return splits


def _put_scores(scores: ClientScores, entries: Clients, lies: ClientScores) -> ClientScores:
    """Return scores ``[c]`` with those of some entries replaced."""

    def put(values: Tensor, new: Tensor) -> Tensor:
        return values.index_copy(0, torch.as_tensor(entries, device=values.device), new.to(values))

    accuracy = None
    if scores.accuracy is not None and lies.accuracy is not None:
        accuracy = put(scores.accuracy, lies.accuracy)
    return ClientScores(
        put(scores.loss, lies.loss), accuracy, put(scores.num_samples, lies.num_samples)
    )
