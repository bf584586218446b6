"""How sure each client's cluster is."""

from __future__ import annotations

from srfca.methods._common.assignment import DOUBTFUL
from srfca.report.charts.base import Figure
from srfca.report.charts.strips import FIELDS, strips
from srfca.report.view import RunView


def client_confidence(view: RunView) -> Figure | None:
    """Draw the confidence of each client; None if it is unknown."""
    confidence = None if view.analysis is None else view.analysis.confidence
    if confidence is None:
        return None
    title = "probability of its cluster"
    drawn = strips(view, confidence.confidence, title, ".1%", DOUBTFUL)
    if drawn is None:
        return None
    caption = (
        "How sure it is that a client belongs to its cluster rather than to another one, from the "
        "losses on its training and held-out data. Clients left of the dashed line, "
        f"{DOUBTFUL:.0%}, are doubtful.{drawn.remark}"
    )
    heading = "How sure the clusters are"
    return Figure("confidence", heading, drawn.chart, caption, height=drawn.height, fields=FIELDS)
