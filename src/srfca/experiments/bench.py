"""One run after another on one experiment: what is to be done, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from srfca.engine import Simulation
from srfca.errors import InputError
from srfca.experiments import runner, saved
from srfca.experiments.config import Experiment, method_class
from srfca.experiments.runner import Row
from srfca.methods._common.run import Monitor
from srfca.progress import Callback


@dataclass(frozen=True)
class Task:
    """A run that is to be done."""

    method: str
    seed: int
    k: int | None = None
    """The number of clusters that the method is told, if it must be told one."""
    settings: tuple[str, ...] = ()
    """What it changes in the experiment, as ``--set`` takes it."""

    def __str__(self) -> str:
        told = "" if self.k is None else f" K={self.k}"
        return f"{method_class(self.method).name}{told} seed {self.seed}"


@dataclass(frozen=True)
class Done:
    """A task that has been done: the figures of its run, or why it failed."""

    task: Task
    row: Row | None = None
    why: str | None = None
    reused: bool = False
    """Whether an earlier call has done it."""


Finished = Callable[[Done], None]


@dataclass
class Bench:
    """Does runs, one after another; clients serve all runs of their seed."""

    experiment: Experiment
    device: str = "auto"
    folder: str | Path | None = None
    """Where data sets are looked for."""
    out: Path | None = None
    """Where results are saved."""
    monitor: Monitor | None = None
    _clients: dict[int, Simulation] = field(default_factory=dict, repr=False)

    def __call__(self, task: Task) -> Done:
        """Do a run, and save it; what goes wrong with it is its own affair."""
        try:
            experiment = self.experiment.set(task.settings)
            monitor = None if self.monitor is None else Titled(self.monitor, str(task))
            clients = self.clients(task.seed, monitor)
            outcome = runner.run(experiment, task.method, clients, task.seed, monitor)
            if self.out is not None:
                saved.save(outcome, experiment, self.out / self._name(task))
        except InputError as error:
            return Done(task, why=str(error))
        except Exception as error:  # of the user's own model or loss, say: the others go on
            return Done(task, why=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
        return Done(task, outcome.row())

    def clients(self, seed: int, monitor: Monitor | None) -> Simulation:
        """The clients of a seed; those of the last one are kept."""
        if seed not in self._clients:
            self._clients.clear()
            made = runner.federation(self.experiment, seed, self.device, self.folder, monitor)
            self._clients[seed] = made
        return self._clients[seed]

    def saved(self, task: Task) -> Done | None:
        """What an earlier call has saved of a task."""
        if self.out is None:
            return None
        row = saved.read(self.out / self._name(task), self._digest(task))
        return None if row is None else Done(task, row, reused=True)

    def _digest(self, task: Task) -> str:
        return saved.digest(self.experiment.set(task.settings), task.method, task.seed)

    def _name(self, task: Task) -> str:
        told = "" if task.k is None else f"-k{task.k}"
        return f"{task.method}{told}-seed{task.seed}-{self._digest(task)}"


@dataclass(frozen=True)
class Titled:
    """A monitor that is told which run a stage is of."""

    monitor: Monitor
    title: str

    def stage(self, name: str, steps: int) -> AbstractContextManager[Callback]:
        """Enter a stage."""
        return self.monitor.stage(f"{self.title}: {name}", steps)
