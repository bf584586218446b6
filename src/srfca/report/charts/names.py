"""The charts of a run, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from srfca.errors import InputError, require, unknown
from srfca.report.charts.answers import considered_answers
from srfca.report.charts.base import Figure
from srfca.report.charts.client_map import client_map
from srfca.report.charts.comparison import COMPARISON_CHARTS
from srfca.report.charts.confidence import client_confidence
from srfca.report.charts.cost import stage_costs
from srfca.report.charts.curves import accuracy_curves, loss_curves
from srfca.report.charts.differences import class_shares, layer_differences
from srfca.report.charts.distances import distance_matrix
from srfca.report.charts.gains import gains_over_alone, gains_over_one_model
from srfca.report.charts.histogram import distance_histogram, profile_histogram
from srfca.report.charts.moves import client_moves
from srfca.report.charts.scores import client_scores
from srfca.report.charts.step_histograms import merge_histogram, recluster_histogram
from srfca.report.view import RunView

ChartName = Literal[
    "answers", "scores", "gains", "gains_alone", "confidence", "map", "distances", "histogram",
    "profiles", "recluster", "merge", "classes", "layers", "moves", "accuracy", "loss", "cost",
]  # fmt: skip
"""Charts of a run."""
CHARTS: dict[ChartName, Callable[[RunView], Figure | None]] = {
    "answers": considered_answers,
    "scores": client_scores,
    "gains": gains_over_one_model,
    "gains_alone": gains_over_alone,
    "confidence": client_confidence,
    "map": client_map,
    "distances": distance_matrix,
    "histogram": distance_histogram,
    "profiles": profile_histogram,
    "recluster": recluster_histogram,
    "merge": merge_histogram,
    "classes": class_shares,
    "layers": layer_differences,
    "moves": client_moves,
    "accuracy": accuracy_curves,
    "loss": loss_curves,
    "cost": stage_costs,
}
"""Functions that draw a chart of a run, None if the run has nothing to draw."""


def figures(view: RunView) -> dict[str, Figure]:
    """Return all charts of a run that it has something to draw for."""
    made = {name: draw(view) for name, draw in CHARTS.items()}
    return {name: figure for name, figure in made.items() if figure is not None}


def all_figures(views: Sequence[RunView]) -> dict[str, Figure]:
    """Return the charts of a run, or of a comparison if there are several runs."""
    if len(views) == 1:
        return figures(views[0])
    bare = [view.title for view in views if not view.metrics]
    require(not bare, f"{len(bare)} of the runs have no metrics to compare them by")
    metrics = [view.metrics for view in views]
    made = {name: draw(metrics) for name, draw in COMPARISON_CHARTS.items()}
    return {name: figure for name, figure in made.items() if figure is not None}


def figure(view: RunView, name: ChartName | None = None) -> Figure:
    """Return a chart of a run.

    Args:
        view: The run.
        name: Name of the chart. None is the map, or the first one that there is.

    Raises:
        InputError: If there is no such chart, or this run has nothing to draw in it.
    """
    if name is None:
        made = client_map(view) or next(iter(figures(view).values()), None)
        require(made is not None, "this run has nothing to draw")
        assert made is not None
        return made
    if name not in CHARTS:
        raise unknown("chart", name, CHARTS)
    made = CHARTS[name](view)
    if made is None:
        present = ", ".join(figures(view)) or "none"
        more = "" if view.analysis else "; with its federation, plot(name, federation), it has more"
        raise InputError(f"this run has nothing to draw in {name!r}; it has: {present}{more}")
    return made
