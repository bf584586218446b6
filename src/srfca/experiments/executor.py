"""Runs of one experiment, one after another, saved as they finish."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from srfca.analysis import Analysis
from srfca.analysis.files import ANALYSIS_FILE
from srfca.callbacks import make_trackers
from srfca.errors import InputError, SrfcaWarning, describe
from srfca.experiments import runner, saved
from srfca.experiments.answer import analyze_run
from srfca.experiments.experiment import Experiment
from srfca.experiments.metrics import Metrics
from srfca.experiments.runner import SimulatedClients
from srfca.locks import locked
from srfca.methods import Monitor, Monitors
from srfca.methods.registry import method_name
from srfca.progress import Callback


@dataclass(frozen=True)
class RunSpec:
    """What to run.

    Args:
        method: Key of the method.
        seed: Decides the data and every draw.
        k: The number of clusters, for a method that needs it.
        settings: Changes of the experiment, as ``--set`` takes them.
        experiment: Name of the experiment, if there are several.
        row: Key of the table's row, if a method has several.
    """

    method: str
    seed: int
    k: int | None = None
    settings: tuple[str, ...] = ()
    experiment: str = ""
    row: str = ""

    def __str__(self) -> str:
        k = "" if self.k is None else f" K={self.k}"
        experiment = f"{self.experiment}, " if self.experiment else ""
        return f"{experiment}{self.row or method_name(self.method)}{k} seed {self.seed}"

    @property
    def label(self) -> str:
        """Row or method, K and seed, as part of a file name."""
        method = re.sub(r"[^\w.=-]", ".", self.row or self.method)  # what every file system allows
        k = "" if self.k is None else f"-k{self.k}"
        return f"{method}{k}-seed{self.seed}"


@dataclass(frozen=True)
class RunOutcome:
    """What became of a run.

    Args:
        spec: What was run.
        metrics: Its metrics, if it succeeded.
        error: The error message, if it failed.
        reused: Whether it was read from disk.
        warnings: What is doubtful about it.
        analysis: The answer of a run that finds clusters, if it was analyzed.
        postponed: Whether it was not started, for lack of time.
    """

    spec: RunSpec
    metrics: Metrics | None = None
    error: str | None = None
    reused: bool = False
    warnings: tuple[str, ...] = ()
    analysis: Analysis | None = None
    postponed: bool = False


OnFinish = Callable[[RunOutcome], None]
"""Called with each run that has finished."""


class Executor(Protocol):
    """Executes runs, and reads those that are saved."""

    @property
    def out(self) -> Path | None:
        """The folder that runs are saved in."""
        ...

    def execute(self, spec: RunSpec) -> RunOutcome:
        """Run a method and save the run; errors are captured in the outcome."""
        ...

    def read_saved(self, spec: RunSpec) -> RunOutcome | None:
        """Return a run that is saved already, None if it is not, or is damaged."""
        ...

    def for_worker(self) -> Executor:
        """Return a copy for another process, without monitor."""
        ...


@dataclass
class RunExecutor:
    """Executes runs of one experiment. Runs with the same seed share their federation.

    Args:
        experiment: What is run.
        device: Where clients train.
        folder: The data folder.
        out: A folder to save runs in.
        monitor: Follows the stages of each run.
        analyzes: Whether runs that find clusters are analyzed.
        track: Trackers that log each run: ``KIND`` or ``KIND:PLACE`` (``make_trackers``).
        differences: Whether analyses say what differs between clusters.
        sample_inputs: Samples of each cluster that analyses keep.
    """

    experiment: Experiment
    device: str = "auto"
    folder: str | Path | None = None
    out: Path | None = None
    monitor: Monitor | None = None
    analyzes: bool = False
    track: tuple[str, ...] = ()
    differences: bool = True
    sample_inputs: int = 0
    _federations: dict[int, SimulatedClients] = field(default_factory=dict, repr=False)

    def execute(self, spec: RunSpec) -> RunOutcome:
        """Run a method and save the run; errors are captured in the outcome."""
        try:
            experiment = self.experiment.set(spec.settings)
            monitor = None if self.monitor is None else TitledMonitor(self.monitor, str(spec))
            out = self.folder_of(spec)
            with nullcontext() if out is None else locked(out):
                federation = self._federation(spec.seed, monitor)
                with collected_warnings() as messages:
                    run = runner.run_method(
                        experiment, spec.method, federation, spec.seed, self._tracked(spec, monitor)
                    )
                analysis = self._analysis(run) if self.analyzes and run.result.clustered else None
                if out is not None:
                    saved.save(run, experiment, out, analysis)
        except InputError as error:
            return RunOutcome(spec, error=str(error))
        except Exception as error:  # for example of a user's model or loss
            return RunOutcome(spec, error=describe(error))
        return RunOutcome(spec, run.metrics, warnings=tuple(messages), analysis=analysis)

    def read_saved(self, spec: RunSpec) -> RunOutcome | None:
        """Return a run that is saved already, None if it is not, or is damaged."""
        if (out := self.folder_of(spec)) is None:
            return None
        metrics = saved.read(out, self._digest(spec))
        if metrics is None:
            return None
        analysis = None
        if self.analyzes and (out / ANALYSIS_FILE).exists():
            try:
                analysis = Analysis.load(out)
            except InputError:
                return None
        return RunOutcome(spec, metrics, reused=True, analysis=analysis)

    def for_worker(self) -> RunExecutor:
        """Return a copy for another process, without monitor."""
        return RunExecutor(
            self.experiment,
            self.device,
            self.folder,
            self.out,
            analyzes=self.analyzes,
            track=self.track,
            differences=self.differences,
            sample_inputs=self.sample_inputs,
        )

    def _analysis(self, run: runner.ScoredRun) -> Analysis:
        return analyze_run(run, differences=self.differences, sample_inputs=self.sample_inputs)

    def _tracked(self, spec: RunSpec, monitor: Monitor | None) -> Monitor | None:
        """Return a monitor that also logs the run, if runs are tracked."""
        if not self.track:
            return monitor
        trackers = make_trackers(self.track, f"{self.experiment.name}-{spec.label}")
        return Monitors([*(() if monitor is None else (monitor,)), *trackers])

    def _federation(self, seed: int, monitor: Monitor | None) -> SimulatedClients:
        """Return the clients of a seed; those of the latest seed are kept."""
        if seed not in self._federations:
            self._federations.clear()
            self._federations[seed] = runner.make_federation(
                self.experiment, seed, self.device, self.folder, monitor
            )
        return self._federations[seed]

    def _digest(self, spec: RunSpec) -> str:
        return saved.run_digest(self.experiment.set(spec.settings), spec.method, spec.seed)

    def folder_of(self, spec: RunSpec) -> Path | None:
        """Return the folder that a run is saved in, None if runs are not saved."""
        if self.out is None:
            return None
        return self.out / f"{spec.label}-{self._digest(spec)}"


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect warnings of doubtful runs, which another process may have to show."""
    messages: list[str] = []
    with warnings.catch_warnings():
        show = warnings.showwarning

        def collect(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, SrfcaWarning):
                messages.append(str(message))
            else:
                show(message, category, *place)

        warnings.simplefilter("always", SrfcaWarning)
        warnings.showwarning = collect  # type: ignore[assignment]
        yield messages


class TitledMonitor(Monitors):
    """A monitor that puts the run's title before the names of stages.

    Args:
        monitor: Receives every call.
        title: Title of the run.
    """

    def __init__(self, monitor: Monitor, title: str) -> None:
        super().__init__([monitor])
        self.title = title

    def stage(self, name: str, steps: int) -> AbstractContextManager[Callback]:
        """Enter a stage."""
        return super().stage(f"{self.title}: {name}", steps)
