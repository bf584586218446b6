"""With distances between rows, no client is sent the local model of another."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from torch import Tensor

from srfca import SRFCA
from srfca.federation import Federation, Middleware, Replies, Request, Train
from tests.methods.helpers import DIGITS, digits


class Recorded(Middleware):
    """Record the local models of ONE_SHOT, and which of them are sent to other clients."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self.local_models: dict[bytes, int] = {}
        self.leaks: list[tuple[str, int, int]] = []

    def ask(self, request: Request[Any]) -> Replies[Any]:
        for field in fields(request):
            value = getattr(request, field.name)
            if isinstance(value, Tensor) and value.ndim == 2:
                self._check(request, value, by_entry=field.name == "starts" or _by_entry(request))
        replies: Replies[Any] = self.federation.ask(request)
        if isinstance(request, Train) and request.key.purpose == "one_shot":
            for client, row in zip(replies.clients.tolist(), replies.values, strict=True):
                self.local_models[row.numpy().tobytes()] = client
        return replies

    def _check(self, request: Request[Any], rows: Tensor, by_entry: bool) -> None:
        """Note a leak; a row goes to the client of its entry, or each row to all clients."""
        for entry, row in enumerate(rows):
            owner = self.local_models.get(row.contiguous().numpy().tobytes())
            receivers = request.clients[entry : entry + 1] if by_entry else request.clients
            for client in receivers.tolist():
                if owner is not None and owner != client:
                    self.leaks.append((request.name, owner, client))


def _by_entry(request: Request[Any]) -> bool:
    return request.name in ("scores", "gradients", "train")


@pytest.mark.parametrize("threshold", ["auto", "40%"])
@pytest.mark.parametrize("distance", ["l2", "cosine", "cross_loss"])
def test_local_models_stay_with_their_clients(threshold: str, distance: str) -> None:
    federation = Recorded(digits(num_clients=12, rotations=2))
    SRFCA(local=DIGITS, threshold=threshold, distance=distance).fit(federation)
    assert len(federation.local_models) == 12
    assert bool(federation.leaks) == (distance == "cross_loss")
