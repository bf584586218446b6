"""Coordinates that clients keep to themselves between rounds: a head that stays at home."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from srfca.errors import InputError
from srfca.federation.replies import Clients
from srfca.federation.requests import Personal, Train


class PersonalStore:
    """What each client keeps of a training, by seed and purpose and by client id.

    The values ``[n]`` are those of the coordinates that the training keeps personal.
    """

    def __init__(self) -> None:
        self.values: dict[tuple[int, str], dict[str, Tensor]] = {}

    def fill(
        self, request: Train, starts: Tensor, initial_model: Tensor, client_ids: Sequence[str]
    ) -> Tensor:
        """Return the starts ``[c, P]`` with each client's personal coordinates in them.

        In round 0, or if a client has not taken part yet, they are those of the initial model.
        """
        assert request.personal is not None
        training = (request.key.seed, request.key.purpose)
        if request.key.round == 0:
            self.values[training] = {}
        stored = self.values.setdefault(training, {})
        default = request.personal.take(initial_model.unsqueeze(0))[0]
        if not len(request.clients):
            return starts
        values = [stored.get(client_ids[client], default) for client in request.clients]
        return request.personal.put(starts, torch.stack(values).to(starts))

    def keep(self, request: Train, rows: Tensor, client_ids: Sequence[str]) -> None:
        """Store each client's personal coordinates of its trained row."""
        assert request.personal is not None
        stored = self.values[request.key.seed, request.key.purpose]
        for client, values in zip(request.clients, request.personal.take(rows), strict=True):
            stored[client_ids[client]] = values.clone()

    def get(self, personal: Personal, clients: Clients, client_ids: Sequence[str]) -> Tensor:
        """Return the personal coordinates of some clients: ``[c, n]``.

        Raises:
            InputError: If one of them has none.
        """
        stored = self.values.get((personal.seed, personal.purpose), {})
        for client in clients:
            if client_ids[client] not in stored:
                raise InputError(
                    f"client {client_ids[client]!r} has no personal coordinates of the training "
                    f"{personal.purpose!r} with seed {personal.seed}: it has not taken part yet"
                )
        return torch.stack([stored[client_ids[client]] for client in clients])
