"""What a report shows of runs: of one that has just ended, and of those in folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca._version import __version__
from srfca.analysis import Analysis
from srfca.analysis.files import ANALYSIS_FILE
from srfca.errors import InputError, require
from srfca.experiments import saved
from srfca.experiments.experiment import Experiment
from srfca.experiments.metrics import Metrics
from srfca.experiments.runner import ScoredRun
from srfca.methods import Result
from srfca.report.view import RunView


def view_of(run: ScoredRun, experiment: Experiment, analysis: Analysis | None) -> RunView:
    """Return the view of a run that has just ended."""
    samples, truth = run.federation.sizes.cpu().numpy(), run.metrics["true_labels"]
    return _with_metrics(
        RunView.of(run.result, analysis, samples, _labels(truth)),
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
    has_analysis = (folder / ANALYSIS_FILE).exists()
    analysis = Analysis.load(folder) if has_analysis else None
    path = folder / saved.RUN_FILE
    if not path.exists():
        return RunView.of(result, analysis)
    metrics, extra = saved.read_run(folder)
    try:
        samples, truth = np.asarray(extra["client_samples"]), _labels(metrics["true_labels"])
        versions = {"srfca": extra["srfca"], **extra["versions"]}
        view = RunView.of(result, analysis, samples, truth)
        return _with_metrics(view, metrics, extra["settings"], versions)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {error!r}") from error


def read_views(folder: Path) -> list[RunView]:
    """Return the runs in a folder: the one that it holds, or those of its folders.

    Raises:
        InputError: If it holds none, or a damaged one.
    """
    require(
        folder.is_dir(), f"{folder} is not a folder: give the --out of 'srfca run' or 'compare'"
    )
    if (folder / "result.json").exists():
        return [read_view(folder)]
    folders = sorted(path.parent for path in folder.glob("*/result.json"))
    require(
        bool(folders),
        f"{folder} holds no result: give the --out of 'srfca run', 'srfca compare' or a server",
    )
    return [read_view(path) for path in folders]


def _labels(labels: list[int] | None) -> NDArray[np.int64] | None:
    return None if labels is None else np.asarray(labels, dtype=np.int64)


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
