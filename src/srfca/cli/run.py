"""``srfca run`` and ``srfca resume``: one run, stage by stage."""

from __future__ import annotations

import json
import warnings
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srfca.cli import completion
from srfca.cli.options import (
    Curves,
    ExperimentOptions,
    FineTune,
    Json,
    NoDifferences,
    RayAddress,
    ReportFile,
    SampleInputs,
    Seed,
    Track,
    interruptible,
    needs_extra,
    ray_address,
    whole_number,
    with_experiment,
)
from srfca.cli.report import check_report
from srfca.errors import SrfcaWarning, require

if TYPE_CHECKING:
    from srfca.analysis import Analysis
    from srfca.experiments.runner import ScoredRun


@with_experiment
def run(
    options: ExperimentOptions,
    method: Annotated[
        str,
        typer.Option(
            metavar="KEY",
            show_default=False,
            autocompletion=completion.methods,
            help="A method of 'srfca list', or your MODULE:CLASS; default: sr-fca.",
        ),
    ] = "sr-fca",
    literal: Annotated[
        bool,
        typer.Option(
            "--literal",
            help="The paper's SR-FCA and nothing else, as --method sr-fca-literal; its lambda is "
            "--set threshold=NUMBER.",
        ),
    ] = False,
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            metavar="K",
            parser=whole_number(1),
            help="The number of clusters, for a method that needs it: as --set k=K.",
        ),
    ] = None,
    seed: Seed = 0,
    fine_tune: FineTune = None,
    curves: Curves = None,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference",
            help="Also train one model for all, and every client alone, to compare with.",
        ),
    ] = False,
    no_differences: NoDifferences = False,
    sample_inputs: SampleInputs = None,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option(help="Save the result in this folder.")] = None,
    input_statistics: Annotated[
        bool,
        typer.Option(
            "--input-statistics",
            help="With --out: also save what clients' inputs look like, so that newcomers without "
            "labels can be assigned.",
        ),
    ] = False,
    journal: Annotated[
        bool,
        typer.Option(
            "--journal", help="With --out: if the run is killed, 'srfca resume' continues it."
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="With --out: replace another run, or a damaged one, in the folder."
        ),
    ] = False,
    report: ReportFile = None,
    track: Track = None,
    ray: RayAddress = None,
) -> None:
    """Run one method on an experiment or on your data.

    The method is SR-FCA by default. It ends with the answer: which clients belong together, what
    that gains, and how sure it is.
    """
    from srfca.analysis.truth import true_partition
    from srfca.callbacks import Monitor, ProgressBars, ProgressFolder, make_trackers
    from srfca.cli import saved_command
    from srfca.cli.console import show
    from srfca.engine import Simulation
    from srfca.experiments import runner, saved
    from srfca.experiments.answer import CLUSTERS_FILE, analyze_run, num_samples
    from srfca.experiments.metrics import elapsed_of
    from srfca.experiments.views import view_of
    from srfca.locks import locked
    from srfca.methods import Monitors
    from srfca.methods.registry import method_key

    with interruptible(), ExitStack() as notes:
        if out is not None:
            notes.enter_context(locked(out))
        method = method_key(method)
        require(
            not literal or method in ("sr-fca", "sr-fca-literal"),
            f"--literal is for SR-FCA, not for {method}: leave one of them out",
        )
        method = "sr-fca-literal" if literal else method
        if k is not None:
            options = replace(options, set_=[*(options.set_ or []), f"k={k}"])
        experiment = options.load([method], fine_tune, curves)
        made = runner.make_method(experiment, method)
        check_report(report)
        trackers = make_trackers(track or [], f"{experiment.name}-{method}-seed{seed}")
        require(
            made.clustered or not input_statistics,
            f"--input-statistics is for methods that find clusters, but {made.name} does not",
        )
        for option, is_set in (
            ("--journal", journal),
            ("--input-statistics", input_statistics),
            ("--overwrite", overwrite),
        ):
            require(out is not None or not is_set, f"{option} needs --out, a folder to keep it in")
        journal_folder = previous = None
        if out is not None:
            digest = saved.run_digest(experiment, method, seed)
            saved.claim(out, digest, resumes=journal, overwrite=overwrite)
        if out is not None and journal:
            arguments = {
                "method": method, "seed": seed, "fine_tune": fine_tune, "curves": curves,
                "reference": reference, "no_differences": no_differences, "as_json": as_json,
                "sample_inputs": sample_inputs, "input_statistics": input_statistics,
                "report": report, "track": track, "ray": ray, "k": None,  # k is among the settings
            }  # fmt: skip
            saved_command.write(out, asdict(options) | arguments)
            journal_folder = out / saved.JOURNAL_FOLDER
            previous = saved.read(out, digest)
        bars = ProgressBars()
        callbacks: list[Monitor] = [bars, *trackers]
        folder = None if out is None else ProgressFolder(out, experiment.name)
        if folder is not None:
            callbacks.append(folder)
            notes.enter_context(folder.noting_failure())
            notes.enter_context(folder.noting_warnings())
        make: runner.MakeFederation = Simulation
        if ray is not None:
            with needs_extra("ray"):
                from srfca.ray import RayFederation

            make = partial(RayFederation, address=ray_address(ray))
        federation = runner.make_federation(
            experiment, seed, options.device, options.data_dir, bars, make=make
        )
        notes.callback(runner.close, federation)
        if runner.guesses_k(experiment, method, true_partition(federation)):
            warnings.warn(
                f"{made.name} needs the number of clusters, which is unknown; using k={made.k} "
                "(choose another with --k)",
                SrfcaWarning,
                stacklevel=2,
            )
        finished = runner.run_method(
            experiment, method, federation, seed, Monitors(callbacks), journal_folder
        )
        if previous is not None:
            finished = replace(finished, elapsed=elapsed_of(previous))
        if input_statistics:
            described = finished.result.with_input_statistics(federation)
            finished = replace(finished, result=described)
        analysis = analyze_run(
            finished, reference=made.local if reference else None, differences=not no_differences,
            sample_inputs=num_samples(experiment, sample_inputs), monitor=bars,
        )  # fmt: skip
        path = None
        if out is not None:
            saved.save(finished, experiment, out, analysis)
            path = out / CLUSTERS_FILE
        if folder is not None:
            folder.remove()
        if report is not None:
            from srfca.report.page.report import write_report

            write_report([view_of(finished, experiment, analysis)], report)
    if as_json:
        answer = {"verdict": analysis.verdict, "sentence": analysis.sentence()}
        content = finished.metrics | {"answer": {**answer, "table": analysis.table()}}
        typer.echo(json.dumps(content))
    else:
        show_run(finished, analysis, path)
        if report is not None:
            show(f"Report: {report}")


def resume(
    folder: Annotated[Path, typer.Argument(help="The --out of 'srfca run --journal'.")],
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Same as in 'srfca run'; default: what the run was given."
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND[:PLACE]", help="Same as in 'srfca run'; default: that of the run."
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]", help="Same as in 'srfca run'; default: what the run was given."
        ),
    ] = None,
) -> None:
    """Continue a run that was killed."""
    from srfca.cli import saved_command

    chosen = {"report": report, "track": track, "ray": ray}
    given = {name: value for name, value in chosen.items() if value}
    run(**saved_command.read(folder) | given, out=folder, journal=True)


def show_run(run: ScoredRun, analysis: Analysis, path: Path | None = None) -> None:
    """Print the stages of a run, its scores and costs, and the answer.

    Args:
        run: The run.
        analysis: Its answer.
        path: Where the clients' clusters are saved, if they are.
    """
    from srfca.cli import tables
    from srfca.cli.answer import show_answer
    from srfca.cli.console import show
    from srfca.report import summary
    from srfca.report.answer import hints
    from srfca.report.words import truth_sentence

    metrics, result = run.metrics, run.result
    show(f"{run.experiment}, {metrics['name']}, seed {result.seed}", style="bold")
    show(tables.stages_table(result))
    notes = result.history[0].notes
    if notes.get("reason"):
        show(f"Threshold: {notes['reason']}.")
    if result.decision is not None:
        show(result.decision)
        notes = next(s.notes for s in reversed(result.history) if "decision" in s.notes)
    doubt = notes.get("warning")
    said = doubt is not None and doubt in analysis.sentence()
    if doubt and not said and (result.partition.num_clusters > 1 or result.decision is not None):
        show(f"Doubtful: {doubt}.")
    for name, why in result.screened.items():
        show(f"Screened client {name!r}: {why}.")
    if result.privacy is not None:
        show(str(result.privacy))
    show(tables.summary_table(summary.results([metrics])))
    show("Cost per client", style="bold")
    show(tables.summary_table(summary.costs([metrics])))
    show_answer(analysis, path, truth=truth_sentence(metrics))
    for hint in hints(analysis, kept=path is not None):
        show(hint)
