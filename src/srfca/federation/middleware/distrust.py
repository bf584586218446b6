"""Distrust: losses that some clients report do not count any more."""

from __future__ import annotations

from collections.abc import Iterable

from srfca.federation.middleware.base import Middleware
from srfca.federation.protocol import Federation
from srfca.federation.replies import Replies, T
from srfca.federation.requests import (
    BalancedLosses,
    BootstrapLosses,
    Losses,
    LossMoments,
    Request,
    Scores,
)

_REPORTS = (Losses, BalancedLosses, LossMoments, BootstrapLosses, Scores)
"""Requests whose replies are numbers that a client can make up."""


class Distrusting(Middleware):
    """Treat losses and scores of distrusted clients as missing replies. They train as before.

    Args:
        federation: Where requests are passed on to.

    Attributes:
        distrusted: Positions of the clients.

    Examples:
        >>> import torch
        >>> from srfca import Simulation, data, models
        >>> from srfca.federation import Losses
        >>> fed = Distrusting(Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10)))
        >>> fed.distrust([2])
        >>> fed.ask(Losses(range(4), torch.zeros(1, 650))).clients.tolist()
        [0, 1, 3]
    """

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self.distrusted: set[int] = set()

    @property
    def answers_rounds(self) -> bool:
        """As the federation inside."""
        return self.federation.answers_rounds

    def distrust(self, clients: Iterable[int]) -> None:
        """Do not believe these clients from now on.

        Args:
            clients: Their positions.
        """
        self.distrusted.update(int(client) for client in clients)

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on, and leave out what distrusted clients report."""
        replies = self.federation.ask(request)
        if not self.distrusted or not isinstance(request, _REPORTS):
            return replies
        return replies.without(self.distrusted, "distrusted: its losses contradict all others")
