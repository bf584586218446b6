"""Executes runs of several experiments, and records them, within a time limit if there is one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from srfca.errors import InputError, describe
from srfca.experiments import runner
from srfca.experiments.executor import RunOutcome, RunSpec, TitledMonitor, collected_warnings
from srfca.experiments.experiment import Experiment, method_class
from srfca.experiments.records import (
    Record,
    StageScores,
    machine,
    read_record,
    read_records,
    record_path,
    write_record,
)
from srfca.experiments.runner import SimulatedClients
from srfca.federation import LocalTraining
from srfca.methods import Monitor, Monitors

_MARGIN = 1.2
"""Factor by which a run may take longer than the longest of its kind so far."""


@dataclass
class RecordingExecutor:
    """Executes runs and writes their records. Runs with the same seed share their federation.

    Args:
        experiments: What is run, by name.
        device: Where clients train.
        folder: The data folder.
        out: The folder of records, with a folder for each experiment.
        monitor: Follows the stages of each run.
        deadline: When all runs must have ended, as ``time.time`` tells it; None is never.
    """

    experiments: Mapping[str, Experiment]
    out: Path
    device: str = "auto"
    folder: str | Path | None = None
    monitor: Monitor | None = None
    deadline: float | None = None
    _federations: dict[tuple[str, int], SimulatedClients] = field(default_factory=dict, repr=False)

    def execute(self, spec: RunSpec) -> RunOutcome:
        """Run a method and record the run; errors are captured in the outcome."""
        if not self._can_finish(spec):
            return RunOutcome(spec, postponed=True)
        experiment = self.experiments[spec.experiment].set(spec.settings)
        started = time.perf_counter()
        try:
            federation = self._federation(spec)
            setup = time.perf_counter() - started
            stages = StageScores(federation)
            with collected_warnings() as messages:
                run = runner.run_method(
                    experiment, spec.method, federation, spec.seed, self._monitor(spec, stages)
                )
            times = {"setup": setup, "run": time.perf_counter() - started - setup}
            path = self._path(spec)
            metrics = write_record(path, run, experiment, spec, stages, times)["metrics"]
        except InputError as error:
            return RunOutcome(spec, error=str(error))
        except Exception as error:  # for example of a user's model or loss
            return RunOutcome(spec, error=describe(error))
        return RunOutcome(spec, metrics, warnings=tuple(messages))

    def read_saved(self, spec: RunSpec) -> RunOutcome | None:
        """Return a run that is recorded already, None if it is not, or is damaged."""
        record = self.record(spec)
        return None if record is None else RunOutcome(spec, record["metrics"], reused=True)

    def record(self, spec: RunSpec) -> Record | None:
        """Return the record of a run, None if there is none."""
        return read_record(self._path(spec))

    def for_worker(self) -> RecordingExecutor:
        """Return a copy for another process, without monitor."""
        return replace(self, monitor=None, _federations={})

    def _path(self, spec: RunSpec) -> Path:
        return record_path(self.out, self.experiments[spec.experiment], spec)

    def _monitor(self, spec: RunSpec, stages: StageScores) -> Monitor:
        if self.monitor is None:
            return stages
        return Monitors([TitledMonitor(self.monitor, str(spec)), stages])

    def _federation(self, spec: RunSpec) -> SimulatedClients:
        """Return the clients of an experiment and seed; the latest are kept."""
        key = spec.experiment, spec.seed
        if key not in self._federations:
            self._federations.clear()
            self._federations[key] = runner.make_federation(
                self.experiments[spec.experiment], spec.seed, self.device, self.folder
            )
        return self._federations[key]

    def _can_finish(self, spec: RunSpec) -> bool:
        """Tell whether a run will have ended by the deadline, by what earlier runs took."""
        if self.deadline is None:
            return True
        remaining = self.deadline - time.time()
        if remaining <= 0:
            return False
        records = read_records(self.out / spec.experiment)
        steps = self._planned_steps(spec)
        return expected_seconds(records, spec, steps, machine(_device(self.device))) <= remaining

    def _planned_steps(self, spec: RunSpec) -> float:
        """Return the local steps of a client that a run will take, about."""
        experiment = self.experiments[spec.experiment].set(spec.settings)
        if method_class(spec.method).needs_truth:
            return float(LocalTraining(**experiment.local_training(spec.method)).steps)
        method = runner.make_method(experiment, spec.method)
        return float(method.local.steps * method.trainings)


def expected_seconds(
    records: Iterable[Record], spec: RunSpec, planned_steps: float, where: str
) -> float:
    """Return how long a run will take, by records of the same experiment on the same machine.

    Those of the same row and K count if there are any, else the rate of local steps of the others.
    It is 0 if there are none.

    Args:
        records: Records of the experiment.
        spec: The run.
        planned_steps: Its local steps of a client.
        where: The machine.
    """
    comparable = [record for record in records if record["run"]["machine"] == where]
    if not comparable:
        return 0.0
    setup = max(record["run"]["seconds"]["setup"] for record in comparable)
    row = spec.row or spec.method
    alike = [r for r in comparable if (r["run"]["row"], r["run"]["k"]) == (row, spec.k)]
    if alike:
        return float(setup + _MARGIN * max(record["run"]["seconds"]["run"] for record in alike))
    rates = [
        record["run"]["seconds"]["run"] * record["metrics"]["clients"] / steps
        for record in comparable
        if (steps := record["metrics"]["local_steps"])
    ]
    return float(setup + _MARGIN * max(rates, default=0.0) * planned_steps)


def _device(name: str) -> str:
    """Return the device that "auto" is."""
    from srfca.experiments.parallel import uses_gpu

    if name != "auto":
        return name
    return "cuda" if uses_gpu(name) else "cpu"
