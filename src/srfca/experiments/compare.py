"""Several methods on one experiment: which runs there are, which are there already, and their rows.

>>> from srfca.experiments import config
>>> experiment = config.load("rotated-digits").set(["num_clients=8", "steps=4", "rotations=2"])
>>> comparison = compare(experiment, ["local", "global"], seeds=[0, 1])
>>> [(row["name"], row["seed"]) for row in comparison.rows]
[('Local', 0), ('Global', 0), ('Local', 1), ('Global', 1)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from srfca.errors import require
from srfca.experiments import runner
from srfca.experiments.bench import Bench, Done, Finished, Task
from srfca.experiments.config import METHODS, Experiment, takes_k
from srfca.experiments.parallel import run_parallel
from srfca.experiments.runner import Row
from srfca.files import writable_folder

DEFAULT = ("sr-fca", "oracle", "local", "global", "ifca", "cfl", "fedsoft")
"""The methods that are compared unless others are named."""


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison."""

    rows: list[Row]
    """The figures of the runs that succeeded, in the order of the tasks."""
    failures: list[Done]
    reused: int
    """How many of the runs had been done by earlier calls."""


def default_methods(experiment: Experiment) -> list[str]:
    """The methods to compare: Oracle is one of them where the true clusters are known."""
    known = experiment.clusters != "unknown"
    return [name for name in DEFAULT if name in METHODS and (known or name != "oracle")]


def tasks(
    experiment: Experiment,
    methods: Sequence[str],
    seeds: Sequence[int] = (0,),
    k: Sequence[int] | None = None,
    equal_budget: bool = False,
) -> list[Task]:
    """All runs of a comparison, seed by seed; bad parameters are refused here, before any run.

    Args:
        experiment: What is run.
        methods: Their names on the command line.
        seeds: One run each.
        k: The numbers of clusters for the methods that must be told one, instead of the
            experiment's.
        equal_budget: Give every method the local steps that SR-FCA may take, instead of the same
            steps to each of its trainings.
    """
    methods, seeds = list(dict.fromkeys(methods)), list(dict.fromkeys(seeds))
    told = [name for name in methods if takes_k(name)]
    require(k is None or bool(told), "k is for methods that must be told it: none of these")
    variants = []
    for name in methods:
        for number in _numbers(experiment, name, k) if name in told else (None,):
            settings: tuple[str, ...] = () if number is None else (f"{name}.k={number}",)
            if equal_budget:
                settings += (f"{name}.steps={_equal_steps(experiment.set(settings), name)}",)
            runner.method(experiment.set(settings), name)
            variants.append(Task(name, 0, number, settings))
    return [replace(variant, seed=seed) for seed, variant in product(seeds, variants)]


def budget(experiment: Experiment) -> float:
    """The most local steps of a client in SR-FCA, if it takes part in every round."""
    learner = runner.method(experiment, "sr-fca")
    return float(learner.local.steps * learner.trainings)


def terms(experiment: Experiment, equal_budget: bool) -> str:
    """How long the methods of a comparison train, for people to read."""
    if equal_budget:
        return f"every method with SR-FCA's {budget(experiment):.0f} local steps a client, at most"
    return f"every training of {runner.method(experiment, 'sr-fca').local.steps} steps"


def compare(
    experiment: Experiment,
    methods: Sequence[str],
    seeds: Sequence[int] = (0,),
    *,
    k: Sequence[int] | None = None,
    equal_budget: bool = False,
    jobs: int = 1,
    device: str = "auto",
    folder: str | Path | None = None,
    out: Path | None = None,
) -> Comparison:
    """Run methods side by side; see ``tasks`` and ``run``."""
    chosen = tasks(experiment, methods, seeds, k, equal_budget)
    bench = Bench(experiment, device, folder, out)
    return run(bench, chosen, jobs)


def run(
    bench: Bench,
    tasks: Sequence[Task],
    jobs: int = 1,
    finished: Finished = lambda done: None,
) -> Comparison:
    """Do the tasks that are not saved yet, in so many processes, and gather all rows.

    A run that fails does not keep the others from finishing. ``finished`` is called with each task
    as soon as it is done, first with those that were done already.
    """
    require(jobs >= 1, f"jobs must be at least 1, not {jobs}")
    answers: dict[Task, Done] = {}

    def take(done: Done) -> None:
        answers[done.task] = done
        finished(done)

    if bench.out is not None:
        writable_folder(bench.out)
        for task in tasks:
            if (done := bench.saved(task)) is not None:
                take(done)
    reused = len(answers)
    left = [task for task in tasks if task not in answers]
    if jobs > 1 and len(left) > 1:
        run_parallel(replace(bench, monitor=None), left, min(jobs, len(left)), take)
    else:
        for task in left:
            take(bench(task))
    ordered = [answers[task] for task in tasks]
    rows = [done.row for done in ordered if done.row is not None]
    return Comparison(rows, [done for done in ordered if done.row is None], reused)


def _numbers(experiment: Experiment, name: str, k: Sequence[int] | None) -> Sequence[int]:
    """The numbers of clusters for a method: those given, its own setting, or the experiment's."""
    if k is not None:
        return list(dict.fromkeys(k))
    own = experiment.sections[name].get("k")
    return experiment.k if own is None else [own]


def _equal_steps(experiment: Experiment, name: str) -> int:
    """The steps of a training for which a method spends what SR-FCA does.

    It takes several looks where a part does not grow with them, such as FedGroup's pretraining.
    """
    wanted = budget(experiment)
    steps = round(wanted)
    for _ in range(20):
        learner = runner.method(experiment.set([f"{name}.steps={steps}"]), name)
        steps = max(1, round(wanted / learner.trainings))
    return steps
