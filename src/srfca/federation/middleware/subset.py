"""Some of the clients of a federation, as a federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from srfca.errors import require
from srfca.federation.middleware.base import Middleware
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, Replies, T, as_clients
from srfca.federation.requests import Request


class Subset(Middleware):
    """A federation of some of the clients, which may start from another model.

    Args:
        federation: Where requests are passed on to.
        clients: ``[c]`` which of its clients, all different.
        start: ``[P]`` their initial model; None is that of the federation.

    Raises:
        InputError: If a client is named twice, or does not exist.

    >>> from srfca import Simulation, data, models
    >>> from srfca.federation import Losses
    >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
    >>> part = Subset(fed, [3, 1])
    >>> part.client_ids
    ('3', '1')
    >>> w0 = fed.initial_model(0).unsqueeze(0)
    >>> bool(part.ask(Losses([0], w0)).values == fed.ask(Losses([3], w0)).values)
    True
    """

    def __init__(
        self, federation: Federation, clients: Sequence[int] | Clients, start: Tensor | None = None
    ) -> None:
        super().__init__(federation)
        self._clients = as_clients(clients)
        count = len(federation.client_ids)
        require(
            len(set(self._clients.tolist())) == len(self._clients)
            and all(0 <= client < count for client in self._clients.tolist()),
            f"clients must be different positions from 0 to {count - 1}, "
            f"not {self._clients.tolist()}",
        )
        self._start = start

    @property
    def client_ids(self) -> Sequence[str]:
        """Stable ids of the clients, in the order of the subset."""
        return tuple(self.federation.client_ids[client] for client in self._clients.tolist())

    @property
    def sizes(self) -> Tensor:
        """``[c]`` number of training samples of each client."""
        sizes = self.federation.sizes
        return sizes[torch.as_tensor(self._clients, device=sizes.device)]

    def fingerprint(self) -> str:
        """Return a digest of what the whole federation holds, with the clients of the subset."""
        digest = self.federation.fingerprint()
        return digest and f"{digest} {self._clients.tolist()}"

    def initial_model(self, seed: int) -> Tensor:
        """Return the model that clients start from: ``[P]``."""
        return self.federation.initial_model(seed) if self._start is None else self._start

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on under the federation's positions of the clients."""
        replies = self.federation.ask(replace(request, clients=self._clients[request.clients]))
        position = {client: index for index, client in enumerate(self._clients.tolist())}
        missing = {position[client]: reason for client, reason in replies.missing.items()}
        return replace(replies, requested=request.clients, missing=missing)
