"""``srfca stress``: methods with corrupt clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from srfca.cli import completion
from srfca.cli.console import show_error
from srfca.cli.options import (
    ExperimentOptions,
    Jobs,
    Json,
    SavedRuns,
    Seed,
    TableFiles,
    interruptible,
    method_keys,
    split_list,
    whole_number,
    with_experiment,
)
from srfca.errors import unknown

if TYPE_CHECKING:
    from srfca.federation.middleware.attacks import Placement


@with_experiment
def stress(
    options: ExperimentOptions,
    attacks: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Attacks, separated by commas; default: all of them.",
        ),
    ] = None,
    fraction: Annotated[
        float,
        typer.Option(metavar="F", help="Fraction of the clients that are corrupt, from 0 to 0.4."),
    ] = 0.2,
    placement: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="Corrupt clients are spread over all true clusters (spread), a fraction of one "
            "of them (group), or anywhere (random).",
        ),
    ] = "spread",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,...",
            autocompletion=completion.method_list,
            help="Methods of 'srfca list', or your MODULE:CLASS, separated by commas; default: "
            "sr-fca,global,ifca.",
        ),
    ] = None,
    trim: Annotated[
        float,
        typer.Option(metavar="BETA", help="Fraction that methods which trim drop on each side."),
    ] = 0.25,
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
    jobs: Jobs = None,
    table: TableFiles = None,
    as_json: Json = False,
    out: SavedRuns = None,
) -> None:
    """Show what corrupt clients cost the honest ones.

    The table has a row for each attack.
    """
    from srfca.cli import tables
    from srfca.cli.console import show
    from srfca.cli.execute import execute_with_progress
    from srfca.cli.progress import RunsProgress
    from srfca.experiments import stress as stressing
    from srfca.experiments.parallel import default_jobs, uses_gpu
    from srfca.federation.middleware.attacks import ATTACKS
    from srfca.report import stress as report
    from srfca.report import tables as files

    with interruptible():
        for path in table or []:
            files.check(path)
        keys = list(stressing.METHODS) if methods is None else method_keys(methods)
        names = list(ATTACKS) if attacks is None else split_list(attacks, "--attacks")
        experiment = options.load(keys)
        specs = stressing.run_specs(
            experiment,
            keys,
            names,
            range(seed, seed + seeds),
            fraction,
            _placement(placement),
            trim,
        )
        jobs = jobs or default_jobs(options.device, len(specs))
        progress = RunsProgress(len(specs), parallel=jobs > 1, lines=not as_json)
        monitor = progress.stage_bars if jobs == 1 else None
        executor = stressing.StressExecutor(
            experiment, options.device, options.data_dir, out, monitor
        )
        threads = None if uses_gpu(options.device) else 1
        comparison = execute_with_progress(executor, specs, jobs, progress, as_json, threads)
    failures = tables.failure_lines(comparison.failures)
    if comparison.metrics:
        listed = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
        corrupt = len(comparison.metrics[0]["attackers"])
        title = (
            f"{experiment.name}, {listed}, {corrupt} of {comparison.metrics[0]['clients']} clients "
            f"corrupt, trim {trim:g}"
        )
        summary = report.StressReport(comparison.metrics, title, failures)
        for path in table or []:
            report.write(summary, path)
        if not as_json:
            show(summary.title, style="bold")
            show(tables.summary_table(summary.table))
            for note in summary.notes:
                show(note)
            if comparison.reused:
                show(f"{comparison.reused} of {len(specs)} runs were read from --out.")
    if failures:
        for line in failures if as_json or not comparison.metrics else []:
            show_error(line)
        raise typer.Exit(2)


def _placement(text: str) -> Placement:
    """Return where corrupt clients are, of ``--placement``."""
    from srfca.federation.middleware.attacks import PLACEMENTS

    for placement in PLACEMENTS:
        if placement == text:
            return placement
    raise unknown("placement", text, PLACEMENTS)
