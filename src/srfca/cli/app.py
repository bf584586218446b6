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
from srfca.cli.help import Command, Group
from srfca.cli.options import with_ray_address
from srfca.errors import InputError
from srfca.threads import limit_spinning


def _make_app(help_text: str, add_completion: bool = False) -> typer.Typer:
    return typer.Typer(
        cls=Group,
        help=help_text,
        no_args_is_help=True,
        add_completion=add_completion,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _make_app(
    "Clustered federated learning without knowing the number of clusters.", add_completion=True
)
app.command("list", cls=Command)(catalog.list_all)
app.command("run", cls=Command)(run.run)
app.command("resume", cls=Command)(run.resume)
app.command("compare", cls=Command)(compare.compare)
app.command("reproduce", cls=Command)(reproduce.reproduce)
app.command("stress", cls=Command)(stress.stress)
app.command("tune", cls=Command)(tune.tune)
app.command("predict", cls=Command)(predict.predict)
app.command("assign", cls=Command)(predict.assign)
app.command("export", cls=Command)(export.export)
app.command("report", cls=Command)(report.report)
app.command("figure", cls=Command)(report.figure)
app.command("watch", cls=Command)(watch.watch)
app.command("theory", cls=Command)(theory.theory)

data_app = _make_app("Check and download data sets.")
data_app.command("check", cls=Command)(data.check)
data_app.command("get", cls=Command)(data.get)
app.add_typer(data_app, name="data")

bench_app = _make_app("Benchmarks.")
bench_app.command("field", cls=Command)(bench.field)
app.add_typer(bench_app, name="bench")

flower_app = _make_app("Real clients, with Flower.")
flower_app.command("new", cls=Command)(flower.new)
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
