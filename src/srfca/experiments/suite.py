"""Runs of several experiments, as one list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from srfca.experiments.executor import RunExecutor, RunOutcome, RunSpec
from srfca.experiments.experiment import Experiment
from srfca.methods import Monitor


@dataclass
class SuiteExecutor:
    """Executes runs of several experiments; ``RunSpec.experiment`` says of which.

    The clients of the latest experiment and seed are kept in memory, so runs should be in the order
    of their experiments.

    Args:
        experiments: What is run, by name.
        device: Where clients train.
        folder: The data folder.
        out: A folder to save runs in, with a folder for each experiment.
        monitor: Follows the stages of each run.
    """

    experiments: Mapping[str, Experiment]
    device: str = "auto"
    folder: str | Path | None = None
    out: Path | None = None
    monitor: Monitor | None = None
    _latest: dict[str, RunExecutor] = field(default_factory=dict, repr=False)

    def execute(self, spec: RunSpec) -> RunOutcome:
        """Run a method and save the run; errors are captured in the outcome."""
        return self._executor(spec.experiment).execute(spec)

    def read_saved(self, spec: RunSpec) -> RunOutcome | None:
        """Return a run that is saved already, None if it is not, or is damaged."""
        return self._executor(spec.experiment).read_saved(spec)

    def for_worker(self) -> SuiteExecutor:
        """Return a copy for another process, without monitor."""
        return SuiteExecutor(self.experiments, self.device, self.folder, self.out)

    def _executor(self, name: str) -> RunExecutor:
        """Return the executor of an experiment; that of the latest one is kept."""
        if name not in self._latest:
            self._latest.clear()
            out = None if self.out is None else self.out / name
            self._latest[name] = RunExecutor(
                self.experiments[name], self.device, self.folder, out, self.monitor
            )
        return self._latest[name]
