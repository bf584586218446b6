"""Exchanges one message with each of some clients, and checks their replies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING, getLogger
from time import monotonic, sleep

import torch
from flwr.app import Array, Message
from torch import Tensor

from srfca.flower.directory import ClientDirectory
from srfca.flower.records import InvalidMessageError, arrays_of, pack, row_name, unpack
from srfca.flower.row_cache import RowCache
from srfca.flower.transport import (
    MAX_REASON,
    ClientRequest,
    RetryableError,
    Transport,
    reply_values,
)

_REPORT_EVERY = 5.0
"""Minimum seconds between two log lines about clients that are waited for."""
_SCORES = ("validation", "scores")
"""Arrays ``[..., 2]`` of losses and accuracies."""
_log = getLogger("flwr").log


@dataclass
class Outcome:
    """What came of an exchange.

    Args:
        replies: The arrays that each client sent.
        missing: The reason for each client that did not reply.
    """

    replies: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class Messenger:
    """Exchanges messages with clients.

    Args:
        transport: How to reach nodes.
        directory: Which clients there are.
        row_bytes: Bytes of a complete row.
        timeout: Seconds that a client has for a reply.
        min_clients: With fewer clients connected, an exchange waits.
        interval: Maximum seconds between two checks for replies.
    """

    def __init__(
        self,
        transport: Transport,
        directory: ClientDirectory,
        row_bytes: int,
        timeout: float,
        min_clients: int,
        interval: float = 1.0,
    ) -> None:
        self._transport, self._directory = transport, directory
        self._row_bytes, self._timeout = row_bytes, timeout
        self.min_clients = min_clients
        self._interval = interval
        self._caches: dict[int, RowCache] = {}
        self._overdue: dict[str, int] = {}

    def refresh(self) -> None:
        """Find out which clients are connected, and take overdue replies."""
        self._directory.refresh()
        nodes = {client.node_id for client in self._directory.clients.values()}
        self._overdue = {sent: node for sent, node in self._overdue.items() if node in nodes}
        self._caches = {node: cache for node, cache in self._caches.items() if node in nodes}
        for reply in self._transport.receive(self._overdue):
            del self._overdue[reply.metadata.reply_to_message_id]

    def ready(self, client_ids: Iterable[str]) -> list[str]:
        """Return the clients that are connected and not busy, at the last ``refresh``."""
        busy = set(self._overdue.values())
        return [
            client_id
            for client_id in client_ids
            if self._directory.is_connected(client_id) and self._node(client_id) not in busy
        ]

    def wait_for_count(self, count: int) -> None:
        """Wait until this many clients have introduced themselves."""
        self._wait(lambda: count, self._directory.clients)

    def wait_for_clients(self, client_ids: Collection[str], patience: float) -> None:
        """Wait for all of some clients, and after some time for ``min_clients`` of them.

        Args:
            client_ids: The clients.
            patience: Seconds to wait for all of them. While a node has not introduced itself yet,
                it may be one of them; then the timeout applies if it is longer.
        """
        start = monotonic()

        def required() -> int:
            limit = max(patience, self._timeout) if self._directory.is_waiting else patience
            is_over = monotonic() - start >= limit
            return min(self.min_clients, len(client_ids)) if is_over else len(client_ids)

        self._wait(required, client_ids)

    def exchange(
        self,
        task: str,
        requests: Mapping[str, ClientRequest],
        rows: Mapping[str, Array],
        members: Collection[str],
    ) -> Outcome:
        """Send one message to each of some clients, and wait for the replies.

        A client that has lost rows, or whose process crashed, is asked once more.

        Args:
            task: What the clients are asked to do.
            requests: The request to each client.
            rows: Rows by name; a client is sent those that it lacks.
            members: All clients of the federation: ``min_clients`` of them must be connected.
        """
        self._wait(lambda: min(self.min_clients, len(members)), members)
        outcome = Outcome()
        ready = self.ready(requests)
        for client_id in sorted(set(requests) - set(ready)):
            is_busy = self._directory.is_connected(client_id)
            outcome.missing[client_id] = (
                "busy with an earlier request" if is_busy else "not connected"
            )
        failures = self._attempt(task, {c: requests[c] for c in ready}, rows, outcome)
        for client_id in failures:
            self._caches.pop(self._node(client_id), None)
        retries = {client_id: requests[client_id] for client_id in failures}
        outcome.missing |= self._attempt(task, retries, rows, outcome)
        outcome.missing = {c: reason[:MAX_REASON] for c, reason in outcome.missing.items()}
        for client_id, reason in outcome.missing.items():
            _log(WARNING, "client %r did not reply to %s: %s", client_id, task, reason)
        return outcome

    def _attempt(
        self,
        task: str,
        requests: Mapping[str, ClientRequest],
        rows: Mapping[str, Array],
        outcome: Outcome,
    ) -> dict[str, str]:
        """Ask each client once, add to the outcome, and return those to ask again with reasons."""
        messages = (
            self._transport.message(
                task, self._node(client_id), request, self._lacking(client_id, request, rows)
            )
            for client_id, request in requests.items()
        )
        sent = zip(self._transport.send(messages), requests, strict=True)
        waiting = {message_id: client_id for message_id, client_id in sent if message_id}
        for client_id in sorted(set(requests) - set(waiting.values())):
            outcome.missing[client_id] = "the message could not be sent"
        failures = {}
        end, pause = monotonic() + self._timeout, 0.02
        while waiting:
            for reply in self._transport.receive(waiting):
                client_id = waiting.pop(reply.metadata.reply_to_message_id)
                try:
                    arrays = _read(client_id, requests[client_id], reply)
                except RetryableError as error:
                    failures[client_id] = str(error)
                except InvalidMessageError as error:
                    outcome.missing[client_id] = str(error)
                else:
                    outcome.replies[client_id] = arrays
                    self._cache(client_id, task, requests[client_id], arrays)
            if monotonic() >= end:
                break
            if waiting:
                sleep(pause)
                pause = min(1.5 * pause, self._interval)
        for message_id, client_id in waiting.items():
            outcome.missing[client_id] = f"no reply within {self._timeout:g} s"
            self._overdue[message_id] = self._node(client_id)
        return failures

    def _node(self, client_id: str) -> int:
        return self._directory.clients[client_id].node_id

    def _lacking(
        self, client_id: str, request: ClientRequest, rows: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the rows of a request that its client does not have."""
        cache = self._caches.get(self._node(client_id))
        cached = [] if cache is None else cache.names
        return {name: rows[name] for name in request.row_names if name not in cached}

    def _cache(
        self, client_id: str, task: str, request: ClientRequest, arrays: Mapping[str, Tensor]
    ) -> None:
        """Note the rows that a client has now."""
        cache = self._caches.setdefault(self._node(client_id), RowCache(self._row_bytes))
        cache.add(request.row_names)
        if task == "train" and "rows" in arrays:
            cache.add(row_name(pack(row)) for row in arrays["rows"])

    def _wait(self, required: Callable[[], int], client_ids: Collection[str]) -> None:
        """Wait until enough of the clients are ready, and log which ones are missing."""
        reported, when = "", 0.0
        while True:
            self.refresh()
            ready, count = self.ready(client_ids), required()
            if len(ready) >= count:
                if reported:
                    _log(INFO, "continuing with %s clients", len(ready))
                return
            missing = sorted(set(client_ids) - set(ready))
            names = f"; not connected, or busy: {', '.join(missing)}" if missing else ""
            state = f"waiting for clients: {len(ready)} of at least {count} are ready{names}"
            if state != reported and monotonic() - when > _REPORT_EVERY:
                _log(WARNING, "%s", state)
                reported, when = state, monotonic()
            sleep(min(0.2, self._interval))


def _read(client_id: str, request: ClientRequest, reply: Message) -> dict[str, Tensor]:
    """Return the arrays of a reply.

    Raises:
        InvalidMessageError: If they are not as expected.
    """
    values = reply_values(reply, request.max_bytes)
    if values.get("client") != client_id:
        raise InvalidMessageError(f"it replied as client {values.get('client')!r}")
    if "lacks" in values:
        raise RetryableError("it lacks rows that it was sent before")
    arrays = arrays_of(reply.content)
    if set(arrays) != set(request.expects):
        raise InvalidMessageError(f"it sent {sorted(arrays)}, expected {sorted(request.expects)}")
    tensors = {name: unpack(arrays[name], *spec) for name, spec in request.expects.items()}
    for name, tensor in tensors.items():
        if problem := _problem(name, tensor):
            raise InvalidMessageError(f"it sent {name} that are {problem}")
    return tensors


def _problem(name: str, tensor: Tensor) -> str:
    """Return what is wrong with the numbers that a client sent, the empty string if nothing is.

    A loss may be infinite, if a model is that bad, but not minus infinity, also in float32.
    Cross entropy and counts are not negative.
    """
    if name == "compressed":  # read, and checked, where the starts are known
        return ""
    if name in ("rows", "subspaces"):
        return "" if bool(tensor.isfinite().all()) else "infinite or NaN"
    if name in ("counts", "balanced"):  # a balanced loss may be unknown, which is NaN
        return "negative" if bool((tensor < 0).any()) else ""
    if bool(tensor.isnan().any()) or bool((tensor.float() == -torch.inf).any()):
        return "NaN or minus infinity"
    fractions = {"shares": tensor}.get(name, tensor[..., 1] if name in _SCORES else tensor[:0])
    is_outside = bool(((fractions < 0) | (fractions > 1 + 1e-6)).any())
    return "not between 0 and 1" if is_outside else ""
