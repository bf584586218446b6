"""Several methods side by side on one experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from srfca.errors import require
from srfca.experiments import runner
from srfca.experiments.answer import ALONE, TOGETHER
from srfca.experiments.executor import Executor, OnFinish, RunExecutor, RunOutcome, RunSpec
from srfca.experiments.experiment import Experiment, method_class
from srfca.experiments.metrics import Metrics
from srfca.experiments.parallel import RunAll, limited_threads, run_parallel
from srfca.files import writable_folder

DEFAULT_METHODS = ("sr-fca", "oracle", "local", "global", "ifca", "cfl", "fedsoft")
"""The methods that are compared by default: a baseline or two of each kind."""
_BUDGET_ITERATIONS = 20


@dataclass(frozen=True)
class Comparison:
    """The runs of a comparison.

    Args:
        metrics: The metrics of the runs that succeeded, in the order of the specs.
        failures: The runs that failed.
        reused: How many runs were read from disk.
        outcomes: All runs, in the order of the specs.
    """

    metrics: list[Metrics]
    failures: list[RunOutcome]
    reused: int
    outcomes: list[RunOutcome]

    def _repr_html_(self) -> str:
        from srfca.report.notebook import comparison_html

        return comparison_html(self.metrics, len(self.failures))


def default_methods(experiment: Experiment) -> list[str]:
    """Return the methods to compare by default: those that need the truth only if it is known."""
    return without_truth_if_unknown(experiment, DEFAULT_METHODS)


def without_truth_if_unknown(experiment: Experiment, keys: Sequence[str]) -> list[str]:
    """Return the methods without those that need the true clusters, if these are not known."""
    has_truth = experiment.clusters != "unknown"
    return [key for key in keys if has_truth or not method_class(key).needs_truth]


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
    """Run methods side by side.

    Args:
        experiment: What to run.
        methods: Keys of methods, ``MODULE:CLASS``, or variants such as ``ifca:restarts=5``, which
            are lines of their own (``split_variant``).
        seeds: One run each.
        k: Numbers of clusters for the methods that need one; None is those of the experiment.
        equal_budget: Give every method the local steps that SR-FCA may take.
        jobs: Number of processes.
        device: Where clients train.
        folder: The data folder.
        out: A folder to save runs in; runs that it holds already are not repeated.

    Returns:
        Metrics of the runs, and failures.

    Raises:
        InputError: If a method does not exist, or a parameter is not allowed.

    Examples:
        >>> from srfca.experiments import config
        >>> settings = ["num_clients=8", "steps=4", "rotations=2"]
        >>> experiment = config.load("rotated-digits").set(settings)
        >>> comparison = compare(experiment, ["local", "global"], seeds=[0, 1])
        >>> [(metrics["name"], metrics["seed"]) for metrics in comparison.metrics]
        [('Local', 0), ('Global', 0), ('Local', 1), ('Global', 1)]
    """
    experiment = experiment.with_methods(methods)
    specs = run_specs(experiment, methods, seeds, k, equal_budget)
    return execute(RunExecutor(experiment, device, folder, out), specs, jobs)


def run_specs(
    experiment: Experiment,
    methods: Sequence[str],
    seeds: Sequence[int] = (0,),
    k: Sequence[int] | None = None,
    equal_budget: bool = False,
) -> list[RunSpec]:
    """Return all runs of a comparison, seed by seed. Arguments are those of ``compare``.

    Raises:
        InputError: If a method does not exist, or a parameter is not allowed.
    """
    methods, seeds = list(dict.fromkeys(methods)), list(dict.fromkeys(seeds))
    with_k = [key for key in methods if method_class(key).needs_k]
    require(k is None or bool(with_k), "k is for methods that need it, and none of these does")
    variants = []
    for key in methods:
        for number in _numbers_of_clusters(experiment, key, k) if key in with_k else (None,):
            settings: tuple[str, ...] = () if number is None else (f"{key}.k={number}",)
            if equal_budget:
                settings += (f"{key}.steps={_equal_steps(experiment.set(settings), key)}",)
            runner.make_method(experiment.set(settings), key)
            variants.append(RunSpec(key, 0, number, settings))
    return [replace(variant, seed=seed) for seed, variant in product(seeds, variants)]


def reference_specs(
    experiment: Experiment, specs: Sequence[RunSpec], equal_budget: bool = False
) -> list[RunSpec]:
    """Return the runs of Global and Local that answers lack to be compared with, for every seed.

    Args:
        experiment: What is run.
        specs: The runs of a comparison.
        equal_budget: As in the comparison.

    Returns:
        None of them if no method finds clusters.

    Examples:
        >>> from srfca.experiments import config
        >>> experiment = config.load("rotated-digits")
        >>> specs = run_specs(experiment, ["sr-fca", "local"], seeds=[3, 4])
        >>> [str(spec) for spec in reference_specs(experiment, specs)]
        ['Global seed 3', 'Global seed 4']
    """
    methods = {spec.method for spec in specs}
    if not any(method_class(key).clustered for key in methods):
        return []
    missing = [key for key in (TOGETHER, ALONE) if key not in methods]
    return run_specs(experiment, missing, [spec.seed for spec in specs], None, equal_budget)


def execute(
    executor: Executor,
    specs: Sequence[RunSpec],
    jobs: int = 1,
    on_finish: OnFinish = lambda outcome: None,
    threads: int | None = None,
    run_all: RunAll = run_parallel,
) -> Comparison:
    """Execute the runs that are not saved yet. A run that fails does not affect the others.

    Args:
        executor: Executes them.
        specs: What to run.
        jobs: Number of processes.
        on_finish: Called with each run as soon as it has finished, first with those from disk.
        threads: Threads of each process; None shares the cores among them. The number of threads
            changes the last digits of a result, because sums are computed in another order.
        run_all: Executes several runs at a time.

    Returns:
        All runs, in the order of ``specs``.
    """
    require(jobs >= 1, f"jobs must be at least 1, not {jobs}")
    outcomes: dict[RunSpec, RunOutcome] = {}

    def finish(outcome: RunOutcome) -> None:
        outcomes[outcome.spec] = outcome
        on_finish(outcome)

    if executor.out is not None:
        writable_folder(executor.out)
        for spec in specs:
            if (outcome := executor.read_saved(spec)) is not None:
                finish(outcome)
    reused = len(outcomes)
    remaining = [spec for spec in specs if spec not in outcomes]
    if jobs > 1 and len(remaining) > 1:
        workers = min(jobs, len(remaining))
        run_all(executor.for_worker(), remaining, workers, finish, threads)
    else:
        with limited_threads(threads):
            for spec in remaining:
                finish(executor.execute(spec))
    ordered = [outcomes[spec] for spec in specs]
    metrics = [outcome.metrics for outcome in ordered if outcome.metrics is not None]
    failures = [run for run in ordered if run.metrics is None and not run.postponed]
    return Comparison(metrics, failures, reused, ordered)


def budget(experiment: Experiment) -> float:
    """Return the largest number of local steps of a client in SR-FCA, averaged over the clients."""
    method = runner.make_method(experiment, "sr-fca")
    return float(method.local.steps * method.trainings)


def training_length(experiment: Experiment, equal_budget: bool) -> str:
    """Describe how long the methods of a comparison train, for the title of a table."""
    if equal_budget:
        return f"every method with SR-FCA's {budget(experiment):.0f} local steps a client, at most"
    return f"every training of {runner.make_method(experiment, 'sr-fca').local.steps} steps"


def _numbers_of_clusters(
    experiment: Experiment, key: str, k: Sequence[int] | None
) -> Sequence[int]:
    """Return k if it is given, else what the method's section says, else the experiment's."""
    if k is not None:
        return list(dict.fromkeys(k))
    setting = experiment.values(key).get("k")
    return experiment.k if setting is None else [setting]


def _equal_steps(experiment: Experiment, key: str) -> int:
    """Return the steps of a training with which a method spends the budget of SR-FCA.

    This is iterated, because a part of the cost may not depend on the steps (the pretraining of
    FedGroup).
    """
    wanted = budget(experiment)
    steps = round(wanted)
    for _ in range(_BUDGET_ITERATIONS):
        method = runner.make_method(experiment.set([f"{key}.steps={steps}"]), key)
        steps = max(1, round(wanted / method.trainings))
    return steps
