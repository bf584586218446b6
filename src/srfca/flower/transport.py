"""Messages to Flower's nodes and their replies, and how many bytes they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from logging import WARNING, getLogger
from math import prod

import torch
from flwr.app import Array, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from srfca.federation.replies import Traffic
from srfca.flower.names import fingerprint
from srfca.flower.records import InvalidMessageError, Shape, Value, make_content, size_of, values_of

TRAINING_TASKS = ("train", "gradients")
"""Tasks that are Flower's message type ``train``; the others are ``query``."""
MAX_VALUES = 2**16
"""Bytes that the plain values of a reply may have."""
MAX_REASON = 500
"""Characters that are kept of a reason."""
_log = getLogger("flwr").log


class RetryableError(InvalidMessageError):
    """The client did not reply, but may if it is asked again."""


@dataclass(frozen=True)
class ClientRequest:
    """What one client is asked.

    Args:
        expects: Shape and dtype of the arrays that the reply must hold.
        values: Plain values.
        rows: Names of rows by their role in the request.
    """

    expects: Mapping[str, tuple[Shape, torch.dtype]] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    rows: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def row_names(self) -> list[str]:
        """The names of all rows, in order."""
        return [name for names in self.rows.values() for name in names]

    @property
    def max_bytes(self) -> int:
        """The most bytes that a reply may have: arrays, and plain values or the rows it lacks."""
        arrays = sum(prod(shape) * dtype.itemsize for shape, dtype in self.expects.values())
        return arrays + sum(len(name) for name in self.row_names) + MAX_VALUES


class Transport:
    """Sends messages over Flower's grid, receives the replies, and counts their bytes.

    Args:
        grid: Flower's grid.
        ttl: Seconds until a message that was not delivered expires.

    Attributes:
        traffic: What was sent and received so far.
    """

    def __init__(self, grid: Grid, ttl: float) -> None:
        self._grid, self._ttl = grid, ttl
        self.traffic = Traffic()

    def nodes(self) -> dict[int, str]:
        """Return the nodes that are connected: the fingerprint of each one's key, if it has one."""
        return {
            node.node_id: fingerprint(node.public_key) if node.public_key else ""
            for node in self._grid.get_nodes()
        }

    def message(
        self, task: str, node_id: int, request: ClientRequest, rows: Mapping[str, Array]
    ) -> Message:
        """Return the message for a node; ``rows`` are those that are sent with it, by name."""
        names = {f"rows.{role}": names for role, names in request.rows.items()}
        kind = "train" if task in TRAINING_TASKS else "query"
        content = make_content({**request.values, **names}, rows=rows)
        return Message(content, node_id, f"{kind}.{task}", ttl=self._ttl)

    def send(self, messages: Iterable[Message]) -> list[str | None]:
        """Send messages, and return their ids; None for one that could not be sent.

        They are sent one by one: together they may be too large, and a failure could not be
        attributed to one of them.
        """
        ids: list[str | None] = []
        for message in messages:
            self.traffic += Traffic(messages=1, bytes_down=size_of(message.content))
            ids += list(self._grid.push_messages([message]))[:1] or [None]
        return ids

    def receive(self, waiting: Collection[str]) -> list[Message]:
        """Return the replies that have arrived to some messages, at most one for each."""
        received = self._grid.pull_messages(list(waiting)) if waiting else []
        replies: dict[str, Message] = {}
        for reply in received:
            message_id = reply.metadata.reply_to_message_id
            if message_id in waiting:
                replies.setdefault(message_id, reply)
            else:
                _log(WARNING, "dropped a reply to a message that was not sent")
        sizes = (size_of(reply.content) for reply in replies.values() if reply.has_content())
        self.traffic += Traffic(bytes_up=sum(sizes))
        return list(replies.values())


def reply_values(reply: Message, max_bytes: int) -> Mapping[str, object]:
    """Return the plain values of a reply.

    Args:
        reply: The reply.
        max_bytes: The most bytes that it may have.

    Raises:
        InvalidMessageError: If the client reports an error, or the reply is too large or has no
            values.
    """
    if reply.has_error():
        reason = (reply.error.reason or "no reason given")[:MAX_VALUES].strip()
        crashed = reply.error.code == ErrorCode.CLIENT_APP_CRASHED
        kind = RetryableError if crashed else InvalidMessageError
        raise kind(f"error {reply.error.code}: {reason[:MAX_REASON]}")
    size = size_of(reply.content)
    if size > max_bytes:
        raise InvalidMessageError(f"its reply has {size} bytes, at most {max_bytes} are due")
    return values_of(reply.content)
