"""The command line. Whatever needs torch is imported when a run begins."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srfca._version import __version__
from srfca.errors import InputError, require
from srfca.options import Common, DataDir, Json, Personalise, Seed, with_common

if TYPE_CHECKING:
    from srfca.experiments.bench import Done, Finished, Task

app = typer.Typer(
    help="Clustered federated learning without knowing the number of clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

data_app = typer.Typer(help="Look at data sets, or download them.", no_args_is_help=True)
app.add_typer(data_app, name="data")
flower_app = typer.Typer(help="Real clients, by Flower.", no_args_is_help=True)
app.add_typer(flower_app, name="flower")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"srfca {__version__}")
        raise typer.Exit


@app.command("list")
def list_all() -> None:
    """Show the experiments and the methods."""
    from srfca import console
    from srfca.experiments import config

    console.show(console.experiments_table([config.read(n) for n in config.names()]))
    console.show(console.methods_table())


@app.command()
@with_common
def run(
    common: Common,
    method: Annotated[str, typer.Option(help="One of 'srfca list'.")] = "sr-fca",
    seed: Seed = 0,
    personalise: Personalise = None,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option(help="Save the result in this folder.")] = None,
    journal: Annotated[
        bool,
        typer.Option(
            "--journal",
            help="With --out: if the run is killed, 'srfca resume' goes on where it was.",
        ),
    ] = False,
) -> None:
    """Run one method, SR-FCA by default, on an experiment or on your own data."""
    from srfca import console
    from srfca.experiments import runner, saved
    from srfca.files import writable_folder
    from srfca.report import summary

    with _interruptible():
        experiment = common.experiment(personalise)
        runner.method(experiment, method)
        require(out is not None or not journal, "--journal needs --out, a folder to keep it in")
        if out is not None:
            writable_folder(out)
        if out is not None and journal:
            asked = {"method": method, "seed": seed, "personalise": personalise, "as_json": as_json}
            saved.write_command(out, asdict(common) | asked)
        bars = console.Bars()
        clients = runner.federation(experiment, seed, common.device, common.data_dir, bars)
        notes = out / "journal" if out is not None and journal else None
        before = saved.read(notes.parent, saved.digest(experiment, method, seed)) if notes else None
        outcome = runner.run(experiment, method, clients, seed, bars, notes)
        if before is not None:
            outcome = replace(outcome, seconds=before["seconds"])
        if out is not None:
            saved.save(outcome, experiment, out)
    row = outcome.row()
    if as_json:
        typer.echo(json.dumps(row))
        return
    console.show(f"{experiment.name}, {row['name']}, seed {seed}", style="bold")
    console.show(console.stages_table(outcome))
    why = outcome.result.history[0].notes.get("reason")
    if why:
        console.show(f"Threshold: {why}.")
    warning = outcome.result.history[0].notes.get("warning")
    if warning and outcome.result.partition.num_clusters > 1:
        console.show(f"Doubtful: {warning}.")
    if outcome.result.clustered:
        console.show(console.verdict(row))
    console.show(console.summary_table(summary.results([row])))
    console.show("Cost per client", style="bold")
    console.show(console.summary_table(summary.costs([row])))


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="What 'srfca run --journal' was given as --out.")],
) -> None:
    """Go on with a run that was killed."""
    from srfca.experiments import saved

    run(**saved.read_command(folder), out=folder, journal=True)


@app.command()
@with_common
def compare(
    common: Common,
    methods: Annotated[
        str | None,
        typer.Option(help="Which methods, separated by commas; 'srfca list' shows them all."),
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from --seed on.")] = 1,
    k: Annotated[
        str | None,
        typer.Option(
            metavar="K,...",
            help="Numbers of clusters for methods that must be told; else the experiment's.",
        ),
    ] = None,
    equal_budget: Annotated[
        bool,
        typer.Option("--equal-budget", help="Give every method as many local steps as SR-FCA."),
    ] = False,
    personalise: Personalise = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; else one per core, one on a GPU.")
    ] = None,
    table: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Write the table: .csv, .md or .tex; repeatable."),
    ] = None,
    as_json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Save runs in this folder, and do not repeat those it has."),
    ] = None,
) -> None:
    """Run several methods on an experiment or on your own data, side by side."""
    from srfca import console
    from srfca.experiments import compare as comparing
    from srfca.experiments.bench import Bench
    from srfca.experiments.parallel import default_jobs
    from srfca.report import tables

    with _interruptible():
        for path in table or []:
            tables.check(path)
        experiment = common.experiment(personalise)
        chosen = comparing.default_methods(experiment) if methods is None else _listed(methods)
        numbers = range(seed, seed + seeds)
        tasks = comparing.tasks(experiment, chosen, numbers, _numbers(k), equal_budget)
        jobs = jobs or default_jobs(common.device, len(tasks))
        runs = console.Runs(len(tasks), parallel=jobs > 1, silent=as_json)
        monitor = runs.bars if jobs == 1 else None
        bench = Bench(experiment, common.device, common.data_dir, out, monitor)
        printed = _printer(tasks) if as_json else None

        def finished(done: Done) -> None:
            runs.finished(done)
            if printed is not None:
                printed(done)

        with runs.progress:
            comparison = comparing.run(bench, tasks, jobs, finished)
    failures = console.failure_lines(comparison.failures)
    if comparison.rows:
        which = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
        title = f"{experiment.name}, {which}, {comparing.terms(experiment, equal_budget)}"
        report = tables.Report(comparison.rows, title, [*tables.notes(comparison.rows), *failures])
        for path in table or []:
            tables.write(report, path)
        if not as_json:
            console.show_report(report)
            if comparison.reused:
                console.show(f"{comparison.reused} of {len(tasks)} runs were there already.")
    if failures:
        if as_json or not comparison.rows:
            typer.echo("\n".join(f"srfca: {line}" for line in failures), err=True)
        raise typer.Exit(2)


@app.command()
@with_common
def tune(
    common: Common,
    trials: Annotated[
        int, typer.Option(min=1, help="How many settings are tried, earlier calls included.")
    ] = 20,
    seeds: Annotated[
        int, typer.Option(min=1, help="Over how many seeds each is averaged, from 1000 on.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Keep the search in this folder, or go on with it.")
    ] = None,
) -> None:
    """Search rate, trim and threshold of SR-FCA on validation data."""
    from srfca import console
    from srfca.experiments import tune as search

    def tell(trial: search.Trial) -> None:
        if not as_json:
            typer.echo(console.trial_line(trial), err=True)

    with _interruptible():
        experiment = common.experiment()
        ranked = search.tune(
            experiment, trials=trials, seeds=seeds, device=common.device, folder=common.data_dir,
            out=out, monitor=console.Bars(), finished=tell,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(search.summary(experiment, ranked)))
    else:
        failed = sum(trial.loss is None for trial in ranked)
        console.show(f"{experiment.name}, {len(ranked)} trials, {failed} failed", style="bold")
        console.show(console.trials_table(ranked[:5]))
        console.show("Best: " + " ".join(f"--set {setting}" for setting in ranked[0].settings))


@flower_app.command("new")
def flower_new(
    folder: Annotated[Path, typer.Argument(help="A new folder; the app is called like it.")],
) -> None:
    """Write a Flower app that runs as it is, to put your own data and model into."""
    from srfca import console
    from srfca.apps import new_app

    with _interruptible():
        for path in new_app(folder):
            console.show(str(path))
    console.show(f"Run it: flwr run {folder} local --stream --federation-config num-supernodes=8")


@data_app.command("check")
def data_check(data_dir: DataDir = None) -> None:
    """List the data sets that are there, and verify their files."""
    from srfca import console
    from srfca.data.loaders.cache import data_folder
    from srfca.data.loaders.check import check

    folder = data_folder(data_dir)
    console.show(f"Data folder: {folder}")
    console.show(console.data_table(check(folder)))


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="mnist, cifar10, femnist or shakespeare.")],
    data_dir: DataDir = None,
) -> None:
    """Download a data set from its publisher, going on where an earlier call was interrupted."""
    from srfca import console
    from srfca.data.loaders.download import get

    with _interruptible(), console.download_bars() as progress:
        paths = get(name, data_dir, progress)
    for path in paths:
        typer.echo(str(path))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ends with one line and exit code 130 when interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("srfca: interrupted", err=True)
        raise typer.Exit(130) from None


def _listed(methods: str) -> list[str]:
    """Methods that are separated by commas."""
    chosen = [method.strip() for method in methods.split(",") if method.strip()]
    require(bool(chosen), "--methods names no method")
    return chosen


def _numbers(k: str | None) -> tuple[int, ...] | None:
    """Numbers of clusters that are separated by commas."""
    if k is None:
        return None
    from srfca.experiments.config import parse

    found: tuple[int, ...] = parse(k, tuple[int, ...], "--k")
    require(
        bool(found) and min(found) >= 1, f"--k must be one or more numbers from 1 on, not {k!r}"
    )
    return found


def _printer(tasks: Sequence[Task]) -> Finished:
    """A function that prints the rows of runs in the order of the tasks, as soon as it can."""
    left = deque(tasks)
    waiting: dict[Task, Done] = {}

    def finished(done: Done) -> None:
        waiting[done.task] = done
        while left and left[0] in waiting:
            row = waiting.pop(left.popleft()).row
            if row is not None:
                typer.echo(json.dumps(row))

    return finished


def main() -> None:
    """The command line; what a user can mend ends with exit code 2 and one line."""
    try:
        app()
    except InputError as error:
        typer.echo(f"srfca: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
