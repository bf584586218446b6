"""``srfca reproduce``: the paper's experiments, recorded run by run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srfca.cli.console import show_error
from srfca.cli.options import (
    DataDir,
    Device,
    Jobs,
    Quick,
    Seed,
    interruptible,
    needs_extra,
    split_list,
    whole_number,
)
from srfca.errors import require

if TYPE_CHECKING:
    from srfca.experiments.executor import RunSpec
    from srfca.experiments.experiment import Experiment
    from srfca.experiments.paper.studies import Records, Study
    from srfca.experiments.recording import RecordingExecutor
    from srfca.experiments.records import Record
    from srfca.report.summary import Table


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Experiments of the paper; default: all of them."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,...",
            help="Rows of the tables: sr-fca, literal, oracle, ...; default: all of them.",
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
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of records, a small JSON file for each run; runs that it holds are not "
            "repeated, and folders of several machines can be copied together."
        ),
    ] = Path("results"),
    only_list: Annotated[
        bool, typer.Option("--list", help="Show which runs are there and which are missing.")
    ] = False,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Run nothing: tables of the runs that are there.")
    ] = False,
    time_limit: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            parser=whole_number(1),
            help="Start no run that would end later, by the times of earlier runs.",
        ),
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write the tables into results.md in this folder as well."
        ),
    ] = None,
    ablations: Annotated[
        bool,
        typer.Option(
            "--ablations",
            help="Variants of SR-FCA instead, on small versions of two experiments; their page is "
            "ablations.md.",
        ),
    ] = False,
    reduced: Annotated[
        bool,
        typer.Option(
            "--reduced",
            help="Small versions of the experiments that need a GPU, for two CPU cores; they have "
            "a section of their own in results.md.",
        ),
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting. Repeatable."),
    ] = None,
    quick: Quick = False,
    jobs: Jobs = None,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Run the experiments of the SR-FCA paper.

    All methods of its tables run, and the tables are beside the published figures.
    """
    from srfca.cli import tables
    from srfca.cli.console import show
    from srfca.cli.execute import execute_with_progress
    from srfca.cli.progress import RunsProgress
    from srfca.experiments.paper import plan
    from srfca.experiments.paper.studies import AblationStudy, ReducedReproduction, Reproduction
    from srfca.experiments.parallel import default_jobs, uses_gpu
    from srfca.experiments.recording import RecordingExecutor

    deadline = None if time_limit is None else time.time() + time_limit
    with interruptible():
        require(not (ablations and reduced), "--ablations and --reduced are different studies")
        kind = AblationStudy if ablations else ReducedReproduction if reduced else Reproduction
        study: Study = kind.load(names or [], quick, set_ or [])
        keys = None if methods is None else split_list(methods, "--methods")
        experiments = _with_data(study.experiments, data_dir)
        rows = plan.select(study.rows, keys)
        specs = plan.run_specs(experiments.values(), rows, range(seed, seed + seeds))
        jobs = jobs or default_jobs(device, len(specs))
        progress = RunsProgress(len(specs), parallel=jobs > 1, lines=True)
        monitor = progress.stage_bars if jobs == 1 else None
        folder = out / study.folder
        executor = RecordingExecutor(experiments, folder, device, data_dir, monitor, deadline)
        if only_list:
            show(tables.summary_table(_listing(executor, specs)))
            return
        failures: list[str] = []
        if not no_run:
            threads = None if uses_gpu(device) else 1  # the same result whatever the jobs
            comparison = execute_with_progress(executor, specs, jobs, progress, False, threads)
            failures = tables.failure_lines(comparison.failures)
            for line in failures:
                show_error(line)
            if postponed := sum(outcome.postponed for outcome in comparison.outcomes):
                show_error(f"{postponed} runs were not started, for lack of time: run this again")
        records = _records(executor, specs)
        require(bool(records), f"{folder} has no record of these runs")
        for table in study.tables(records):
            show(table.title, style="bold")
            show(tables.summary_table(table))
        if docs is not None:
            command = [study.command, *(names or [])]
            command += [] if methods is None else ["--methods", methods]
            command += ["--seed", str(seed)] if seed else []
            command += ["--seeds", str(seeds)]
            command += [part for setting in set_ or [] for part in ("--set", setting)]
            command += ["--quick"] if quick else []
            show(f"Tables: {_write_page(study, docs, records, ' '.join(command))}")
    if failures:
        raise typer.Exit(2)


def _write_page(study: Study, docs: Path, records: Records, command: str) -> Path:
    """Write the tables between the markers of a page."""
    from srfca.files import replace_file
    from srfca.report.markdown import replace_generated

    page = docs / study.page
    require(page.is_file(), f"--docs: there is no {page}")
    content = study.markdown(records, command)
    text = replace_generated(page.read_text("utf-8"), study.part, content)
    with needs_extra("report"):
        study.write_figures(records, docs / "figures")
    replace_file(page, text.encode())
    return page


def _listing(executor: RecordingExecutor, specs: Sequence[RunSpec]) -> Table:
    """Make a table of the runs that are there and of those that are missing."""
    from srfca.report.summary import Table

    seeds: dict[tuple[str, str], dict[int, float | None]] = {}
    for spec in specs:
        record = executor.record(spec)
        name = (spec.row or spec.method) + ("" if spec.k is None else f", K={spec.k}")
        times = seeds.setdefault((spec.experiment, name), {})
        times[spec.seed] = None if record is None else sum(record["run"]["seconds"].values())
    lines = []
    for (_, name), times in seeds.items():
        finished = {seed: seconds for seed, seconds in times.items() if seconds is not None}
        missing = [seed for seed in times if seed not in finished]
        longest = f"{max(finished.values()):.0f}" if finished else "-"
        lines.append([name, _seeds(list(finished)), _seeds(missing), longest])
    columns = ["row", "finished seeds", "missing seeds", "longest run, seconds"]
    names = [experiment for experiment, _ in seeds]
    best = [[False] * len(columns) for _ in lines]
    return Table("Runs", columns, names, lines, best, head="experiment", texts=columns[:3])


def _seeds(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds)) or "-"


def _with_data(experiments: Sequence[Experiment], folder: Path | None) -> dict[str, Experiment]:
    """Return the experiments whose data are there, by name, and name the others."""
    from srfca.experiments.field import missing_data

    present = {}
    for experiment in experiments:
        if (problem := missing_data(experiment, folder)) is None:
            present[experiment.name] = experiment
        else:
            show_error(f"Skipped {experiment.name}: {problem}")
    require(bool(present), "there is nothing to run: all data sets are missing")
    return present


def _records(executor: RecordingExecutor, specs: Sequence[RunSpec]) -> dict[str, list[Record]]:
    """Return the records of these runs by experiment."""
    records: dict[str, list[Record]] = {}
    for spec in specs:
        if (record := executor.record(spec)) is not None:
            records.setdefault(spec.experiment, []).append(record)
    return records
