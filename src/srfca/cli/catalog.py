"""``srfca list``: what there is to run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srfca.errors import require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from srfca.data.registry import DatasetFunction
    from srfca.experiments.experiment import Experiment
    from srfca.methods import Method


def list_all(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the methods as a Markdown table, with papers.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for other programs.")
    ] = False,
) -> None:
    """Show experiments, methods and data sets.

    Those of installed packages are among them.
    """
    from srfca.cli import tables
    from srfca.cli.console import show
    from srfca.data import DATASETS
    from srfca.experiments import config
    from srfca.methods import all_methods
    from srfca.report.methods import methods_markdown

    require(not (markdown and as_json), "give either --markdown or --json, not both")
    if markdown:
        typer.echo(methods_markdown(all_methods()), nl=False)
        return
    experiments = [config.read(name) for name in config.names()]
    if as_json:
        typer.echo(json.dumps(catalog(experiments, all_methods(), DATASETS.items())))
        return
    show("Experiments", style="bold")
    show(tables.experiments_table(experiments))
    show("Methods (--method KEY; yours: --method MODULE:CLASS)", style="bold")
    show(tables.methods_table(all_methods()))
    show('Data sets (name = "KEY" in [data] of an experiment; yours: MODULE:FUNCTION)', "bold")
    show(tables.datasets_table(DATASETS.items()))


def catalog(
    experiments: Sequence[Experiment],
    methods: Sequence[type[Method]],
    datasets: Mapping[str, DatasetFunction],
) -> dict[str, list[dict[str, Any]]]:
    """Return what there is to run as plain data.

    Returns:
        ``experiments``, ``methods`` and ``datasets``: each a list of objects. ``needs`` of a method
        is "K", "truth" (the true clusters) or null; that of an experiment names files of data.
    """
    from srfca.report.methods import needs, summary_line

    return {
        "experiments": [
            {
                "name": experiment.name,
                "description": experiment.description,
                "clusters": experiment.clusters,
                "needs": experiment.needs or None,
            }
            for experiment in experiments
        ],
        "methods": [
            {
                "key": method.key,
                "name": method.name,
                "class": f"{method.__module__}:{method.__qualname__}",
                "family": method.family,
                "needs": needs(method) or None,
                "clustered": method.clustered,
                "summary": summary_line(method),
                "paper": method.paper,
            }
            for method in methods
        ],
        "datasets": [
            {"key": key, "summary": summary_line(dataset)}
            for key, dataset in sorted(datasets.items())
        ],
    }
