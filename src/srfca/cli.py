"""The command line. Whatever needs torch is imported when a run begins."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srfca._version import __version__
from srfca.errors import InputError, require

if TYPE_CHECKING:
    from srfca.experiments.config import Experiment
    from srfca.experiments.runner import Outcome

app = typer.Typer(
    help="Clustered federated learning without knowing the number of clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

data_app = typer.Typer(help="Look at data sets, or download them.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Name = Annotated[str | None, typer.Argument(help="The experiment; 'srfca list' shows them all.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Your own data instead: a .npz or .parquet file, or a folder of these."),
]
Model = Annotated[
    str | None,
    typer.Option(help="For --data: mlp (default), linear, ... or MODULE:FACTORY, your own."),
]
Seed = Annotated[int, typer.Option(min=0, help="Decides the data, w0 and every draw.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, such as trim=0.2."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per run, nothing else.")]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where data sets are; else SRFCA_DATA, else the user's cache."),
]
Quick = Annotated[bool, typer.Option("--quick", help="A small run of a few seconds.")]
Out = Annotated[Path | None, typer.Option(help="Save results in this folder.")]


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"srfca {__version__}")
        raise typer.Exit


@app.command("list")
def list_experiments() -> None:
    """Show the experiments."""
    from srfca import console
    from srfca.experiments import config

    console.show(console.experiments_table([config.read(n) for n in config.names()]))


@app.command()
def run(
    name: Name = None,
    data: Data = None,
    model: Model = None,
    method: Annotated[str, typer.Option(help="sr-fca, global or local.")] = "sr-fca",
    seed: Seed = 0,
    device: Device = "auto",
    data_dir: DataDir = None,
    quick: Quick = False,
    set_: Set = None,
    as_json: Json = False,
    out: Out = None,
) -> None:
    """Run one method, SR-FCA by default, on an experiment or on your own data."""
    with _interruptible():
        experiment = _experiment(name, data, model, quick, set_)
        outcomes = _runs(experiment, [method], [seed], device, data_dir, as_json, out, nested=False)
    if not as_json:
        from srfca import console

        [outcome] = outcomes
        console.show(f"{experiment.name}, {console.NAMES[method]}, seed {seed}", style="bold")
        console.show(console.stages_table(outcome))
        why = outcome.result.history[0].notes.get("why")
        if why:
            console.show(f"Threshold: {why}.")
        if outcome.result.clustered:
            console.show(console.verdict(outcome))
        console.show(console.results_table([outcome.row()]))


@app.command()
def compare(
    name: Name = None,
    data: Data = None,
    model: Model = None,
    methods: Annotated[
        str, typer.Option(help="Which methods, separated by commas.")
    ] = "sr-fca,global,local",
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from --seed on.")] = 1,
    device: Device = "auto",
    data_dir: DataDir = None,
    quick: Quick = False,
    set_: Set = None,
    as_json: Json = False,
    out: Out = None,
) -> None:
    """Run several methods on an experiment or on your own data, side by side."""
    chosen = [method.strip() for method in methods.split(",") if method.strip()]
    require(bool(chosen), "--methods names no method")
    numbers = list(range(seed, seed + seeds))
    with _interruptible():
        experiment = _experiment(name, data, model, quick, set_)
        outcomes = _runs(experiment, chosen, numbers, device, data_dir, as_json, out, nested=True)
    if not as_json:
        from srfca import console

        which = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
        console.show(f"{experiment.name}, {which}", style="bold")
        console.show(console.results_table([outcome.row() for outcome in outcomes]))
        clustered = [outcome for outcome in outcomes if outcome.result.clustered]
        if seeds == 1:
            for outcome in clustered:
                console.show(f"{console.NAMES[outcome.method]}: {console.verdict(outcome)}")


@app.command()
def tune(
    name: Name = None,
    data: Data = None,
    model: Model = None,
    trials: Annotated[
        int, typer.Option(min=1, help="How many settings are tried, earlier calls included.")
    ] = 20,
    seeds: Annotated[
        int, typer.Option(min=1, help="Over how many seeds each is averaged, from 1000 on.")
    ] = 1,
    device: Device = "auto",
    data_dir: DataDir = None,
    quick: Quick = False,
    set_: Set = None,
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
        experiment = _experiment(name, data, model, quick, set_)
        ranked = search.tune(
            experiment, trials=trials, seeds=seeds, device=device, folder=data_dir, out=out,
            monitor=console.Bars(), finished=tell,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(search.summary(experiment, ranked)))
    else:
        failed = sum(trial.loss is None for trial in ranked)
        console.show(f"{experiment.name}, {len(ranked)} trials, {failed} failed", style="bold")
        console.show(console.trials_table(ranked[:5]))
        console.show("Best: " + " ".join(f"--set {setting}" for setting in ranked[0].settings))


@data_app.command("check")
def data_check(data_dir: DataDir = None) -> None:
    """List the data sets that are there, and verify their files."""
    from srfca import console
    from srfca.data.loaders.check import check
    from srfca.data.loaders.store import data_folder

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


def _experiment(
    name: str | None,
    data: Path | None,
    model: str | None,
    quick: bool,
    settings: list[str] | None,
) -> Experiment:
    """The experiment of this name, or of a user's own data."""
    require(name is None or data is None, f"either {name!r} or --data {data}, not both")
    if data is not None:
        from srfca.experiments import custom

        require(not quick, "--quick is for the experiments of 'srfca list', not for --data")
        return custom.own(data, model or "mlp").set(settings or [])
    if name is None:
        raise InputError("name an experiment ('srfca list' shows them), or give --data")
    require(model is None, f"--model goes with --data: {name!r} has a model of its own")
    from srfca.experiments import config

    experiment = config.load(name)
    return experiment.set([*(experiment.quick if quick else ()), *(settings or [])])


def _runs(
    experiment: Experiment,
    methods: list[str],
    seeds: list[int],
    device: str,
    data_dir: Path | None,
    as_json: bool,
    out: Path | None,
    nested: bool,
) -> list[Outcome]:
    """Do the runs, one after another; each is saved and printed as soon as it is done."""
    from srfca import console
    from srfca.experiments import runner
    from srfca.files import writable_folder

    for method in methods:
        runner.method(experiment, method)
    if out is not None:
        writable_folder(out)
    bars = console.Bars()
    outcomes = []
    for seed, method in product(seeds, methods):
        if method == methods[0]:
            bars.prefix = "Start: "
            clients = runner.federation(experiment, seed, device, data_dir, bars)
        bars.prefix = f"{console.NAMES[method]}: " if nested else ""
        outcome = runner.run(experiment, method, clients, seed, bars)
        outcomes.append(outcome)
        if out is not None:
            _save(outcome, experiment, out / f"{method}-seed{seed}" if nested else out)
        if as_json:
            typer.echo(json.dumps(outcome.row()))
    return outcomes


def _save(outcome: Outcome, experiment: Experiment, folder: Path) -> None:
    """Write a result with its figures and with the settings that led to it."""
    from srfca.files import replace_file

    outcome.result.save(folder)
    content: dict[str, Any] = outcome.row() | {
        "settings": {name: dict(section) for name, section in experiment.sections.items()}
    }
    replace_file(folder / "run.json", (json.dumps(content, indent=1) + "\n").encode())


def main() -> None:
    """The command line; what a user can mend ends with exit code 2 and one line."""
    try:
        app()
    except InputError as error:
        typer.echo(f"srfca: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
