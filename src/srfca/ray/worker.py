"""A worker: a process of the cluster that simulates the clients of one shard or more."""

from __future__ import annotations

import resource
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import getppid
from socket import gethostname
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from srfca.data.client_data import ClientData
from srfca.engine.simulation import Simulation
from srfca.errors import InputError
from srfca.federation.requests import Request
from srfca.ray.description import Description, Moments
from srfca.ray.messages import Message, pack, unpack
from srfca.ray.reductions import (
    Block,
    Participants,
    ShardTraining,
    TrainedRows,
    aggregate_parts,
    change_bounds,
    train,
)

MAX_KEPT = 8
"""Sets of participants that a shard remembers."""


@dataclass(frozen=True)
class Settings:
    """What all shards have in common.

    Args:
        model: As for ``Simulation``.
        arguments: Arguments of ``Simulation`` other than data and model.
    """

    model: nn.Module | Callable[[], nn.Module]
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a worker replies.

    Args:
        value: The answer.
        error: What was raised instead, if something was.
        warnings: Texts and kinds of warnings.
        seconds: How long it took.
        node: Where it was made.
    """

    value: Any = None
    error: Exception | None = None
    warnings: tuple[tuple[str, type[Warning]], ...] = ()
    seconds: float = 0.0
    node: str = ""

    @classmethod
    def of(cls, answer: Callable[[], Any]) -> Answer:
        """Return what a function returns or raises, and what srfca warns of meanwhile."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                value, error = answer(), None
            except Exception as raised:  # it is the driver's to raise
                value, error = None, _sendable(raised)
        ours = [w for w in caught if w.category.__module__.startswith("srfca.")]
        for warning in caught:
            if warning not in ours:
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )
        return cls(value, error, tuple((str(w.message), w.category) for w in ours))

    def get(self) -> Any:
        """Return the value.

        Raises:
            Exception: What was raised on the worker.
        """
        if self.error is not None:
            raise self.error
        return self.value


def _sendable(error: Exception) -> Exception:
    """Return an error that can be pickled, and says where it was raised unless a user can tell."""
    if isinstance(error, InputError):
        return InputError(str(error))
    return RuntimeError(f"a worker raised:\n{''.join(traceback.format_exception(error))}")


class Shard:
    """The clients of one shard, on their worker."""

    def __init__(self, data: ClientData, settings: Settings, has_gpu: bool) -> None:
        arguments = dict(settings.arguments)
        if arguments.get("device", "auto") == "auto":
            arguments["device"] = "cuda" if has_gpu else "cpu"
        self._fingerprint = data.fingerprint()
        self.simulation = simulation = Simulation(data, settings.model, **arguments)
        simulation.data = replace(data, train=simulation.samples_of("train"))  # frees the others
        self._participants: OrderedDict[str, Participants] = OrderedDict()
        self._trained: TrainedRows | None = None
        self._lengths: list[Tensor] | None = None
        self._shortened: TrainedRows | None = None

    def describe(self) -> Description:
        """Return what the driver has to know."""
        simulation, data = self.simulation, self.simulation.data
        is_squared = simulation.signature.loss == "squared_error"
        return Description(
            client_ids=tuple(simulation.client_ids),
            sizes={split: simulation.sizes_of(split).cpu() for split in simulation.splits},
            signature=simulation.signature,
            fingerprint=self._fingerprint,
            settings_fingerprint=simulation.settings_fingerprint(),
            constant_loss=simulation.constant_loss,
            targets=Moments.of(simulation.samples_of("train").y) if is_squared else None,
            num_classes=simulation.num_classes,
            schema=data.schema,
            truth=None if data.truth is None else data.truth.labels,
            device=str(simulation.device),
        )

    def ask(self, request: Request[Any], models: Tensor | None = None) -> Any:
        """Answer a request. Models that all shards get may come apart."""
        if models is not None:
            request = replace(request, models=models)  # type: ignore[call-arg]
        return self.simulation.ask(request).values

    def train(
        self,
        training: ShardTraining,
        name: str,
        participants: Participants | None,
        models: Tensor | None = None,
    ) -> NDArray[np.int64]:
        """Do the training of a round, and keep the rows.

        Args:
            training: How to train.
            name: Name of the participants, by which they are remembered.
            participants: The clients that take part; None if they are remembered.
            models: Models of the clusters, if they come apart.

        Returns:
            The positions of rows that are infinite or NaN.
        """
        if participants is not None:
            self._participants[name] = participants
            while len(self._participants) > MAX_KEPT:
                self._participants.popitem(last=False)
        self._participants.move_to_end(name)
        self.forget_rows()
        if models is not None:
            training = replace(training, models=models)
        self._trained = train(self.simulation, training, self._participants[name])
        return self._trained.not_finite

    def train_and_sum(
        self,
        training: ShardTraining,
        name: str,
        participants: Participants | None,
        weighted: bool,
        models: Tensor | None = None,
    ) -> tuple[NDArray[np.int64], Any]:
        """Do the training of a round, and return the sums of the rows that are finite."""
        bad = self.train(training, name, participants, models)
        sums = self._rows(bad).sums(weighted)
        self.forget_rows()
        return bad, sums

    def lengths(self, bad: NDArray[np.int64]) -> list[Tensor]:
        """Return the lengths of changes, without those of bad rows."""
        if self._lengths is None:
            self._lengths = self._rows(bad).lengths()
        return self._lengths

    def sums(self, bad: NDArray[np.int64], weighted: bool, bounds: Any = None) -> Any:
        """Return the sums of the rows that are not bad."""
        return self._bounded_rows(bad, bounds).sums(weighted)

    def parts(self, bad: NDArray[np.int64], blocks: Sequence[Block], bounds: Any = None) -> Any:
        """Return coordinates of the rows of some clusters, for each block, without bad rows."""
        rows = self._bounded_rows(bad, bounds)
        return [rows.part(*block) for block in blocks]

    def forget_rows(self) -> None:
        """Free the rows of the round."""
        self._trained = self._lengths = self._shortened = None

    def state(self) -> Any:
        """Return what clients keep between rounds."""
        simulation = self.simulation
        return simulation.optimizer_states, simulation.personal.values, simulation.residuals.values

    def restore(self, state: Any) -> None:
        """Continue from a ``state``."""
        simulation = self.simulation
        simulation.optimizer_states, simulation.personal.values, simulation.residuals.values = state

    def _bounded_rows(self, bad: NDArray[np.int64], bounds: list[Tensor] | None) -> TrainedRows:
        """Return the rows that are not bad, with changes shortened: once for all parts."""
        if bounds is None:
            return self._rows(bad)
        if self._shortened is None:
            self._shortened = self._rows(bad).shortened(bounds, self.lengths(bad))
            self._trained = None  # the lengths are all that is still asked of them
        return self._shortened

    def _rows(self, bad: NDArray[np.int64]) -> TrainedRows:
        assert self._trained is not None
        return self._trained.without(bad)


@dataclass(frozen=True)
class Usage:
    """What a worker has used so far.

    Args:
        cpu_seconds: Seconds of its CPUs.
        peak_bytes: The most bytes of memory.
        node: The machine, or the simulated one, that it is on.
        bytes_in: Messages to it, from the driver and from workers. Those that its machine gets
            once count once.
        bytes_out: Messages from it.
        bytes_within: Those among ``bytes_in`` that came from a worker of the same node.
    """

    cpu_seconds: float
    peak_bytes: int
    node: str
    bytes_in: int
    bytes_out: int
    bytes_within: int


class Worker:
    """The process. Ray starts it, and calls its methods one after another.

    What it raises is part of its replies, so that an exception of Ray is always a lost worker.

    Args:
        threads: How many threads it computes with.
        has_gpu: Whether Ray has given it a GPU.
    """

    def __init__(self, threads: int, has_gpu: bool) -> None:
        torch.set_num_threads(threads)
        self._has_gpu = has_gpu
        self._shards: dict[int, Shard] = {}
        self._shared: tuple[str, Any] = ("", None)
        self._bytes_in = self._bytes_out = self._bytes_within = 0
        self._node = f"{gethostname()} {getppid()}"
        self.clock = perf_counter

    def ping(self) -> None:
        """Report that the process is running."""

    def usage(self) -> Usage:
        """Return what the process has used so far."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Usage(
            used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss, self._node,
            self._bytes_in, self._bytes_out, self._bytes_within,
        )  # fmt: skip

    def host(self, number: int, source: Message, settings: Message, *blocks: Any) -> Message:
        """Take over a shard, and describe it.

        Args:
            number: Number of the shard.
            source: The function that makes its data.
            settings: What all shards have in common.
            blocks: What the function is called with.
        """

        def make() -> Description:
            data = self._open(source)(*blocks)
            self._shards[number] = Shard(data, self._open(settings), self._has_gpu)
            return self._shards[number].describe()

        self._bytes_in += sum(int(getattr(block, "nbytes", 0)) for block in blocks)
        return self._reply(make)

    def drop(self, number: int) -> None:
        """Free a shard that another worker has."""
        self._shards.pop(number, None)

    def call(self, number: int, message: Message, extra: Message | None = None) -> Message:
        """Call a method of a shard.

        Args:
            number: Number of the shard.
            message: The name of the method, and its arguments.
            extra: One more argument, which many shards get, or which comes from another worker.
        """
        return self._reply(lambda: self._call(number, message, extra))

    def call_apart(
        self, number: int, message: Message, extra: Message | None, count: int
    ) -> list[Message] | Message:
        """Call a method of a shard that returns ``count`` answers, and reply them apart."""
        answered = Answer.of(lambda: self._call(number, message, extra))
        values = [None] * count if answered.error is not None else answered.value
        replies = [pack(replace(answered, value=value, node=self._node)) for value in values]
        self._bytes_out += sum(reply.num_bytes for reply in replies)
        return replies if count > 1 else replies[0]  # Ray takes a list apart if there are more

    def bounds(self, message: Message, *lengths: Message) -> Message:
        """Return the bounds on changes, from the lengths of all shards."""
        return self._reply(
            lambda: change_bounds([self._open(part) for part in lengths], self._open(message))
        )

    def aggregate(self, message: Message, *parts: Message) -> Message:
        """Aggregate coordinates of rows, from the parts of all shards."""
        return self._reply(
            lambda: aggregate_parts([self._open(part) for part in parts], *self._open(message))
        )

    def _call(self, number: int, message: Message, extra: Message | None) -> Any:
        method, arguments = self._open(message)
        more = () if extra is None else (self._open(extra),)
        return getattr(self._shards[number], method)(*arguments, *more)

    def _open(self, message: Message) -> Any:
        """Return the value of a message. One that many shards get is opened once."""
        if message.name and message.name == self._shared[0]:
            return self._shared[1]
        if message.name:
            self._shared = ("", None)  # before the next one is opened
        self._bytes_in += message.num_bytes
        value = unpack(message)
        if isinstance(value, Answer):
            self._bytes_within += message.num_bytes if value.node == self._node else 0
            value = value.get()
        if message.name:
            self._shared = message.name, value
        return value

    def _reply(self, answer: Callable[[], Any]) -> Message:
        start = self.clock()
        reply = Answer.of(answer)
        message = pack(replace(reply, seconds=self.clock() - start, node=self._node))
        self._bytes_out += message.num_bytes
        return message
