"""Questions to clients and their answers, over Flower's grid.

Whoever answers is known by an id of its own: Flower's node ids change when a node starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING, getLogger
from time import monotonic, sleep

import torch
from flwr.app import Array, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from torch import Tensor

from srfca.federation.base import Absence, Wire
from srfca.flower.records import (
    NonsenseError,
    Value,
    arrays_of,
    content,
    name_of,
    pack,
    size_of,
    unpack,
    values_of,
)
from srfca.flower.shelf import Shelf

_log = getLogger("flwr").log
_PAUSES = (1.0, 10.0, 60.0)
"""Seconds before a node is asked again who it is, after one wrong answer, two, and more."""
_LATE = 10
"""How many timeouts a client that is late has before it is asked again."""
_SAY = 5.0
"""Least seconds between two reports of who is waited for."""
_LONGEST = 200
"""Characters of a client's name."""
_TRAINS = ("fit", "gradients")
_SCORES = ("validation", "scores")
"""Arrays of losses and accuracies."""

Shape = tuple[int, ...]


class _AgainError(NonsenseError):
    """No answer, for a reason that is gone if the client is asked again."""


@dataclass(frozen=True)
class Ask:
    """What one client is asked, and the arrays that its answer must hold."""

    due: Mapping[str, tuple[Shape, torch.dtype]]
    values: Mapping[str, Value] = field(default_factory=dict)
    rows: Mapping[str, list[str]] = field(default_factory=dict)
    """Names of models, by their part in the question."""

    @property
    def names(self) -> list[str]:
        """All of the models, in order."""
        return [name for names in self.rows.values() for name in names]


@dataclass(frozen=True)
class Member:
    """A client as it has introduced itself."""

    client: str
    sizes: Mapping[str, int]
    """Samples of each split."""
    features: int
    """Numbers in a sample."""
    classes: bool
    receives: bool
    """Whether it wants to be given the model it ends up with."""
    node: int = 0
    """Flower's id of where it is; 0 is nowhere."""


class Post:
    """Sends questions to clients, and takes their answers if they are what was asked for.

    Args:
        grid: Flower's.
        row: A model ``[P]``: all models are like it.
        timeout: Seconds that a client has for an answer.
        min_clients: With fewer of the clients connected, questions wait.
        interval: Longest time between two looks for answers, in seconds.
    """

    def __init__(
        self, grid: Grid, row: Tensor, timeout: float, min_clients: int, interval: float = 1.0
    ) -> None:
        self.wire = Wire()
        self.members: dict[str, Member] = {}
        self._grid = grid
        self._row = row
        self._timeout = timeout
        self.min_clients = min_clients
        self.splits: tuple[str, ...] = ("train",)
        """What every client must hold."""
        self._interval = interval
        self._online: set[int] = set()
        self._asked_who: dict[str, int] = {}
        self._refused: dict[int, tuple[int, float]] = {}
        self._claims: dict[int, Member] = {}
        self._shelves: dict[str, Shelf] = {}
        self._owed: dict[str, str] = {}

    def gather(self, count: int) -> None:
        """Wait until so many clients have introduced themselves."""
        self._wait(lambda: count, self.members)

    def regather(self, of: Collection[str], patience: float) -> None:
        """Wait for all of some clients that were here before, or after so long for the least.

        A node that has yet to say who it is may be one of them, and has its time to do so.
        """
        start = monotonic()

        def enough() -> int:
            patient = max(patience, self._timeout) if self._asked_who else patience
            late = monotonic() - start >= patient
            return min(self.min_clients, len(of)) if late else len(of)

        self._wait(enough, of)

    def look(self) -> None:
        """Who is connected now; nodes that are new are asked who they are, and heard later."""
        self._online = set(self._grid.get_node_ids())
        self._settle_claims()
        known = {member.node for member in self.members.values()} | set(self._asked_who.values())
        self._refused = {node: r for node, r in self._refused.items() if node in self._online}
        now = monotonic()
        new = [
            node
            for node in sorted(self._online - known - set(self._claims))
            if self._refused.get(node, (0, now))[1] <= now
        ]
        sent = self._push([self._message("hello", node, Ask({}), {}) for node in new])
        self._asked_who |= {name: node for name, node in zip(sent, new, strict=True) if name}
        for reply in self._pull(self._asked_who):
            self._introduce(self._asked_who.pop(reply.metadata.reply_to_message_id), reply)
        for reply in self._pull(self._owed):
            del self._owed[reply.metadata.reply_to_message_id]

    def ready(self, clients: Iterable[str]) -> list[str]:
        """Those of the clients that are connected and owe no answer, as of the last look."""
        late = set(self._owed.values())
        return [c for c in clients if c not in late and self._connected(c)]

    def _connected(self, client: str) -> bool:
        return client in self.members and self.members[client].node in self._online

    def exchange(
        self, task: str, asks: Mapping[str, Ask], rows: Mapping[str, Array], of: Collection[str]
    ) -> dict[str, dict[str, Tensor]]:
        """Ask some clients ``of`` all, a message to each; who does not answer is an absence.

        ``rows`` are the models by their names; a client is sent those that it lacks.
        """
        self._wait(lambda: min(self.min_clients, len(of)), of)
        here = self.ready(asks)
        for client in sorted(set(asks) - set(here)):
            late = self._connected(client)
            self._miss(client, task, "late with an earlier answer" if late else "not connected")
        answers: dict[str, dict[str, Tensor]] = {}
        again = self._round(task, {client: asks[client] for client in here}, rows, answers)
        for client in again:
            self._shelves.pop(client, None)
        failed = self._round(task, {client: asks[client] for client in again}, rows, answers)
        for client, why in failed.items():
            self._miss(client, task, why)
        return answers

    def _round(
        self,
        task: str,
        asks: Mapping[str, Ask],
        rows: Mapping[str, Array],
        answers: dict[str, dict[str, Tensor]],
    ) -> dict[str, str]:
        """Ask each client once, and add to the answers; who is to be asked again, and why."""
        messages = (
            self._message(task, self.members[client].node, ask, self._lacking(client, ask, rows))
            for client, ask in asks.items()
        )
        sent = zip(self._push(messages), asks, strict=True)
        waiting = {message_id: client for message_id, client in sent if message_id}
        for client in sorted(set(asks) - set(waiting.values())):
            self._miss(client, task, "the message could not be sent")
        again = {}
        end, pause = monotonic() + self._timeout, 0.02
        while waiting:
            for reply in self._pull(waiting):
                client = waiting.pop(reply.metadata.reply_to_message_id)
                try:
                    answer = self._read(client, asks[client], reply)
                except _AgainError as why:
                    again[client] = str(why)
                except NonsenseError as wrong:
                    self._miss(client, task, str(wrong))
                else:
                    answers[client] = answer
                    self._shelve(client, task, asks[client], answer)
            if monotonic() >= end:
                break
            if waiting:
                sleep(pause)
                pause = min(1.5 * pause, self._interval)
        for client in waiting.values():
            self._miss(client, task, f"no answer in {self._timeout:g} s")
        self._owed.update(waiting)
        return again

    def _lacking(self, client: str, ask: Ask, rows: Mapping[str, Array]) -> dict[str, Array]:
        has = self._shelves[client].names if client in self._shelves else []
        return {name: rows[name] for name in ask.names if name not in has}

    def _shelve(self, client: str, task: str, ask: Ask, answer: Mapping[str, Tensor]) -> None:
        """Remember what the client has now."""
        row_bytes = self._row.numel() * self._row.element_size()
        shelf = self._shelves.setdefault(client, Shelf(row_bytes))
        shelf.put(ask.names)
        if task == "fit":
            shelf.put(name_of(pack(row)) for row in answer["rows"])

    def _message(self, task: str, node: int, ask: Ask, rows: Mapping[str, Array]) -> Message:
        values = {**ask.values, **{f"rows.{role}": names for role, names in ask.rows.items()}}
        kind = "train" if task in _TRAINS else "query"
        return Message(
            content(values, rows=rows), node, f"{kind}.{task}", ttl=_LATE * self._timeout
        )

    def _push(self, messages: Iterable[Message]) -> list[str | None]:
        """Send messages one by one: together they may be too large, and ids would go astray."""
        names: list[str | None] = []
        for message in messages:
            self.wire = _more(self.wire, messages=1, bytes_down=size_of(message.content))
            names += list(self._grid.push_messages([message]))[:1] or [None]
        return names

    def _pull(self, waiting: Collection[str]) -> list[Message]:
        """Answers to what is waited for, one to each question; what else comes is dropped."""
        pulled = self._grid.pull_messages(list(waiting)) if waiting else []
        replies: dict[str, Message] = {}
        for reply in pulled:
            about = reply.metadata.reply_to_message_id
            if about in waiting:
                replies.setdefault(about, reply)
            else:
                _log(WARNING, "an answer to a question that was not asked is dropped")
        sizes = (size_of(reply.content) for reply in replies.values() if reply.has_content())
        self.wire = _more(self.wire, bytes_up=sum(sizes))
        return list(replies.values())

    def _read(self, client: str, ask: Ask, reply: Message) -> dict[str, Tensor]:
        """The arrays that are due, checked."""
        values = _values(reply)
        if values.get("client") != client:
            raise NonsenseError(f"answers as client {values.get('client')!r}")
        if "lacks" in values:
            raise _AgainError("lacks what it was sent")
        arrays = arrays_of(reply.content)
        if set(arrays) != set(ask.due):
            raise NonsenseError(f"sends {sorted(arrays)}, where {sorted(ask.due)} are due")
        found = {name: unpack(arrays[name], *due) for name, due in ask.due.items()}
        for name, tensor in found.items():
            if wrong := _wrong(name, tensor):
                raise NonsenseError(f"sends {name} that are {wrong}")
        return found

    def _introduce(self, node: int, reply: Message) -> None:
        """Take in a client that has said who it is."""
        try:
            member = self._member(node, reply)
        except NonsenseError as wrong:
            times = self._refused.get(node, (0, 0.0))[0] + 1
            pause = _PAUSES[min(times, len(_PAUSES)) - 1]
            self._refused[node] = (times, monotonic() + pause)
            text = "node %s is not taken in: it %s; it is asked again in %g s"
            _log(WARNING, text, node, str(wrong)[:500], pause)
            return
        if self._connected(member.client) and self.members[member.client].node != node:
            why = f"says it is {member.client!r}, but so does another node"
            _log(WARNING, "node %s is not taken in before that one leaves: it %s", node, why)
            self._claims[node] = member
        else:
            self._take_in(member)

    def _settle_claims(self) -> None:
        """A client that has started again takes the place of the node that it was."""
        for node, member in list(self._claims.items()):
            if node not in self._online:
                del self._claims[node]
            elif not self._connected(member.client):
                del self._claims[node]
                self._take_in(member)

    def _take_in(self, member: Member) -> None:
        _log(INFO, "client %r is here", member.client)
        self.members[member.client] = member
        self._shelves.pop(member.client, None)
        self._owed = {owed: c for owed, c in self._owed.items() if c != member.client}

    def _member(self, node: int, reply: Message) -> Member:
        values = _values(reply)
        client, length, dtype = (values.get(key) for key in ("client", "length", "dtype"))
        due = (self._row.numel(), str(self._row.dtype).removeprefix("torch."))
        if not (isinstance(client, str) and client.isprintable() and 1 <= len(client) <= _LONGEST):
            raise NonsenseError(f"gives no name of 1 to {_LONGEST} printable characters")
        if (length, dtype) != due:
            raise NonsenseError(f"has models of {length} {dtype}, where {due[0]} {due[1]} are due")
        sizes = {split: values.get(split, 0) for split in ("train", "validation", "test")}
        for split, size in sizes.items():
            if not isinstance(size, int) or size < (split == "train"):
                raise NonsenseError(f"has {size!r} {split} samples")
        whole = {split: int(str(size)) for split, size in sizes.items() if size}
        for split in self.splits:
            if split not in whole:
                raise NonsenseError(f"has no {split} samples, which all clients here have")
        features = values.get("features")
        if not isinstance(features, int) or features < 1:
            raise NonsenseError(f"has samples of {features!r} features")
        classes, receives = (values.get(key) is True for key in ("classes", "receives"))
        return Member(client, whole, features, classes, receives, node)

    def _wait(self, enough: Callable[[], int], of: Collection[str]) -> None:
        """Wait until enough ``of`` the clients are connected, and say so."""
        said, when = "", 0.0
        while True:
            self.look()
            here, count = self.ready(of), enough()
            if len(here) >= count:
                if said:
                    _log(INFO, "going on with %s clients", len(here))
                return
            missing = sorted(set(of) - set(here))
            names = f"; not here, or late: {', '.join(missing)}" if missing else ""
            state = f"waiting: {len(here)} of at least {count} clients{names}"
            if state != said and monotonic() - when > _SAY:
                _log(WARNING, "%s", state)
                said, when = state, monotonic()
            sleep(min(0.2, self._interval))

    def _miss(self, client: str, task: str, why: str) -> None:
        _log(WARNING, "client %r gives no answer to %s: %s", client, task, why[:500])
        absence = Absence(client, task, why[:500])
        self.wire = _more(self.wire, absences=(absence,))


def _wrong(name: str, tensor: Tensor) -> str:
    """What is wrong with figures that a client sends, if anything.

    A loss may be infinite, if a model is that bad, but never minus infinity, also in float32.
    """
    if name in ("rows", "subspaces"):
        return "" if bool(tensor.isfinite().all()) else "infinite or NaN"
    if bool(tensor.isnan().any()) or bool((tensor.float() == -torch.inf).any()):
        return "NaN or minus infinity"
    shares = tensor if name == "shares" else tensor[..., 1] if name in _SCORES else tensor[:0]
    return "not between 0 and 1" if bool(((shares < 0) | (shares > 1 + 1e-6)).any()) else ""


def _values(reply: Message) -> Mapping[str, object]:
    if reply.has_error():
        reason = (reply.error.reason or "no reason given").strip()
        kind = _AgainError if reply.error.code == ErrorCode.CLIENT_APP_CRASHED else NonsenseError
        raise kind(f"error {reply.error.code}: {reason[:500]}")
    return values_of(reply.content)


def _more(
    wire: Wire,
    messages: int = 0,
    bytes_down: int = 0,
    bytes_up: int = 0,
    absences: tuple[Absence, ...] = (),
) -> Wire:
    return Wire(
        wire.messages + messages,
        wire.bytes_down + bytes_down,
        wire.bytes_up + bytes_up,
        wire.absences + absences,
    )
