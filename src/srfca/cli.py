"""The command line. Whatever needs torch is imported when a run begins."""

from __future__ import annotations

import json
import sys
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

Name = Annotated[str, typer.Argument(help="The experiment; 'srfca list' shows them all.")]
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
    name: Name,
    method: Annotated[str, typer.Option(help="sr-fca, global or local.")] = "sr-fca",
    seed: Seed = 0,
    device: Device = "auto",
    set_: Set = None,
    as_json: Json = False,
    out: Out = None,
) -> None:
    """Run one method, SR-FCA by default, on an experiment."""
    outcome = _runs(name, [method], [seed], device, set_, as_json, out, nested=False)[0]
    if not as_json:
        from srfca import console

        console.show(f"{name}, {console.NAMES[method]}, seed {seed}", style="bold")
        console.show(console.stages_table(outcome))
        why = outcome.result.history[0].notes.get("why")
        if why:
            console.show(f"Threshold: {why}.")
        if outcome.result.clustered:
            console.show(console.verdict(outcome))
        console.show(console.results_table([outcome.row()]))


@app.command()
def compare(
    name: Name,
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
    """Run several methods on an experiment, side by side."""
    chosen = [method.strip() for method in methods.split(",") if method.strip()]
    require(bool(chosen), "--methods names no method")
    numbers = list(range(seed, seed + seeds))
    outcomes = _runs(name, chosen, numbers, device, set_, as_json, out, nested=True)
    if not as_json:
        from srfca import console

        which = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
        console.show(f"{name}, {which}", style="bold")
        console.show(console.results_table([outcome.row() for outcome in outcomes]))
        clustered = [outcome for outcome in outcomes if outcome.result.clustered]
        if seeds == 1:
            for outcome in clustered:
                console.show(f"{console.NAMES[outcome.method]}: {console.verdict(outcome)}")


def _runs(
    name: str,
    methods: list[str],
    seeds: list[int],
    device: str,
    settings: list[str] | None,
    as_json: bool,
    out: Path | None,
    nested: bool,
) -> list[Outcome]:
    """What ``_do_runs`` does, until it is interrupted."""
    try:
        return _do_runs(name, methods, seeds, device, settings, as_json, out, nested)
    except KeyboardInterrupt:
        typer.echo("srfca: interrupted", err=True)
        raise typer.Exit(130) from None


def _do_runs(
    name: str,
    methods: list[str],
    seeds: list[int],
    device: str,
    settings: list[str] | None,
    as_json: bool,
    out: Path | None,
    nested: bool,
) -> list[Outcome]:
    """Do the runs, one after another; each is saved and printed as soon as it is done."""
    from srfca import console
    from srfca.experiments import config, runner
    from srfca.files import writable_folder

    experiment = config.load(name).set(settings or [])
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
