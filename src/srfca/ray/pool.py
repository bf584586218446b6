"""The workers of a federation: calls to their shards, and what happens when a worker is lost."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

import ray
from ray.exceptions import RayError

from srfca import progress
from srfca.errors import InputError
from srfca.federation.local_training import KEPT_TRAININGS
from srfca.federation.replies import Traffic
from srfca.random import Key
from srfca.ray.balance import Balance, Timing
from srfca.ray.cluster import Room
from srfca.ray.description import Description
from srfca.ray.messages import Message, pack, unpack
from srfca.ray.shards import ShardSource
from srfca.ray.worker import Answer, Settings, Usage, Worker

_START_SECONDS = 300.0
"""How long the first workers may take to start, or to wait for their place."""
_MAX_HISTORY_BYTES = 2**27
"""Bytes of requests to repeat for a shard, from which on what its clients keep is fetched."""

Training = tuple[int, str]
"""Seed and purpose of a training."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Shared:
    """An object that each machine gets once.

    Args:
        reference: To it.
        num_bytes: Its size.
    """

    reference: Any
    num_bytes: int


@dataclass(frozen=True, eq=False)
class Call:
    """A method of a shard, and its arguments.

    Args:
        message: The packed name and arguments.
        extra: One more argument, or None: what shards share, or a reference.
        steps: Local steps that it takes, for progress.
        samples: That it trains on, each counted in every step; 0 if it does not train.
    """

    message: Message
    extra: Any = None
    steps: int = 0
    samples: float = 0.0

    @classmethod
    def of(
        cls,
        method: str,
        *arguments: Any,
        extra: Any = None,
        steps: int = 0,
        samples: float = 0.0,
    ) -> Call:
        """Return a call of a method."""
        return cls(pack((method, arguments)), extra, steps, samples)

    @property
    def reference(self) -> Any:
        """The further argument as workers get it."""
        return self.extra.reference if isinstance(self.extra, Shared) else self.extra

    @property
    def num_bytes(self) -> int:
        """The size of the call, with what it shares with others."""
        shared = self.extra.num_bytes if isinstance(self.extra, Shared) else 0
        return self.message.num_bytes + shared


@dataclass
class History:
    """What has to be repeated if a shard starts again: the rounds that its clients keep state of.

    Args:
        state: The call that restores what clients kept before these rounds, if they did.
        rounds: Calls by training, each with whether clients keep coordinates of it for good.
    """

    state: Call | None = None
    rounds: list[tuple[Training, bool, Call]] = field(default_factory=list)

    def add(self, training: Training, is_first: bool, is_personal: bool, call: Call) -> None:
        """Add a round. Its training restarts if it is the first.

        Optimizer states are kept for the last trainings, personal coordinates for all.
        """
        kept = [entry for entry in self.rounds if not (is_first and entry[0] == training)]
        self.rounds = [*kept, (training, is_personal, call)]
        transient = list(dict.fromkeys(entry[0] for entry in self.rounds if not entry[1]))
        old = set(transient[:-KEPT_TRAININGS])
        self.rounds = [entry for entry in self.rounds if entry[1] or entry[0] not in old]

    @property
    def num_bytes(self) -> int:
        """The size of the calls."""
        return sum(call.num_bytes for _, _, call in self.rounds)


class Pool:
    """Workers, and the shards that they host.

    A worker that is lost, because its process or its machine has ended, is replaced: a new one
    hosts its shards, repeats the rounds that these shards' clients keep state of, and then the call
    that was lost. If there is no room for a new worker, the others share its shards.

    Where a worker is slow, one of its shards moves to the fastest one (``rebalance``).

    Args:
        sources: What makes the data of each shard.
        settings: What the shards have in common.
        room: How many workers, and what each gets.
        retries: How often workers may be lost during one request.
        patience: Seconds to wait for a worker that replaces another one.

    Attributes:
        traffic: What went between the driver and the workers.
        losses: How many workers were lost so far.
        moves: How many shards have moved from a slow worker to another one.

    Raises:
        InputError: If the workers do not start, or a shard cannot be made.
    """

    def __init__(
        self,
        sources: Sequence[ShardSource],
        settings: Settings,
        room: Room,
        retries: int,
        patience: float,
    ) -> None:
        self._room, self._retries, self._patience = room, retries, patience
        self._actor = ray.remote(Worker)
        self.traffic, self.losses, self._losses_now, self.moves = Traffic(), 0, 0, 0
        self._settings = self._put(pack(settings))
        self._sources = [(self._put(pack(source.make)), source.blocks) for source in sources]
        self._balance = Balance()
        count = min(room.workers, len(sources))
        self._workers: dict[int, Any] = {number: self._start() for number in range(count)}
        self._next_worker = count
        self._host_of = [shard % count for shard in range(len(sources))]
        self._starts = [0] * len(sources)
        self._histories = [History() for _ in sources]
        self._held: dict[int, Call] = {}
        self._wait_for_workers()
        self._described: dict[int, Description] = {}
        self._homeless = set(range(len(sources)))
        try:
            self._host_homeless()
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        return len(self._workers)

    @property
    def descriptions(self) -> list[Description]:
        """What the shards say of their clients."""
        return [self._described[shard] for shard in range(len(self))]

    def starts_of(self, shard: int) -> int:
        """Return how often a shard has started: it then remembers nothing of what was sent."""
        return self._starts[shard]

    def share(self, value: Any) -> Shared:
        """Put an object where all machines can fetch it, once for each."""
        message = pack(value, name=uuid4().hex)
        return Shared(self._put(message), message.num_bytes)

    def call(
        self,
        make_calls: Callable[[Sequence[int]], Mapping[int, Call]],
        shards: Sequence[int],
        report: progress.Callback = progress.ignore,
    ) -> dict[int, Any]:
        """Call shards at the same time, and return their answers.

        Args:
            make_calls: Makes the calls of some shards; again for those that were lost.
            shards: The shards to call.
            report: Called with the local steps of a call when its answer is there.

        Raises:
            InputError: If a worker raised one, or workers are lost again and again.
        """
        self._losses_now = 0
        pending: dict[Any, tuple[int, Call]] = {}
        answers: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        timings: dict[int, Timing] = {}
        remaining = list(shards)
        while remaining or pending:
            for shard, call in make_calls(remaining).items():
                pending[self.refer(shard, call)] = shard, call
            remaining = []
            [ready], _ = ray.wait(list(pending), num_returns=1)
            shard, call = pending.pop(ready)
            try:
                answer = self._receive(ray.get(ready))
                timings[shard] = Timing(answer.seconds, call.samples)
                answers[shard] = answer.get()
                report(call.steps)
            except RayError as error:
                lost = self._host_of[shard]
                remaining = [shard, *(s for s, _ in pending.values() if self._host_of[s] == lost)]
                pending = {r: entry for r, entry in pending.items() if entry[0] not in remaining}
                self._lose(lost, error)
                self._host_homeless()
            except Exception as error:  # raised by the worker: wait for the others
                failures[shard] = error
        for shard in sorted(failures):
            raise failures[shard]
        self._balance.note(self._host_of, timings)
        return answers

    def rebalance(self) -> None:
        """Move a shard from a slow worker to the fastest one, if that makes requests faster.

        Shards forget the rows of a round by it: call this between requests.
        """
        move = self._balance.suggest(self._host_of)
        if move is None:
            return
        if self._histories[move.shard].rounds:
            self._fetch_state(move.shard)  # to be restored, instead of repeating these rounds
        before = self._host_of[move.shard]
        if move.host not in self._workers or before not in self._workers:
            return
        self.moves += 1
        self._losses_now = 0
        self._host_of[move.shard] = move.host
        self._homeless.add(move.shard)
        self._host_homeless()
        if before in self._workers:
            self._workers[before].drop.remote(move.shard)

    def remember(self, shard: int, key: Key, personal: bool, call: Call) -> None:
        """Note a round that the shard's clients keep state of, so that it can be repeated."""
        self._histories[shard].add((key.seed, key.purpose), key.round == 0, personal, call)

    def shorten_histories(self) -> None:
        """Fetch what clients keep, where the rounds to repeat have become large."""
        for shard, history in enumerate(self._histories):
            if history.num_bytes > _MAX_HISTORY_BYTES:
                self._fetch_state(shard)

    def hold(self, calls: Mapping[int, Call]) -> None:
        """Repeat these calls too if their shards start again, until ``release``."""
        self._held = dict(calls)

    def release(self) -> None:
        """Do not repeat the calls of ``hold`` any more."""
        self._held = {}

    def chain(self, exchange: Callable[[], T]) -> T:
        """Return what an exchange among workers returns; it is repeated if a worker was lost.

        Args:
            exchange: Calls ``refer``, ``refer_any`` and ``get``, and returns what it got.

        Raises:
            InputError: If a worker raised one, or workers are lost again and again.
        """
        self._losses_now = 0
        while True:
            try:
                return exchange()
            except RayError as error:
                self._lose_unreachable(error)
                self._host_homeless()

    def refer(self, shard: int, call: Call) -> Any:
        """Call a shard, and return a reference to its answer."""
        self.traffic += Traffic(1, call.message.num_bytes, 0)
        worker = self._workers[self._host_of[shard]]
        return worker.call.remote(shard, call.message, call.reference)

    def refer_apart(self, shard: int, call: Call, count: int) -> list[Any]:
        """Call a method of a shard that returns ``count`` answers; return a reference to each."""
        self.traffic += Traffic(1, call.message.num_bytes, 0)
        method = self._workers[self._host_of[shard]].call_apart.options(num_returns=count)
        references = method.remote(shard, call.message, call.reference, count)
        return [references] if count == 1 else references

    def refer_any(self, number: int, method: str, argument: Any, references: Sequence[Any]) -> Any:
        """Call a method of some worker with the answers of others; return a reference.

        Args:
            number: Different numbers are different workers, as far as there are.
            method: Method of ``Worker``.
            argument: Its first argument.
            references: Its other arguments.
        """
        message = pack(argument)
        self.traffic += Traffic(1, message.num_bytes, 0)
        workers = list(self._workers.values())
        return getattr(workers[number % len(workers)], method).remote(message, *references)

    def get(self, references: Sequence[Any]) -> list[Any]:
        """Return the answers that references are of."""
        return [self._open(message) for message in ray.get(list(references))]

    def usage(self) -> list[Usage]:
        """Return what each worker has used so far."""
        return list(ray.get([worker.usage.remote() for worker in self._workers.values()]))

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers.values():
            self._kill(worker)
        self._workers = {}

    def _put(self, message: Message) -> Any:
        self.traffic += Traffic(0, message.num_bytes, 0)
        return ray.put(message)

    def _open(self, message: Message) -> Any:
        return self._receive(message).get()

    def _receive(self, message: Message) -> Answer:
        self.traffic += Traffic(0, 0, message.num_bytes)
        answer: Answer = unpack(message)
        for text, category in answer.warnings:
            warnings.warn(text, category, stacklevel=3)
        return answer

    def _fetch_state(self, shard: int) -> None:
        """Fetch what the clients of a shard keep, instead of noting the rounds that led to it."""
        answers = self.call(lambda shards: {s: Call.of("state") for s in shards}, [shard])
        self._histories[shard] = History(Call.of("restore", answers[shard]))

    def _start(self) -> Any:
        options = self._room.actor_options()
        return self._actor.options(**options).remote(self._room.threads, self._room.gpus > 0)

    def _wait_for_workers(self) -> None:
        pings = [worker.ping.remote() for worker in self._workers.values()]
        ready, waiting = ray.wait(pings, num_returns=len(pings), timeout=_START_SECONDS)
        try:
            ray.get(ready)
        except RayError as error:
            self.close()
            raise InputError(
                "a worker does not start: srfca and what your model needs must be installed on "
                f"every machine of the cluster ({error})"
            ) from error
        if waiting:
            self.close()
            raise InputError(
                f"only {len(ready)} of {len(pings)} workers have started within "
                f"{_START_SECONDS:g} s: other jobs use the cluster; ask for fewer actors"
            )

    def _host_homeless(self) -> None:
        """Let workers make the shards that have none, and repeat what their clients keep."""
        while self._homeless:
            started = {shard: self._start_shard(shard) for shard in sorted(self._homeless)}
            for shard, references in started.items():
                host = self._host_of[shard]
                try:
                    description, *_ = [self._open(message) for message in ray.get(references)]
                except RayError as error:
                    if self._host_of[shard] == host:
                        self._lose(host, error)
                    continue
                self._described[shard] = description
                self._homeless.discard(shard)

    def _start_shard(self, shard: int) -> list[Any]:
        """Return references to the description of a shard, and to answers that are not needed."""
        self._starts[shard] += 1
        worker, history = self._workers[self._host_of[shard]], self._histories[shard]
        calls = [call for _, _, call in history.rounds]
        if history.state is not None:
            calls.insert(0, history.state)
        if shard in self._held:
            calls.append(self._held[shard])
        source, blocks = self._sources[shard]
        described = worker.host.remote(shard, source, self._settings, *blocks)
        return [described, *(self.refer(shard, call) for call in calls)]

    def _lose(self, lost: int, error: RayError) -> None:
        """Replace a worker by a new one, or by the others; its shards have no home then.

        Raises:
            InputError: If there is no worker left, and none can be started.
        """
        self.losses += 1
        self._losses_now += 1
        if self._losses_now > self._retries:
            raise InputError(
                f"workers were lost {self._losses_now} times during one request: if memory ran "
                f"out, use more machines, fewer actors for each, or fewer clients ({error})"
            ) from error
        self._kill(self._workers.pop(lost))
        worker = self._start()
        patience = self._patience if self._workers else max(self._patience, _START_SECONDS)
        ready, _ = ray.wait([worker.ping.remote()], timeout=patience)
        if ready and self._answers(ready[0]):
            self._workers[self._next_worker] = worker
            hosts = [self._next_worker]
            self._next_worker += 1
        else:
            self._kill(worker)
            hosts = list(self._workers)
        if not hosts:
            raise InputError(
                "all workers of the Ray cluster are lost, and no new one starts: see 'ray status'"
            ) from error
        shards = [shard for shard, host in enumerate(self._host_of) if host == lost]
        for position, shard in enumerate(shards):
            self._host_of[shard] = hosts[position % len(hosts)]
        self._homeless.update(shards)

    def _lose_unreachable(self, error: RayError) -> None:
        """Replace the workers that do not answer any more; there may be none."""
        unreachable = [
            number
            for number, worker in self._workers.items()
            if not self._answers(worker.ping.remote())
        ]
        if not unreachable:
            self._losses_now += 1
            if self._losses_now > self._retries:
                raise InputError(f"the Ray cluster lost data again and again: {error}") from error
        for number in unreachable:
            self._lose(number, error)

    def _answers(self, reference: Any) -> bool:
        try:
            ray.get(reference)
        except RayError:
            return False
        return True

    def _kill(self, worker: Any) -> None:
        with suppress(RayError):
            ray.kill(worker)
