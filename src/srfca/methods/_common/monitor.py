"""Monitors: what follows a run, to draw progress bars, to write a log, or to track it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srfca import progress
from srfca.errors import require
from srfca.federation.middleware.counting import Budget, MissingReply
from srfca.federation.requests import Scores
from srfca.methods._common.curve import CurvePoint
from srfca.methods._common.stage import Stage

if TYPE_CHECKING:
    from srfca.methods._common.result import Result


@dataclass(frozen=True)
class RunStart:
    """What a run is.

    The example of ``Monitor`` shows it.

    Args:
        method: Name of the method.
        parameters: Its parameters.
        seed: Seed of the run.
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

    The example of ``Monitor`` shows it.

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
    """Follows a run: a callback of ``fit``. Each method does nothing: override what you need.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import FedAvg
        >>> class Printer(Monitor):
        ...     def run_start(self, start):
        ...         print(start.method, "with seed", start.seed)
        ...     def round_end(self, end):
        ...         print("round", end.number, "of", end.total)
        ...     def stage_end(self, stage):
        ...         print(stage.name, stage.budget.local_steps, "steps")
        >>> federation = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> method = FedAvg(local=LocalTraining(steps=10))
        >>> result = method.fit(federation, callbacks=Printer())
        Global with seed 0
        round 1 of 2
        round 2 of 2
        FEDAVG 40 steps
    """

    def run_start(self, start: RunStart) -> None:
        """Follow the start of a run.

        Args:
            start: What the run is.
        """

    def stage(self, name: str, steps: int) -> AbstractContextManager[progress.Callback]:
        """Enter work of this many local steps, 0 if unknown; the callback gets those done.

        Args:
            name: Name of the stage.
            steps: Local steps of all clients together.

        Returns:
            A context; ``with`` it the work is done.
        """
        return nullcontext(progress.ignore)

    def round_end(self, end: RoundEnd) -> None:
        """Follow the end of a round.

        Args:
            end: What was done.
        """

    def stage_predictors(self, name: str, request: Scores) -> None:
        """Follow a stage whose models are about to be scored on held-out data.

        Args:
            name: Name of the stage.
            request: It scores them.
        """

    def stage_end(self, stage: Stage) -> None:
        """Follow the end of a stage, which is in the history now.

        Args:
            stage: The stage.
        """

    def run_end(self, result: Result) -> None:
        """Follow the end of a run that has succeeded.

        Args:
            result: Result of the run.
        """

    def run_failed(self, error: BaseException) -> None:
        """Follow the end of a run by an error or an interruption.

        Args:
            error: What was raised.
        """


class Monitors(Monitor):
    """Several monitors as one.

    Args:
        monitors: Called in this order.

    Examples:
        >>> from srfca.callbacks import ProgressBars
        >>> monitor = Monitors([ProgressBars(), Monitor()])
    """

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        self.monitors = tuple(monitors)

    def run_start(self, start: RunStart) -> None:
        """Notify all monitors."""
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
        """Notify all monitors."""
        for monitor in self.monitors:
            monitor.round_end(end)

    def stage_predictors(self, name: str, request: Scores) -> None:
        """Notify all monitors."""
        for monitor in self.monitors:
            monitor.stage_predictors(name, request)

    def stage_end(self, stage: Stage) -> None:
        """Notify all monitors."""
        for monitor in self.monitors:
            monitor.stage_end(stage)

    def run_end(self, result: Result) -> None:
        """Notify all monitors."""
        for monitor in self.monitors:
            monitor.run_end(result)

    def run_failed(self, error: BaseException) -> None:
        """Notify all monitors."""
        for monitor in self.monitors:
            monitor.run_failed(error)


def as_monitor(callbacks: Monitor | Sequence[Monitor] | None) -> Monitor:
    """Return one monitor for all callbacks of a run.

    Raises:
        InputError: If something else is among them.
    """
    if isinstance(callbacks, Monitor):
        return callbacks
    several = () if callbacks is None else callbacks
    for callback in several if isinstance(several, Sequence) else [several]:
        require(
            isinstance(callback, Monitor),
            f"callbacks must be one or several srfca.callbacks.Monitor, not {callback!r}",
        )
    return Monitors(several)
