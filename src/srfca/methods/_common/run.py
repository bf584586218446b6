"""What surrounds a method while it runs: its clients, its seed, progress, history and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.base import Federation, Mixture, Scores, Tick, silent
from srfca.federation.counted import Budget, Counted
from srfca.federation.journal import Journal, Journaled
from srfca.methods.result import Stage


class Monitor(Protocol):
    """Is shown the stages of a run, to draw progress bars or to write a log."""

    def stage(self, name: str, steps: int) -> AbstractContextManager[Tick]:
        """Enter a stage of so many local steps, and be ticked as they are done."""
        ...


class Quiet:
    """A monitor that shows nothing."""

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[Tick]:
        """Enter a stage."""
        yield silent


class Run:
    """One run of a method: the federation it asks, the seed of its draws, and its history.

    Whatever is asked of ``federation`` is counted. The scores of the history are not, nor are the
    losses that newcomers are placed by later.
    """

    def __init__(
        self,
        federation: Federation,
        seed: int = 0,
        monitor: Monitor | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.journal = journal
        if journal is not None:
            federation = Journaled(federation, journal)
        self.federation = Counted(federation)
        self.seed = seed
        self.monitor = monitor or Quiet()
        self.history: list[Stage] = []
        self._since = perf_counter()
        self._spent = Budget()
        self._wire = federation.wire

    def stage(self, name: str, steps: int = 0) -> AbstractContextManager[Tick]:
        """Show a stage of so many local steps."""
        return self.monitor.stage(name, steps)

    def latest(self, training: str, **begin: Tensor) -> dict[str, Tensor]:
        """Where a training stood when the run was killed, or where it begins."""
        known = None if self.journal is None else self.journal.latest(training)
        if known is None:
            return begin
        self.federation.restore(
            {name: known[f"counted {name}"] for name in self.federation.state()}
        )
        return {name: known[name].to(tensor.device) for name, tensor in begin.items()}

    def checkpoint(self, training: str, **now: Tensor) -> None:
        """Write down where a training stands."""
        if self.journal is not None:
            counted = {f"counted {name}": t for name, t in self.federation.state().items()}
            self.journal.checkpoint(training, now | counted)

    def record(
        self,
        name: str,
        partition: Partition,
        predictors: Tensor | Mixture | Scores,
        distances: np.ndarray | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        """Write down how a stage left things, scored on held-out data if there is any.

        ``predictors`` are the models ``[c, P]`` of the clients that are in a cluster, or of all,
        their mixtures, or the scores that they are known to have there.
        """
        now = perf_counter()
        loss = accuracy = None
        if "validation" in self.federation.splits:
            scores = (
                predictors if isinstance(predictors, Scores) else self._score(partition, predictors)
            )
            loss = float(scores.loss.nanmean())
            accuracy = None if scores.accuracy is None else float(scores.accuracy.nanmean())
        self.history.append(
            Stage(
                name=name,
                labels=tuple(int(label) for label in partition.labels),
                seconds=now - self._since,
                loss=loss,
                accuracy=accuracy,
                budget=self.federation.spent - self._spent,
                notes={**(notes or {}), **self._on_the_wire()},
                distances=distances,
            )
        )
        self._since, self._spent = perf_counter(), self.federation.spent

    def _on_the_wire(self) -> dict[str, Any]:
        """What has gone over the wire since the last stage, and who did not answer, if any."""
        before, self._wire = self._wire, self.federation.wire
        notes: dict[str, Any] = {}
        if self._wire.messages > before.messages:
            notes["wire"] = {
                name: getattr(self._wire, name) - getattr(before, name)
                for name in ("messages", "bytes_down", "bytes_up")
            }
        if absences := self._wire.absences[len(before.absences) :]:
            notes["absent"] = [asdict(absence) for absence in absences]
        return notes

    def _score(self, partition: Partition, predictors: Tensor | Mixture) -> Scores:
        scored = np.flatnonzero(partition.labels >= 0)
        if len(predictors) == len(partition):
            scored = np.arange(len(partition))
        uncounted = self.federation.federation
        return uncounted.scores(predictors, scored.tolist(), "validation")
