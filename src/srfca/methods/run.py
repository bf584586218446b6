"""What surrounds a method while it runs: progress and history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.base import Federation, Tick, silent
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


class Recorder:
    """Collects the history of a run."""

    def __init__(self, federation: Federation, monitor: Monitor | None) -> None:
        self.federation = federation
        self.monitor = monitor or Quiet()
        self.history: list[Stage] = []
        self._since = perf_counter()

    def stage(self, name: str, steps: int = 0) -> AbstractContextManager[Tick]:
        """Show a stage of so many local steps."""
        return self.monitor.stage(name, steps)

    def record(
        self,
        name: str,
        partition: Partition,
        client_models: Tensor,
        distances: np.ndarray | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        """Write down how a stage left things, scored on held-out data if there is any.

        ``client_models`` are the models ``[c, P]`` of the clients that are in a cluster, or of all.
        """
        now = perf_counter()
        loss = accuracy = None
        if "validation" in self.federation.splits:
            scored = np.flatnonzero(partition.labels >= 0)
            if len(client_models) == len(partition):
                scored = np.arange(len(partition))
            scores = self.federation.scores(client_models, scored.tolist(), "validation")
            loss = float(scores.loss.mean())
            accuracy = None if scores.accuracy is None else float(scores.accuracy.mean())
        labels = tuple(int(label) for label in partition.labels)
        self.history.append(
            Stage(name, labels, now - self._since, loss, accuracy, notes or {}, distances)
        )
        self._since = perf_counter()
