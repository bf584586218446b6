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
    set_: Set = None,
    as_json: Json = False,
    out: Out = None,
) -> None:
    """Run one method, SR-FCA by default, on an experiment or on your own data."""
    with _interruptible():
        experiment = _experiment(name, data, model, set_)
        outcome = _runs(experiment, [method], [seed], device, as_json, out, nested=False)[0]
    if not as_json:
        from srfca import console

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
    set_: Set = None,
    as_json: Json = False,
    out: Out = None,
) -> None:
    """Run several methods on an experiment or on your own data, side by side."""
    chosen = [method.strip() for method in methods.split(",") if method.strip()]
    require(bool(chosen), "--methods names no method")
    numbers = list(range(seed, seed + seeds))
    with _interruptible():
        experiment = _experiment(name, data, model, set_)
        outcomes = _runs(experiment, chosen, numbers, device, as_json, out, nested=True)
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
        experiment = _experiment(name, data, model, set_)
        ranked = search.tune(
            experiment, trials=trials, seeds=seeds, device=device, out=out,
            monitor=console.Bars(), finished=tell,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(search.summary(experiment, ranked)))
    else:
        failed = sum(trial.loss is None for trial in ranked)
        console.show(f"{experiment.name}, {len(ranked)} trials, {failed} failed", style="bold")
        console.show(console.trials_table(ranked[:5]))
        console.show("Best: " + " ".join(f"--set {setting}" for setting in ranked[0].settings))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ends with one line and exit code 130 when interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("srfca: interrupted", err=True)
        raise typer.Exit(130) from None


def _experiment(
    name: str | None, data: Path | None, model: str | None, settings: list[str] | None
) -> Experiment:
    """The experiment of this name, or of a user's own data."""
    require(name is None or data is None, f"either {name!r} or --data {data}, not both")
    if data is not None:
        from srfca.experiments import custom

        return custom.own(data, model or "mlp").set(settings or [])
    if name is None:
        raise InputError("name an experiment ('srfca list' shows them), or give --data")
    require(model is None, f"--model goes with --data: {name!r} has a model of its own")
    from srfca.experiments import config

    return config.load(name).set(settings or [])


def _runs(
    experiment: Experiment,
    methods: list[str],
    seeds: list[int],
    device: str,
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
            clients = runner.federation(experiment, seed, device)
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
