"""What each client gains by the clusters: over one model for all, and over training alone."""

from __future__ import annotations

from srfca.analysis.gains import client_gains
from srfca.federation import ClientScores
from srfca.report.charts.base import Figure
from srfca.report.charts.strips import FIELDS, strips
from srfca.report.view import RunView

_SOURCES = {
    "history": "Both are trials of the run itself.",
    "runs": "The other models are of runs of Global and Local.",
}


def gains_over_one_model(view: RunView) -> Figure | None:
    """Draw what each client gains over one model for all; None if that is unknown."""
    reference = None if view.analysis is None else view.analysis.reference
    other = None if reference is None else reference.together
    return _gains(view, "gains", "Gain over one model for all", other)


def gains_over_alone(view: RunView) -> Figure | None:
    """Draw what each client gains over training alone; None if that is unknown."""
    reference = None if view.analysis is None else view.analysis.reference
    other = None if reference is None else reference.alone
    return _gains(view, "gains_alone", "Gain over training alone", other)


def _gains(view: RunView, name: str, heading: str, other: ClientScores | None) -> Figure | None:
    reference = None if view.analysis is None else view.analysis.reference
    if reference is None or other is None:
        return None
    percent = reference.answer.accuracy is not None and other.accuracy is not None
    data = {"validation": "held-out", "train": "training"}.get(reference.split, reference.split)
    numbers = client_gains(reference.answer, other) * (100 if percent else 1)
    title = f"{'points of accuracy' if percent else 'loss'} gained on {data} data"
    drawn = strips(view, numbers, title, "+.1f" if percent else "+.3~g", 0)
    if drawn is None:
        return None
    caption = (
        "Each point is a client, diamonds are the means of the clusters. Clients to the right of "
        "the dashed line do better with the model that they have, those to the left do worse. "
        f"{_SOURCES[reference.source]}{drawn.remark}"
    )
    return Figure(name, heading, drawn.chart, caption, height=drawn.height, fields=FIELDS)
