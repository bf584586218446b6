"""The command ``srfca``. Each command imports what it needs when it runs, so that help is fast."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer

from srfca._version import __version__
from srfca.cli import (
    bench,
    catalog,
    compare,
    data,
    export,
    flower,
    predict,
    report,
    reproduce,
    run,
    stress,
    theory,
    tune,
    watch,
)
from srfca.cli.console import show_error
from srfca.cli.options import with_ray_address
from srfca.errors import InputError
from srfca.threads import limit_spinning


def _make_app(help_text: str) -> typer.Typer:
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _make_app("Clustered federated learning without knowing the number of clusters.")
app.command("list")(catalog.list_all)
app.command("run")(run.run)
app.command("resume")(run.resume)
app.command("compare")(compare.compare)
app.command("reproduce")(reproduce.reproduce)
app.command("stress")(stress.stress)
app.command("tune")(tune.tune)
app.command("predict")(predict.predict)
app.command("assign")(predict.assign)
app.command("export")(export.export)
app.command("report")(report.report)
app.command("figure")(report.figure)
app.command("watch")(watch.watch)
app.command("theory")(theory.theory)

data_app = _make_app("Check and download data sets.")
data_app.command("check")(data.check)
data_app.command("get")(data.get)
app.add_typer(data_app, name="data")

bench_app = _make_app("Benchmarks.")
bench_app.command("field")(bench.field)
app.add_typer(bench_app, name="bench")

flower_app = _make_app("Real clients, with Flower.")
flower_app.command("new")(flower.new)
app.add_typer(flower_app, name="flower")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"srfca {__version__}")
        raise typer.Exit


def _show_warning(message: Warning | str, *details: object, **names: object) -> None:
    """Print a warning in one line, without the place in the source code."""
    show_error(f"warning: {message}")


def main() -> None:
    """Run the command line. Invalid input ends with one line on standard error and exit code 2."""
    limit_spinning()
    warnings.showwarning = _show_warning
    try:
        app(with_ray_address(sys.argv[1:]), prog_name="srfca")
    except InputError as error:
        show_error(str(error))
        sys.exit(2)
