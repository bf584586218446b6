"""Execute runs with progress, and print their metrics as JSON lines."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence

import typer

from srfca.cli.console import show_error
from srfca.cli.progress import RunsProgress
from srfca.experiments.compare import Comparison, execute
from srfca.experiments.executor import Executor, OnFinish, RunOutcome, RunSpec
from srfca.experiments.parallel import RunAll, run_parallel


def execute_with_progress(
    executor: Executor,
    specs: Sequence[RunSpec],
    jobs: int,
    progress: RunsProgress,
    as_json: bool,
    threads: int | None = None,
    run_all: RunAll = run_parallel,
) -> Comparison:
    """Execute runs, show progress, and print a JSON object for each run if asked to.

    Args:
        executor: Executes them.
        specs: What to run.
        jobs: Number of processes.
        progress: Shows how many runs have finished.
        as_json: Print the metrics of each run, in the order of ``specs``.
        threads: Threads of each process; None shares the cores among them.
        run_all: Executes several runs at a time.
    """
    print_json = _ordered_printer(specs) if as_json else None

    def on_finish(outcome: RunOutcome) -> None:
        progress.on_finish(outcome)
        for message in outcome.warnings:
            show_error(f"warning: {outcome.spec}: {message}")
        if print_json is not None:
            print_json(outcome)

    with progress.bar:
        return execute(executor, specs, jobs, on_finish, threads, run_all)


def _ordered_printer(specs: Sequence[RunSpec]) -> OnFinish:
    """Return a function that prints metrics as JSON in the order of the specs, without delay."""
    remaining = deque(specs)
    waiting: dict[RunSpec, RunOutcome] = {}

    def on_finish(outcome: RunOutcome) -> None:
        waiting[outcome.spec] = outcome
        while remaining and remaining[0] in waiting:
            metrics = waiting.pop(remaining.popleft()).metrics
            if metrics is not None:
                typer.echo(json.dumps(metrics))

    return on_finish
