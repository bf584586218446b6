"""Validation: impossible replies of single clients are refused, and sizes are capped.

A refused reply is a missing one, with a reason, so that no method and no journal ever sees it. What
most clients of a request do is not refused: that is no bad client, but a diverged training, or a
loss that may be negative, and is an error elsewhere.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from srfca.errors import InputError, SrfcaWarning, require
from srfca.federation.middleware.base import Middleware
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, ClientScores, Replies, T
from srfca.federation.requests import (
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    Gradients,
    Losses,
    LossMoments,
    Request,
    Round,
    Scores,
    Shares,
    Train,
)

MAX_SIZE = 4
"""A client's number of samples counts as at most this many times the median."""
_ROUNDING = 1e-6
"""Fractions may exceed 1 by this much."""
_FEW = 3
"""From this many replies on, what most of them tell is not the fault of single clients."""


class Validating(Middleware):
    """Refuse impossible replies of single clients, and cap the clients' sizes.

    Refused are models and gradients that are infinite or NaN, negative losses and counts, and
    fractions that are not between 0 and 1. A loss may be infinite or NaN, if a model is that bad.
    A warning names each client when it is refused first.

    Args:
        federation: Where requests are passed on to. Its losses may be negative if it has an
            attribute ``negative_losses`` that is true.

    Raises:
        InputError: In ``ask``, if the losses of most clients are negative, or the federation's
            reply is not of the shape that is due.

    Examples:
        >>> from srfca import SrfcaWarning, Simulation, data, models
        >>> from srfca.federation import Gradients
        >>> from srfca.federation.middleware.attacks import Attacked, NotFinite
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> fed = Validating(Attacked(fed, NotFinite(), [3]))
        >>> request = Gradients(range(4), fed.initial_model(0).repeat(4, 1))
        >>> with warnings.catch_warnings(action="ignore"):
        ...     fed.ask(request).clients.tolist()
        [0, 1, 2]
    """

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self._warned: set[int] = set()

    @property
    def answers_rounds(self) -> bool:
        """As the federation inside; clients' rows are not seen here then."""
        return self.federation.answers_rounds

    @property
    def sizes(self) -> Tensor:
        """``[m]`` number of training samples of each client, at most four times the median.

        A client says itself how many samples it has, and weighs in means by what it says.
        """
        return capped_sizes(self.federation.sizes)

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on, and refuse impossible replies."""
        if isinstance(request, Round):
            return self._ask_round(request)
        replies = self.federation.ask(request)
        _check_shape(request, replies)
        clients = replies.clients
        for reason, bad in self._problems(request, clients, replies.values):
            named = clients[: len(bad)][bad.cpu().numpy()]
            replies = self._refuse(replies, named[np.isin(named, replies.clients)], reason)
        return replies

    def _ask_round(self, request: Round) -> Replies[Tensor]:
        """Pass on a round that the federation answers itself, with the sizes that count here."""
        if request.sizes is None:
            clients = torch.as_tensor(request.clients, device=self.sizes.device)
            request = replace(request, sizes=self.sizes[clients])
        replies = self.federation.ask(request)
        for client, reason in replies.missing.items():
            if reason.startswith(REFUSED):
                self._warn(client, reason.removeprefix(REFUSED))
        return replies

    def _problems(
        self, request: Request[T], clients: Clients, values: Tensor | ClientScores
    ) -> list[tuple[str, Tensor]]:
        """Return what may be wrong with the replies, and which entries have it: ``[c]``."""
        if isinstance(values, ClientScores):
            problems = [(_NEGATIVE, self._are_negative(values.loss.unsqueeze(1)))]
            if values.accuracy is not None:
                problems.append((_NO_FRACTION, _no_fraction(values.accuracy.unsqueeze(1))))
            return problems
        match request:
            case Train() | Gradients():
                return [(NOT_FINITE, ~_largest(values).isfinite())]
            case Losses():
                return [(_NEGATIVE, self._are_negative(values))]
            case BalancedLosses():
                return [("a negative loss or count", (values < 0).any(1))]
            case ClassCounts():
                return [
                    ("a negative loss or count", (values < 0).any(1)),
                    (_TOO_MANY, self._are_too_many(request, clients, values)),
                ]
            case LossMoments() | BootstrapLosses():
                return [(_NEGATIVE, self._are_negative(values[..., 0]))]
            case Shares():
                return [(_NO_FRACTION, _no_fraction(values.flatten(1)))]
        return []

    def _are_too_many(self, request: ClassCounts, clients: Clients, counts: Tensor) -> Tensor:
        """Return which entries count more samples than the client has: ``[c]``."""
        if request.presence:
            return ~(counts <= 1).all(1)
        sizes = self.federation.sizes.double().cpu()[torch.as_tensor(clients)]
        return ~(counts.double().sum(1).cpu() <= sizes)

    def _are_negative(self, losses: Tensor) -> Tensor:
        """Return which entries have a negative loss, among losses ``[c, k]``: ``[c]``."""
        if getattr(self.federation, "negative_losses", False):
            return losses.new_zeros(len(losses), dtype=torch.bool)
        return (losses < 0).any(1)

    def _refuse(self, replies: Replies[T], clients: Clients, reason: str) -> Replies[T]:
        """Return the replies without those of clients with a bad entry."""
        if not len(clients):
            return replies
        refused, replied = dict.fromkeys(clients.tolist()), len(set(replies.clients.tolist()))
        if reason == NOT_FINITE and not refuses_not_finite(len(refused), replied):
            return replies
        if 2 * len(refused) > replied >= _FEW:
            if reason == _NEGATIVE:
                raise InputError(
                    f"losses must not be negative, but those of {len(refused)} of {replied} "
                    "clients are: add a constant to the loss, or say that they may be, as in "
                    "Simulation(..., negative_losses=True)"
                )
            return replies
        for client in refused:
            self._warn(client, reason)
        return replies.without(refused, f"{REFUSED}{reason}")

    def _warn(self, client: int, reason: str) -> None:
        """Warn of a client that is refused, the first time."""
        if client not in self._warned:
            self._warned.add(client)
            warnings.warn(
                f"refused a reply of client {self.client_ids[client]!r}: {reason}",
                SrfcaWarning,
                stacklevel=5,
            )


def refuses_not_finite(count: int, replied: int) -> bool:
    """Return whether so few clients' models are not finite that these clients are refused.

    Otherwise the training has diverged.

    Args:
        count: Clients whose model or gradient is infinite or NaN.
        replied: All clients that replied.
    """
    return 2 * count < replied


REFUSED = "refused: "
"""What the reason of a missing reply starts with if it came, and was refused."""
NOT_FINITE = (
    "a model or gradient that is infinite or NaN (if training has diverged, lower lr, or set clip)"
)
_NEGATIVE = "a negative loss"
_TOO_MANY = "class counts of more samples than the client has"
_NO_FRACTION = "a fraction that is not between 0 and 1"


def capped_sizes(sizes: Tensor) -> Tensor:
    """Return numbers of samples ``[m]``, at most four times the median, and at least 0.

    >>> capped_sizes(torch.tensor([5, 6, 7, 2**62])).tolist()
    [5, 6, 7, 24]
    """
    if not len(sizes):
        return sizes
    return sizes.clamp(min=0).minimum(MAX_SIZE * sizes.clamp(min=0).median().clamp(min=1))


def _check_shape(request: Request[T], replies: Replies[T]) -> None:
    """Raise an error unless there is a value of the right shape for each entry."""
    count, values = len(replies.clients), replies.values
    match request:
        case Train(starts=starts):
            width = starts.shape[1] if request.sent is None else len(request.sent)
            expected: tuple[int, ...] = (count, width)
        case Gradients(models=models):
            expected = (count, models.shape[1])
        case Losses(models=models) | BalancedLosses(models=models):
            expected = (count, len(models))
        case Scores():
            expected = (count,)
        case _:
            return
    shape = tuple(values.loss.shape if isinstance(values, ClientScores) else values.shape)
    require(
        shape == expected,
        f"the federation replied to {request.name!r} with values of shape {shape}, "
        f"but {expected} is due",
    )


def _largest(rows: Tensor) -> Tensor:
    """Return the largest absolute value of each row ``[c, P]``, NaN if there is one: ``[c]``."""
    if not rows.shape[1]:
        return rows.new_zeros(len(rows))
    largest: Tensor = torch.linalg.vector_norm(rows, ord=torch.inf, dim=1)
    return largest


def _no_fraction(values: Tensor) -> Tensor:
    """Return which rows have a value that is not a fraction; NaN is an unknown one: ``[c]``."""
    return ((values < 0) | (values > 1 + _ROUNDING)).any(1)
