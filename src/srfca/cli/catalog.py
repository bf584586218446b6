"""``srfca list``: what there is to run."""

from __future__ import annotations

from typing import Annotated

import typer


def list_all(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the methods as a Markdown table, with papers.")
    ] = False,
) -> None:
    """Show experiments, methods and data sets, also those of installed packages."""
    from srfca.cli import tables
    from srfca.cli.console import show
    from srfca.data import DATASETS
    from srfca.experiments import config
    from srfca.methods import all_methods
    from srfca.report.methods import methods_markdown

    if markdown:
        typer.echo(methods_markdown(all_methods()), nl=False)
        return
    show("Experiments", style="bold")
    show(tables.experiments_table([config.read(name) for name in config.names()]))
    show("Methods (--method KEY; yours: --method MODULE:CLASS)", style="bold")
    show(tables.methods_table(all_methods()))
    show('Data sets (name = "KEY" in [data] of an experiment; yours: MODULE:FUNCTION)', "bold")
    show(tables.datasets_table(DATASETS.items()))
