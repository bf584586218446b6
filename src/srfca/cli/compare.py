"""``srfca compare``: several methods side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from srfca.cli.console import show_error
from srfca.cli.options import (
    ExperimentOptions,
    FineTune,
    Jobs,
    Json,
    SavedRuns,
    Seed,
    TableFiles,
    interruptible,
    method_keys,
    whole_number,
    with_experiment,
)
from srfca.errors import require

if TYPE_CHECKING:
    from srfca.report.tables import Report


@with_experiment
def compare(
    options: ExperimentOptions,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,...",
            help="Methods of 'srfca list', or your MODULE:CLASS, separated by commas.",
        ),
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole_number(1),
            show_default=False,
            help="How many seeds, from --seed on; default: 1.",
        ),
    ] = 1,
    k: Annotated[
        str | None,
        typer.Option(
            metavar="K,...",
            help="Numbers of clusters for methods that need one; default: the experiment's.",
        ),
    ] = None,
    equal_budget: Annotated[
        bool,
        typer.Option("--equal-budget", help="Give every method as many local steps as SR-FCA."),
    ] = False,
    fine_tune: FineTune = None,
    jobs: Jobs = None,
    table: TableFiles = None,
    as_json: Json = False,
    out: SavedRuns = None,
) -> None:
    """Run several methods side by side, on an experiment or on your data."""
    from srfca.cli import tables
    from srfca.cli.execute import execute_with_progress
    from srfca.cli.progress import RunsProgress
    from srfca.experiments import compare as comparing
    from srfca.experiments.executor import RunExecutor
    from srfca.experiments.parallel import default_jobs
    from srfca.report import tables as files

    with interruptible():
        for path in table or []:
            files.check(path)
        keys = None if methods is None else method_keys(methods)
        experiment = options.load(keys, fine_tune, ["sr-fca"] if equal_budget else [])
        keys = keys or comparing.default_methods(experiment)
        specs = comparing.run_specs(
            experiment, keys, range(seed, seed + seeds), _numbers(k), equal_budget
        )
        jobs = jobs or default_jobs(options.device, len(specs))
        progress = RunsProgress(len(specs), parallel=jobs > 1, lines=not as_json)
        monitor = progress.stage_bars if jobs == 1 else None
        executor = RunExecutor(experiment, options.device, options.data_dir, out, monitor)
        comparison = execute_with_progress(executor, specs, jobs, progress, as_json)
    failures = tables.failure_lines(comparison.failures)
    if comparison.metrics:
        listed = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
        length = comparing.training_length(experiment, equal_budget)
        notes = [*files.notes(comparison.metrics), *failures]
        report = files.Report(comparison.metrics, f"{experiment.name}, {listed}, {length}", notes)
        for path in table or []:
            files.write(report, path)
        if not as_json:
            show_report(report, comparison.reused, len(specs))
    if failures:
        if as_json or not comparison.metrics:
            for line in failures:
                show_error(line)
        raise typer.Exit(2)


def show_report(report: Report, reused: int, total: int) -> None:
    """Print the tables of a comparison, its notes, and the clusters that were found."""
    from srfca.cli import tables
    from srfca.cli.console import show

    for table in report.tables:
        show(table.title, style="bold")
        show(tables.summary_table(table))
    for note in report.notes:
        show(note)
    if len({run["seed"] for run in report.runs}) == 1:
        for run in report.runs:
            if run["num_clusters"] is not None and run["k"] is None:
                show(tables.clusters_sentence(run))
    if reused:
        show(f"{reused} of {total} runs were read from --out.")


def _numbers(k: str | None) -> tuple[int, ...] | None:
    """Return the numbers of clusters of ``--k``."""
    if k is None:
        return None
    from srfca.experiments.parsing import parse

    numbers: tuple[int, ...] = parse(k, tuple[int, ...], "--k")
    require(
        bool(numbers) and min(numbers) >= 1, f"--k must be one or more numbers from 1 on, not {k!r}"
    )
    return numbers
