"""``srfca bench field``: SR-FCA beside its baselines on the benchmarks of the field."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from srfca.cli import completion
from srfca.cli.console import show_error
from srfca.cli.options import (
    DataDir,
    Device,
    Jobs,
    Json,
    Quick,
    SavedRuns,
    Seed,
    TableFiles,
    interruptible,
    method_keys,
    split_list,
    whole_number,
)
from srfca.errors import require

if TYPE_CHECKING:
    from pathlib import Path

    from srfca.experiments.experiment import Experiment
    from srfca.experiments.field import FieldFederation
    from srfca.report.field_report import FieldReport


def field(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,...",
            help="skew (the default): label skew, outliers, label noise; flux: FLUX's shifts in 8 "
            "levels; fedrc: FedRC's setting. Repeatable.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,...",
            help="Federations: fashion-outliers, flux-mnist/labels, ..., or any experiment of "
            "'srfca list', or a TOML file. Repeatable.",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,...",
            autocompletion=completion.method_list,
            help="Methods of 'srfca list', or your MODULE:CLASS; default: "
            "sr-fca,oracle,global,local,ifca,fedem.",
        ),
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole_number(1),
            show_default=False,
            help="How many seeds, from --seed on; default: 3.",
        ),
    ] = 3,
    fine_tune: Annotated[
        int,
        typer.Option(
            "--fine-tune",
            metavar="STEPS",
            parser=whole_number(0),
            show_default=False,
            help="Also score every method but SR-FCA, which decides itself, after at most this "
            "many steps of fine-tuning; default: 50; 0 is none.",
        ),
    ] = 50,
    jobs: Jobs = None,
    device: Device = "auto",
    data_dir: DataDir = None,
    quick: Quick = False,
    table: TableFiles = None,
    as_json: Json = False,
    out: SavedRuns = None,
) -> None:
    """Compare SR-FCA with its baselines on published benchmarks.

    Federations have label skew, outliers and noise, or are in the settings of FLUX and FedRC.
    """
    from srfca.cli import tables
    from srfca.cli.execute import execute_with_progress
    from srfca.cli.progress import RunsProgress
    from srfca.experiments import field as benchmark
    from srfca.experiments.parallel import default_jobs, uses_gpu
    from srfca.experiments.suite import SuiteExecutor
    from srfca.report import tables as files
    from srfca.report.field import lines
    from srfca.report.field_report import FieldReport, score_title

    with interruptible():
        for path in table or []:
            files.check(path)
        selected = benchmark.select(_items(suite, "--suite"), _items(only, "--only"))
        keys = benchmark.default_methods(selected) if methods is None else method_keys(methods)
        experiments, skipped = _load(selected, keys, quick, data_dir)
        for line in skipped:
            show_error(line)
        require(bool(experiments), "there is nothing to run: all data sets are missing")
        specs = [
            spec
            for experiment in experiments.values()
            for spec in benchmark.run_specs(experiment, keys, range(seed, seed + seeds), fine_tune)
        ]
        jobs = jobs or default_jobs(device, len(specs))
        progress = RunsProgress(len(specs), parallel=jobs > 1, lines=not as_json)
        monitor = progress.stage_bars if jobs == 1 else None
        executor = SuiteExecutor(experiments, device, data_dir, out, monitor)
        threads = None if uses_gpu(device) else 1  # the same result whatever the number of jobs
        comparison = execute_with_progress(executor, specs, jobs, progress, as_json, threads)
    failures = tables.failure_lines(comparison.failures)
    if comparison.metrics:
        listed = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
        remarks = [*benchmark.notes(keys), *skipped, *failures]
        shown = lines(comparison.metrics, list(experiments))
        report = FieldReport(shown, f"{score_title(shown)}, {listed}", fine_tune, remarks)
        for path in table or []:
            report.write(path)
        if not as_json:
            show_report(report, comparison.reused, len(specs))
    if failures:
        if as_json or not comparison.metrics:
            for line in failures:
                show_error(line)
        raise typer.Exit(2)


def show_report(report: FieldReport, reused: int, total: int) -> None:
    """Print the table and the notes.

    In a narrow terminal, deviations are below the means, or there are two tables.
    """
    from srfca.cli.console import fits, show
    from srfca.cli.tables import compact_table

    split = not fits(compact_table(report.tables()[0], narrow=True))
    for table in report.tables(split=split):
        wide = compact_table(table, narrow=False)
        show(table.title, style="bold")
        show(wide if fits(wide) else compact_table(table, narrow=True))
        if sys.stdout.isatty():
            show("")
    for note in report.notes():
        show(note)
    if reused:
        show(f"{reused} of {total} runs were read from --out.")


def _items(values: Sequence[str] | None, option: str) -> list[str]:
    """Return the items of a repeatable option, each a list separated by commas."""
    return [item for value in values or () for item in split_list(value, option)]


def _load(
    selected: Sequence[FieldFederation], methods: Sequence[str], quick: bool, folder: Path | None
) -> tuple[dict[str, Experiment], list[str]]:
    """Load federations whose data is there; return them by name, and a line for the others."""
    from srfca.experiments import field as benchmark

    experiments: dict[str, Experiment] = {}
    skipped: dict[str, dict[str, None]] = {}
    for federation in selected:
        experiment = benchmark.load(federation, quick).with_methods(methods)
        problem = benchmark.missing_data(experiment, folder)
        if problem is None:
            experiments[experiment.name] = experiment
        else:
            skipped.setdefault(problem, {})[experiment.name.partition("/")[0]] = None
    return experiments, [f"Skipped {', '.join(names)}: {why}" for why, names in skipped.items()]
