"""Clients that bound what they reveal: clipping, and noise on updates and losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from srfca.errors import InputError, require, require_seed
from srfca.federation.middleware.base import Middleware
from srfca.federation.middleware.journal import digest_of
from srfca.federation.privacy import (
    NOT_ANSWERED,
    NOT_COMPRESSED,
    STATISTICS,
    UPDATES,
    Privacy,
    noise_source,
)
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, ClientScores, Replies, T
from srfca.federation.requests import ClassCounts, Gradients, Losses, Request, Train


class Private(Middleware):
    """Answer as clients do that clip what they send and add noise to it (docs/privacy.md).

    Updates and gradients are shortened to ``clip_update``; losses, accuracies and shares are
    bounded. Requests whose replies have no bound are not answered. The noise is drawn by the seed,
    the purpose, the client, the round, and everything that is asked. Real clients do this
    themselves (``srfca.flower.client_app``).

    Args:
        federation: Where requests are passed on to.
        privacy: How much the clients reveal.
        seed: Decides the noise; a client's secret if it is a text.

    Raises:
        InputError: If the seed is invalid.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.random import Key
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> private = Private(fed, Privacy(clip_update=0.5, update_noise=0.0))
        >>> w0 = fed.initial_model(0).expand(4, -1)
        >>> request = Train(range(4), w0, LocalTraining(steps=20, lr=0.5), Key(0, "example"))
        >>> bool(((private.ask(request).values - w0).norm(dim=1) < 0.5001).all())
        True
    """

    def __init__(self, federation: Federation, privacy: Privacy, seed: int | str = 0) -> None:
        if not isinstance(seed, str):
            require_seed(seed)
        super().__init__(federation)
        self._privacy, self._seed = privacy, seed

    @property
    def privacy(self) -> Privacy:
        """How much the clients reveal."""
        return self._privacy

    def fingerprint(self) -> str:
        """Return a digest of what the clients hold, with their privacy."""
        digest = self.federation.fingerprint()
        return digest and f"{digest} {self._privacy} {self._seed}"

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on, and bound what clients reply.

        Raises:
            InputError: If clients are asked for their classes.
        """
        if not isinstance(request, UPDATES + STATISTICS):
            return not_answered(self.federation, request)
        replies = self.federation.ask(request)
        values = replies.values
        if isinstance(values, ClientScores):
            return replace(replies, values=self._scores(request, replies, values))
        require(
            not (isinstance(request, Train) and request.compressed),
            NOT_COMPRESSED,
        )
        if isinstance(request, Train | Gradients):
            return replace(replies, values=self._updates(request, replies, values))
        scale = self._privacy.clip_loss if isinstance(request, Losses) else 1.0
        fractions = self._privacy.as_fractions(values) if isinstance(request, Losses) else values
        return replace(replies, values=self._statistics(request, replies, fractions) * scale)

    def _updates(self, request: Train | Gradients, replies: Replies[T], rows: Tensor) -> Tensor:
        """Return the rows ``[c, n]`` that clients send instead of those that they computed."""
        starts, round, purpose = torch.zeros_like(rows), 0, request.name
        if isinstance(request, Train):
            round, purpose = request.key.round, f"{request.name} {request.key.purpose}"
            starts = request.starts[torch.as_tensor(replies.answered)].to(rows)
            starts = starts if request.sent is None else request.sent.take(starts)
        entries = np.flatnonzero(replies.answered)
        sent = [
            start + self._privacy.update(
                row - start, self._source(request, entries[[place]], purpose, client, round)
            )
            for place, (client, start, row) in enumerate(
                zip(replies.clients.tolist(), starts, rows, strict=True)
            )
        ]  # fmt: skip
        return torch.stack(sent) if sent else rows

    def _scores(
        self, request: Request[T], replies: Replies[T], scores: ClientScores
    ) -> ClientScores:
        """Return losses and accuracies with noise."""
        parts = [self._privacy.as_fractions(scores.loss)]
        if scores.accuracy is not None:
            parts.append(scores.accuracy.to(scores.loss))
        sent = self._statistics(request, replies, torch.stack(parts, dim=1))
        accuracy = None if scores.accuracy is None else sent[:, 1].to(scores.accuracy)
        return replace(scores, loss=sent[:, 0] * self._privacy.clip_loss, accuracy=accuracy)

    def _statistics(self, request: Request[T], replies: Replies[T], fractions: Tensor) -> Tensor:
        """Return numbers ``[c, n]`` between 0 and 1 with noise; those of a client are one reply."""
        sent, entries = fractions.clone(), np.flatnonzero(replies.answered)
        for client in np.unique(replies.clients).tolist():
            places = np.flatnonzero(replies.clients == client)
            index = torch.as_tensor(places, device=fractions.device)
            source = self._source(request, entries[places], request.name, client, 0)
            numbers = self._privacy.statistics(fractions[index].flatten(), source)
            sent[index] = numbers.view(len(places), -1)
        return sent

    def _source(
        self, request: Request[T], entries: Clients, purpose: str, client: int, round: int
    ) -> bytes:
        """Return what the noise of a client's entries is drawn from."""
        question = replace(request.select(entries), clients=np.zeros(len(entries), np.int64))
        digest = digest_of(question)
        return noise_source(self._seed, purpose, self.client_ids[client], round, digest)


def not_answered(federation: Federation, request: Request[T]) -> Replies[T]:
    """Return the replies to a request that private clients do not answer: all are missing.

    Raises:
        InputError: If clients are asked for their classes.
    """
    if isinstance(request, ClassCounts):
        raise InputError("private clients do not tell their classes: choose another distance")
    nobody = federation.ask(request.select(np.empty(0, dtype=np.int64)))
    missing = dict.fromkeys(request.clients.tolist(), NOT_ANSWERED)
    return Replies(request.clients, nobody.values, missing)
