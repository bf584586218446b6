"""Which clients there are, and which of them are connected.

A client is identified by its own id: Flower's node ids change when a node without a registered key
restarts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from logging import INFO, WARNING, getLogger
from time import monotonic

from flwr.app import Message
from torch import Tensor

from srfca.errors import InputError
from srfca.federation.privacy import Privacy
from srfca.flower.agreement import Agreement
from srfca.flower.client_info import ClientInfo
from srfca.flower.names import ClientNames
from srfca.flower.records import InvalidMessageError
from srfca.flower.transport import MAX_REASON, ClientRequest, Transport, reply_values
from srfca.models.signature import Signature

RETRY_AFTER = (1.0, 10.0, 60.0)
"""Seconds until a node is asked to introduce itself again: after one failure, two, and more."""
_MAX_ID = 200
"""Characters of a client id."""
_log = getLogger("flwr").log


class ClientDirectory:
    """The clients that have introduced themselves, by id.

    Args:
        transport: How to reach nodes.
        row: A row ``[P]`` of the server's model: the clients' rows must be like it.
        frozen_digest: Digest of the frozen part of the server's model.
        names: Whose each name is; None takes in every name, from any node.

    Attributes:
        clients: All clients so far, connected or not.
        agreement: What every client must have in common with the others.
    """

    def __init__(
        self,
        transport: Transport,
        row: Tensor,
        frozen_digest: str,
        names: ClientNames | None = None,
    ) -> None:
        self.clients: dict[str, ClientInfo] = {}
        self.agreement = Agreement()
        self._transport = transport
        self._row, self._frozen_digest = row, frozen_digest
        self._names = names or ClientNames()
        self._online: dict[int, str] = {}
        self._greeted: dict[str, int] = {}
        self._refused: dict[int, tuple[int, float]] = {}
        self._claims: dict[int, ClientInfo] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether a node was asked to introduce itself, and has not replied yet."""
        return bool(self._greeted)

    def is_connected(self, client_id: str) -> bool:
        """Return whether a client was connected at the last ``refresh``."""
        return client_id in self.clients and self.clients[client_id].node_id in self._online

    def refresh(self) -> None:
        """Find the nodes that are connected; ask new ones to introduce themselves."""
        self._online = self._transport.nodes()
        self._settle_claims()
        self._refused = {node: r for node, r in self._refused.items() if node in self._online}
        new = self._nodes_to_greet()
        sent = self._transport.send(
            [self._transport.message("hello", node, ClientRequest(), {}) for node in new]
        )
        self._greeted |= {sent_id: node for sent_id, node in zip(sent, new, strict=True) if sent_id}
        for reply in self._transport.receive(self._greeted):
            self._introduce(self._greeted.pop(reply.metadata.reply_to_message_id), reply)

    def _nodes_to_greet(self) -> list[int]:
        members = {client.node_id for client in self.clients.values()}
        pending = members | set(self._greeted.values()) | set(self._claims)
        now = monotonic()
        return [
            node
            for node in sorted(set(self._online) - pending)
            if self._refused.get(node, (0, now))[1] <= now
        ]

    def _introduce(self, node_id: int, reply: Message) -> None:
        """Add the client of a node that has introduced itself, if it fits."""
        try:
            client = self._read_introduction(node_id, reply)
        except InvalidMessageError as error:
            self._refuse(node_id, str(error))
            return
        client_id = client.client_id
        if self.is_connected(client_id) and self.clients[client_id].node_id != node_id:
            text = "node %s has the id %r of another connected node: it waits until that one leaves"
            _log(WARNING, text, node_id, client_id)
            self._claims[node_id] = client
        else:
            self._add(client)

    def _refuse(self, node_id: int, reason: str) -> None:
        """Note and log that a node is not taken in; it is asked again later."""
        failures = self._refused.get(node_id, (0, 0.0))[0] + 1
        pause = RETRY_AFTER[min(failures, len(RETRY_AFTER)) - 1]
        self._refused[node_id] = (failures, monotonic() + pause)
        text = "refused node %s: %s; asking it again in %g s"
        _log(WARNING, text, node_id, reason[:MAX_REASON], pause)

    def agree(self, client_ids: Collection[str]) -> int:
        """Let the majority of some clients decide what all must have in common.

        Args:
            client_ids: The clients that decide. Those that differ are refused.

        Returns:
            How many were refused.
        """
        self.agreement = Agreement.of(self.clients[client_id] for client_id in client_ids)
        refused = 0
        for client_id, client in list(self.clients.items()):
            if problem := self.agreement.problem(client):
                del self.clients[client_id]
                self._names.keys.pop(client_id, None)
                self._refuse(client.node_id, f"client {client_id!r}: {problem}")
                refused += client_id in client_ids
        return refused

    def restore(self, clients: Collection[ClientInfo]) -> None:
        """Add the clients of an earlier run, of which none is connected yet."""
        for client in clients:
            self.clients[client.client_id] = replace(client, node_id=0)
            if client.key:
                self._names.keys[client.client_id] = client.key
        self.agreement = Agreement.of(clients)

    def _settle_claims(self) -> None:
        """Let restarted clients take the place of their old nodes, where these have left."""
        for node_id, client in list(self._claims.items()):
            if node_id not in self._online:
                del self._claims[node_id]
            elif not self.is_connected(client.client_id):
                del self._claims[node_id]
                self._add(client)

    def _add(self, client: ClientInfo) -> None:
        _log(INFO, "client %r connected", client.client_id)
        self.clients[client.client_id] = client
        self._names.keys[client.client_id] = client.key

    def _read_introduction(self, node_id: int, reply: Message) -> ClientInfo:
        """Return what a client says about itself.

        Raises:
            InvalidMessageError: If it does not fit the server's model, or the other clients.
        """
        values = reply_values(reply, ClientRequest().max_bytes)
        client_id = values.get("client")
        if not (
            isinstance(client_id, str)
            and client_id.isprintable()
            and 1 <= len(client_id) <= _MAX_ID
        ):
            raise InvalidMessageError(f"its client id is not 1 to {_MAX_ID} printable characters")
        key = self._online.get(node_id, "") or f"node {node_id}"
        self._names.check(client_id, key)
        self._check_model(values)
        client = ClientInfo(
            client_id=client_id,
            sizes=_read_sizes(values),
            num_features=_positive(values, "features"),
            has_classes=values.get("classes") is True,
            wants_model=values.get("receives") is True,
            num_outputs=_positive(values, "outputs"),
            num_label_groups=_positive(values, "groups"),
            node_id=node_id,
            num_classes=_count(values, "num_classes"),
            num_columns=_count(values, "columns"),
            signature=_signature(values),
            key=key,
            privacy=_privacy(values),
        )
        if problem := self.agreement.problem(client):
            raise InvalidMessageError(f"client {client_id!r}: {problem}")
        return client

    def _check_model(self, values: Mapping[str, object]) -> None:
        expected = (self._row.numel(), str(self._row.dtype).removeprefix("torch."))
        length, dtype = values.get("length"), values.get("dtype")
        if (length, dtype) != expected:
            raise InvalidMessageError(
                f"its model has {length} {dtype} coordinates, but the server's has "
                f"{expected[0]} {expected[1]}"
            )
        digest = values.get("frozen")
        if digest != self._frozen_digest:
            raise InvalidMessageError(
                "its frozen parameters differ from the server's "
                f"(digest {_shorten(digest)}, server: {_shorten(self._frozen_digest)}): give both "
                "the same pretrained weights"
            )


def _read_sizes(values: Mapping[str, object]) -> dict[str, int]:
    """Return the number of samples of each split that a client has.

    Raises:
        InvalidMessageError: If one is not a number of samples, or it has none to train on.
    """
    sizes: dict[str, int] = {}
    for split in ("train", "validation", "test"):
        size = values.get(split, 0)
        if not isinstance(size, int) or size < (split == "train"):
            raise InvalidMessageError(f"it has {size!r} {split} samples")
        if size:
            sizes[split] = size
    return sizes


def _positive(values: Mapping[str, object], name: str) -> int:
    """Return a number that a client has introduced itself with.

    Raises:
        InvalidMessageError: If it is not a positive integer.
    """
    value = values.get(name)
    if not isinstance(value, int) or value < 1:
        raise InvalidMessageError(f"its samples have {value!r} {name}")
    return value


def _signature(values: Mapping[str, object]) -> Signature:
    """Return what a client says of its model's inputs and outputs.

    Raises:
        InvalidMessageError: If it is missing or damaged.
    """
    try:
        return Signature.from_json(json.loads(str(values.get("signature"))))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidMessageError(f"it does not describe its samples: {error}") from error


def _privacy(values: Mapping[str, object]) -> Privacy | None:
    """Return how much a client says that it reveals of its data.

    Raises:
        InvalidMessageError: If that is damaged.
    """
    text = values.get("privacy")
    if not text:
        return None
    try:
        return Privacy.from_json(str(text))
    except InputError as error:
        raise InvalidMessageError(f"it does not describe its privacy: {error}") from error


def _count(values: Mapping[str, object], name: str) -> int:
    """Return a number that a client has introduced itself with, 0 if it has not.

    Raises:
        InvalidMessageError: If it is not an integer of at least 0.
    """
    value = values.get(name, 0)
    if not isinstance(value, int) or value < 0:
        raise InvalidMessageError(f"it has {value!r} {name.removeprefix('num_')}")
    return value


def _shorten(digest: object) -> str:
    return repr(str(digest)[:12]) if digest else "none"
