"""What a report shows of runs: of one that has just ended, and of those in folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from srfca._version import __version__
from srfca.errors import InputError, require
from srfca.experiments import saved
from srfca.experiments.clients_file import client_columns, read_clients
from srfca.experiments.experiment import Experiment
from srfca.experiments.metrics import Metrics
from srfca.experiments.runner import ScoredRun
from srfca.methods import Result
from srfca.report.view import RunView


def view_of(run: ScoredRun, experiment: Experiment) -> RunView:
    """Return the view of a run that has just ended."""
    return _with_metrics(
        replace(RunView.of(run.result), clients=client_columns(run)),
        run.metrics,
        saved.run_settings(experiment, run.method),
        {"srfca": __version__, **saved.library_versions()},
    )


def read_view(folder: Path) -> RunView:
    """Return the view of the run in a folder: of ``srfca run --out``, or of a Flower server.

    Raises:
        InputError: If the folder holds no result, or a damaged one.
    """
    result = Result.load(folder)
    view = replace(RunView.of(result), clients=read_clients(folder, result.client_ids))
    path = folder / saved.RUN_FILE
    if not path.exists():
        return view
    try:
        metrics, extra = saved.extras(json.loads(path.read_bytes()))
        versions = {"srfca": extra["srfca"], **extra["versions"]}
        return _with_metrics(view, metrics, extra["settings"], versions)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {error!r}") from error


def read_views(folder: Path) -> list[RunView]:
    """Return the runs in a folder: the one that it holds, or those of its folders.

    Raises:
        InputError: If it holds none, or a damaged one.
    """
    require(folder.is_dir(), f"{folder} is no folder: give the --out of 'srfca run' or 'compare'")
    if (folder / "result.json").exists():
        return [read_view(folder)]
    folders = sorted(path.parent for path in folder.glob("*/result.json"))
    require(
        bool(folders),
        f"{folder} holds no result: give the --out of 'srfca run', 'srfca compare' or a server",
    )
    return [read_view(path) for path in folders]


def _with_metrics(
    view: RunView, metrics: Metrics, settings: dict[str, dict[str, Any]], versions: dict[str, str]
) -> RunView:
    return replace(
        view,
        experiment=metrics["experiment"],
        key=metrics["method"],
        metrics=metrics,
        settings=settings,
        versions=versions,
    )
