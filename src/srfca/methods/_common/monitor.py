"""Monitors: what follows a run, to draw progress bars, to write a log, or to track it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srfca import progress
from srfca.federation.middleware.counting import Budget, MissingReply
from srfca.federation.requests import Scores
from srfca.methods._common.curve import CurvePoint
from srfca.methods._common.stage import Stage

if TYPE_CHECKING:
    from srfca.methods._common.result import Result


@dataclass(frozen=True)
class RunStart:
    """What a run is.

    Args:
        method: Name of the method.
        parameters: Its parameters.
        seed: Of the run.
        client_ids: The clients.
        clustered: Whether the method finds clusters.
    """

    method: str
    parameters: dict[str, object]
    seed: int
    client_ids: tuple[str, ...]
    clustered: bool = True


@dataclass(frozen=True)
class RoundEnd:
    """A round that is done.

    Args:
        training: What is trained: FEDAVG, TRIMMED_MEAN_GD 1, ...
        number: How many rounds of it are done.
        total: How many it has.
        spent: What the run has cost so far.
        missing: The replies of this round that did not come.
        point: The clusters' scores, if they are known.
    """

    training: str
    number: int
    total: int
    spent: Budget
    missing: tuple[MissingReply, ...] = ()
    point: CurvePoint | None = None


class Monitor:
    """Follows a run: a callback of ``fit``. Each method does nothing: override what you need."""

    def run_start(self, start: RunStart) -> None:
        """A run begins."""

    def stage(self, name: str, steps: int) -> AbstractContextManager[progress.Callback]:
        """Enter work of this many local steps, 0 if unknown; the callback gets those done."""
        return nullcontext(progress.ignore)

    def round_end(self, end: RoundEnd) -> None:
        """A round is done."""

    def stage_predictors(self, name: str, request: Scores) -> None:
        """A stage's models are about to be scored on held-out data by this request."""

    def stage_end(self, stage: Stage) -> None:
        """A stage is done, and in the history."""

    def run_end(self, result: Result) -> None:
        """The run has succeeded."""

    def run_failed(self, error: BaseException) -> None:
        """The run ends with an error, or is interrupted."""


class Monitors(Monitor):
    """Several monitors as one.

    Args:
        monitors: Called in this order.
    """

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        self.monitors = tuple(monitors)

    def run_start(self, start: RunStart) -> None:
        """Tell all of them."""
        for monitor in self.monitors:
            monitor.run_start(start)

    def stage(self, name: str, steps: int) -> AbstractContextManager[progress.Callback]:
        """Enter the stage in all of them."""
        return self._stage(name, steps)

    @contextmanager
    def _stage(self, name: str, steps: int) -> Iterator[progress.Callback]:
        with ExitStack() as stack:
            callbacks = [stack.enter_context(m.stage(name, steps)) for m in self.monitors]

            def report(steps: int) -> None:
                for callback in callbacks:
                    callback(steps)

            yield report

    def round_end(self, end: RoundEnd) -> None:
        """Tell all of them."""
        for monitor in self.monitors:
            monitor.round_end(end)

    def stage_predictors(self, name: str, request: Scores) -> None:
        """Tell all of them."""
        for monitor in self.monitors:
            monitor.stage_predictors(name, request)

    def stage_end(self, stage: Stage) -> None:
        """Tell all of them."""
        for monitor in self.monitors:
            monitor.stage_end(stage)

    def run_end(self, result: Result) -> None:
        """Tell all of them."""
        for monitor in self.monitors:
            monitor.run_end(result)

    def run_failed(self, error: BaseException) -> None:
        """Tell all of them."""
        for monitor in self.monitors:
            monitor.run_failed(error)


def as_monitor(callbacks: Monitor | Sequence[Monitor] | None) -> Monitor:
    """Return one monitor for all callbacks of a run."""
    if isinstance(callbacks, Monitor):
        return callbacks
    return Monitors(callbacks or ())
