"""``srfca compare``: several methods side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srfca.cli import completion
from srfca.cli.console import show_error
from srfca.cli.options import (
    Curves,
    ExperimentOptions,
    FineTune,
    Jobs,
    Json,
    NoDifferences,
    RayAddress,
    ReportFile,
    SampleInputs,
    SavedRuns,
    Seed,
    TableFiles,
    Track,
    interruptible,
    method_keys,
    needs_extra,
    ray_address,
    split_list,
    whole_number,
    with_experiment,
)
from srfca.cli.report import check_report, kept_runs, write_report
from srfca.errors import require

if TYPE_CHECKING:
    from srfca.analysis import Analysis
    from srfca.experiments.compare import Comparison
    from srfca.experiments.executor import RunExecutor
    from srfca.experiments.parallel import RunAll
    from srfca.report.summary import Metrics
    from srfca.report.tables import Report


@with_experiment
def compare(
    options: ExperimentOptions,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,...",
            autocompletion=completion.method_list,
            help="Methods of 'srfca list', or your MODULE:CLASS, separated by commas; one method "
            "may have several lines: ifca,ifca:restarts=5,cfl:paper. all: every method.",
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
    no_reference: Annotated[
        bool,
        typer.Option(
            "--no-reference",
            help="Do not train Global and Local to compare the answer with, if they are not among "
            "the methods.",
        ),
    ] = False,
    no_differences: NoDifferences = False,
    sample_inputs: SampleInputs = None,
    fine_tune: FineTune = None,
    curves: Curves = None,
    jobs: Jobs = None,
    table: TableFiles = None,
    report: ReportFile = None,
    track: Track = None,
    as_json: Json = False,
    out: SavedRuns = None,
    ray: RayAddress = None,
) -> None:
    """Compare methods on an experiment or on your data.

    Results and costs are in one table, over several seeds and numbers of clusters.
    """
    from srfca.callbacks import make_trackers
    from srfca.cli import tables
    from srfca.cli.console import show
    from srfca.cli.execute import execute_with_progress
    from srfca.cli.progress import RunsProgress
    from srfca.experiments import compare as comparing
    from srfca.experiments.answer import num_samples
    from srfca.experiments.executor import RunExecutor
    from srfca.experiments.parallel import default_jobs, run_parallel
    from srfca.report import tables as files
    from srfca.report.answer import NOT_KEPT

    with interruptible(), kept_runs(out, report) as folder:
        for path in table or []:
            files.check(path)
        check_report(report)
        make_trackers(track or [], "")  # what is wrong with them is said before anything runs
        keys = None if methods is None else method_keys(methods)
        experiment = options.load(keys, fine_tune, curves, ["sr-fca"] if equal_budget else [])
        keys = keys or comparing.default_methods(experiment)
        if methods is not None and "all" in split_list(methods, "--methods"):
            keys = comparing.without_truth_if_unknown(experiment, keys)
        specs = comparing.run_specs(
            experiment, keys, range(seed, seed + seeds), _numbers(k), equal_budget
        )
        run_all: RunAll = run_parallel
        if ray is not None:
            require(jobs is None, "--jobs is for this machine: leave it out with --ray")
            require(
                report is None or out is not None,
                "--report with --ray needs --out, a folder that all machines share",
            )
            with needs_extra("ray"):
                from srfca.experiments.on_ray import run_on_ray

            run_all = partial(run_on_ray, address=ray_address(ray))
            jobs = len(specs)
        jobs = jobs or default_jobs(options.device, len(specs))
        progress = RunsProgress(len(specs), parallel=jobs > 1, lines=not as_json)
        monitor = progress.stage_bars if jobs == 1 else None
        executor = RunExecutor(
            experiment, options.device, options.data_dir, folder, monitor, True, tuple(track or ()),
            not no_differences, num_samples(experiment, sample_inputs),
        )  # fmt: skip
        comparison = execute_with_progress(
            executor, specs, jobs, progress, as_json, run_all=run_all
        )
        reference: Comparison | None = None
        if not no_reference and comparison.metrics and (folder is not None or not as_json):
            reference_runs = comparing.reference_specs(experiment, specs, equal_budget)
            progress = RunsProgress(len(reference_runs), jobs > 1, not as_json, "reference ")
            reference = execute_with_progress(
                _reference_executor(executor), reference_runs, jobs, progress, as_json=False,
                run_all=run_all,
            )  # fmt: skip
        answers = _answers(executor, comparison, reference, keeps=out is not None)
        if report is not None and comparison.metrics:
            write_report(report, [executor.folder_of(spec) for spec in specs])
    failures = tables.failure_lines(comparison.failures)
    if comparison.metrics:
        listed = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
        length = comparing.training_length(experiment, equal_budget)
        notes = [*files.notes(comparison.metrics), *failures]
        title = f"{experiment.name}, {listed}, {length}"
        summary = files.Report(comparison.metrics, title, notes)
        for path in table or []:
            files.write(summary, path)
        if not as_json:
            show_report(summary, comparison.reused, len(specs), answers, reference)
            if out is None:
                show(NOT_KEPT)
            if report is not None:
                show(f"Report: {report}")
    if failures:
        if as_json or not comparison.metrics:
            for line in failures:
                show_error(line)
        raise typer.Exit(2)


@dataclass(frozen=True)
class AnalyzedRun:
    """A run with its answer, and the file with its clusters if it is saved."""

    metrics: Metrics
    analysis: Analysis
    path: Path | None


def _reference_executor(executor: RunExecutor) -> RunExecutor:
    """Return an executor of reference runs: they are saved apart from those of the methods."""
    from srfca.experiments.answer import REFERENCE_FOLDER

    out = None if executor.out is None else executor.out / REFERENCE_FOLDER
    return replace(executor, out=out, analyzes=False, track=())


def _answers(
    executor: RunExecutor, comparison: Comparison, reference: Comparison | None, keeps: bool
) -> list[AnalyzedRun]:
    """Compare the answers of all runs with Global and Local, if these ran, and save them again.

    Args:
        executor: Knows the folders of the runs.
        comparison: The runs.
        reference: Runs of Global and Local that are not part of the comparison.
        keeps: Whether these folders are there when the command has ended.
    """
    from srfca.experiments.answer import CLUSTERS_FILE, compared, save_answer

    runs = [*comparison.metrics, *(() if reference is None else reference.metrics)]
    answers = []
    for outcome in comparison.outcomes:
        if outcome.metrics is None or outcome.analysis is None:
            continue
        analysis = compared(outcome.analysis, outcome.metrics, runs)
        folder = executor.folder_of(outcome.spec)
        if folder is not None and analysis is not outcome.analysis:
            save_answer(analysis, folder)
        path = folder / CLUSTERS_FILE if folder is not None and keeps else None
        answers.append(AnalyzedRun(outcome.metrics, analysis, path))
    return answers


def show_report(
    report: Report,
    reused: int,
    total: int,
    answers: Sequence[AnalyzedRun] = (),
    reference: Comparison | None = None,
) -> None:
    """Print the tables of a comparison, its notes, and the clusters that were found.

    Args:
        report: The comparison.
        reused: How many runs were read from disk.
        total: How many runs there are.
        answers: The runs that find clusters. That of the first method that needs no number of
            clusters is shown, or else the first one.
        reference: Runs of Global and Local that are not part of the comparison.
    """
    from srfca.cli import tables
    from srfca.cli.answer import show_answer
    from srfca.cli.console import show
    from srfca.experiments.answer import ALONE, TOGETHER
    from srfca.report.words import (
        clusters_sentence,
        gains_sentence,
        reference_sentence,
        truth_sentence,
    )

    for table in report.tables:
        show(table.title, style="bold")
        show(tables.summary_table(table))
    for note in report.notes:
        show(note)
    without_k = [answer for answer in answers if answer.metrics["k"] is None]
    first = next(iter(without_k or answers), None)
    if len({run["seed"] for run in report.runs}) == 1:
        for run in report.runs:
            shown = first is not None and run is first.metrics
            if run["num_clusters"] is not None and run["k"] is None and not shown:
                show(clusters_sentence(run))
    if reused:
        show(f"{reused} of {total} runs were read from --out.")
    if reference is not None:
        if reference.metrics:
            show(reference_sentence(reference.metrics))
        for line in tables.failure_lines(reference.failures):
            show(f"Reference: {line}")
    if first is None:
        return
    method, k = first.metrics["method"], first.metrics["k"]
    runs = [*report.runs, *(() if reference is None else reference.metrics)]
    gains = gains_sentence(
        [run for run in runs if (run["method"], run["k"]) == (method, k)],
        [run for run in runs if run["method"] in {TOGETHER, ALONE} - {method}],
    )
    if gains:
        show(gains)
    show("")
    name = first.metrics["name"] if k is None else f"{first.metrics['name']}, K={k}"
    title = f"Clusters of {name}, seed {first.metrics['seed']}"
    show_answer(first.analysis, first.path, title, truth_sentence(first.metrics))


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
