"""The clients of a federation by position, and the exchange of messages with them."""

from __future__ import annotations

from collections.abc import Sequence
from logging import WARNING, getLogger

from flwr.serverapp import Grid
from torch import Tensor

from srfca.errors import require
from srfca.federation.middleware.counting import MissingReply
from srfca.federation.replies import Traffic
from srfca.federation.requests import Split
from srfca.flower.client_info import ClientInfo
from srfca.flower.directory import ClientDirectory
from srfca.flower.messages import Messages
from srfca.flower.messenger import Messenger
from srfca.flower.names import ClientNames
from srfca.flower.replies import ClientReplies
from srfca.flower.transport import Transport

PATIENCE = 60.0
"""Seconds to wait for all clients of an earlier run before continuing without some of them."""
_EXPIRY = 10
"""Timeouts until a message to a client that does not reply expires; then it may be asked again."""
_log = getLogger("flwr").log


class Channel:
    """The clients of a federation, and how to reach them.

    Args:
        grid: Flower's grid.
        row: A row ``[P]`` of the server's model.
        frozen_digest: Digest of the frozen part of the server's model.
        timeout: Seconds that a client has for a reply.
        min_clients: With fewer clients connected, an exchange waits.
        names: Whose each client's name is; None takes in every name, from any node.
        max_clients: The most clients that may be in the federation; None is no limit.

    Attributes:
        client_ids: The clients; other lists and positions are in this order.
        missing: All replies that did not come, so far.
    """

    def __init__(
        self,
        grid: Grid,
        row: Tensor,
        frozen_digest: str,
        timeout: float,
        min_clients: int,
        names: ClientNames | None = None,
        max_clients: int | None = None,
    ) -> None:
        self.client_ids: tuple[str, ...] = ()
        self.missing: list[MissingReply] = []
        self.min_clients = min_clients
        self._transport = Transport(grid, ttl=_EXPIRY * timeout)
        self._directory = ClientDirectory(self._transport, row, frozen_digest, names)
        self._max_clients = max_clients
        self._turned_away: set[str] = set()
        row_bytes = row.numel() * row.element_size()
        self._messenger = Messenger(
            self._transport, self._directory, row_bytes, timeout, min_clients
        )

    @property
    def traffic(self) -> Traffic:
        """Everything that went over the network so far."""
        return self._transport.traffic

    @property
    def infos(self) -> list[ClientInfo]:
        """What the clients have said about themselves."""
        return [self._directory.clients[client_id] for client_id in self.client_ids]

    @property
    def splits(self) -> tuple[Split, ...]:
        """What all clients hold."""
        splits: tuple[Split, ...] = ("train", "validation", "test")
        return tuple(split for split in splits if all(split in i.sizes for i in self.infos))

    def info(self, client: int) -> ClientInfo:
        """Return what a client has said about itself."""
        return self._directory.clients[self.client_ids[client]]

    def wait_for_count(self, count: int) -> None:
        """Wait until this many clients have introduced themselves, and take those.

        Those that do not fit the majority are not taken in, and not waited for, unless fewer than
        ``min_clients`` would be left.
        """
        self._messenger.wait_for_count(count)
        if refused := self._directory.agree(self._messenger.ready(self._directory.clients)):
            self._messenger.wait_for_count(max(count - refused, self.min_clients))
        ready = self._messenger.ready(self._directory.clients)
        self.client_ids = tuple(sorted(ready, key=_sort_key)[:count])

    def wait_for_previous(self, clients: Sequence[ClientInfo]) -> None:
        """Take the clients of an earlier run, and wait until they, or most of them, are back."""
        self._directory.restore(clients)
        self.client_ids = tuple(info.client_id for info in clients)
        self._messenger.wait_for_clients(self.client_ids, PATIENCE)

    def newcomers(self) -> list[str]:
        """Return the ids of connected clients that are not in the federation, up to its limit."""
        self._messenger.refresh()
        outside = set(self._directory.clients) - set(self.client_ids)
        ready = self._messenger.ready(sorted(outside, key=_sort_key))
        if self._max_clients is None:
            return ready
        places = max(0, self._max_clients - len(self.client_ids))
        for client_id in ready[places:]:
            if client_id not in self._turned_away:
                self._turned_away.add(client_id)
                text = "client %r is not taken in: there are %s clients already, of at most %s"
                _log(WARNING, text, client_id, len(self.client_ids), self._max_clients)
        return ready[:places]

    def admit(self, newcomers: Sequence[str]) -> None:
        """Add clients, after those that are in the federation.

        Raises:
            InputError: If one has never connected, or is in the federation already.
        """
        for client_id in newcomers:
            require(client_id in self._directory.clients, f"client {client_id!r} never connected")
            require(
                client_id not in self.client_ids,
                f"client {client_id!r} is in the federation already",
            )
        self.client_ids += tuple(newcomers)

    def ready(self) -> list[int]:
        """Return the clients that are connected and not busy."""
        self._messenger.refresh()
        ready = set(self._messenger.ready(self.client_ids))
        return [client for client, client_id in enumerate(self.client_ids) if client_id in ready]

    def exchange(self, task: str, messages: Messages) -> ClientReplies:
        """Send the messages of one request, and wait for the replies."""
        missing = dict(messages.unsendable)
        arrays: dict[int, dict[str, Tensor]] = {}
        if messages.requests:
            positions = {self.client_ids[client]: client for client in sorted(messages.requests)}
            outcome = self._messenger.exchange(
                task,
                {client_id: messages.requests[client] for client_id, client in positions.items()},
                messages.table.rows,
                self.client_ids,
            )
            arrays = {positions[client_id]: reply for client_id, reply in outcome.replies.items()}
            missing |= {
                positions[client_id]: reason for client_id, reason in outcome.missing.items()
            }
        self.missing += [
            MissingReply(self.client_ids[client], task, reason)
            for client, reason in missing.items()
        ]
        return ClientReplies(arrays, missing)


def _sort_key(client_id: str) -> tuple[bool, int, str]:
    """Order client ids that are numbers by their value, and before all others."""
    is_number = client_id.isascii() and client_id.isdigit()
    return (not is_number, int(client_id) if is_number else 0, client_id)
