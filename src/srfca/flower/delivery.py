"""Delivery of final models to the clients that want them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from srfca.federation.requests import Personal
from srfca.flower.channel import Channel
from srfca.flower.messages import Messages, RowTable, check_rows, personal_json
from srfca.flower.records import Value
from srfca.flower.transport import ClientRequest


class Delivery:
    """Sends each client its final model, and remembers what it was sent.

    Args:
        length: P.
        channel: The clients.
    """

    def __init__(self, length: int, channel: Channel) -> None:
        self._length, self._channel = length, channel
        self._delivered: dict[str, tuple[str, int]] = {}

    def deliver(self, models: Tensor, clients: Sequence[int], personal: Personal | None) -> None:
        """Send clients their models, as ``FlowerFederation.keep`` describes."""
        check_rows(models, self._length, len(clients))
        table = RowTable()
        values: dict[str, Value] = {}
        if personal is not None:
            models = personal.coordinates.complement(self._length).take(models)
            values = {"personal": personal_json(personal)}
        requests = {
            client: ClientRequest(values=values, rows={"models": [name]})
            for client, name in zip(clients, table.add(models), strict=True)
            if name is not None and self._is_wanted(client, name)
        }
        for client in self._channel.exchange("keep", Messages(requests, table)).arrays:
            info, [name] = self._channel.info(client), requests[client].row_names
            self._delivered[info.client_id] = (name, info.node_id)

    def _is_wanted(self, client: int, name: str) -> bool:
        """Return whether a client wants a model that it has not been sent since it started."""
        info = self._channel.info(client)
        return info.wants_model and self._delivered.get(info.client_id) != (name, info.node_id)
