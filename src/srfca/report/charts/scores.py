"""How well the models serve each client, cluster by cluster."""

from __future__ import annotations

from srfca.report.charts.base import Figure
from srfca.report.charts.strips import FIELDS, strips
from srfca.report.view import RunView


def client_scores(view: RunView) -> Figure | None:
    """Draw each client's accuracy, or loss, in the row of its cluster."""
    clients = view.clients
    if clients.score is None:
        return None
    percent, name = clients.accuracy is not None, clients.score_name
    drawn = strips(view, clients.score, name, ".1%" if percent else ".4~g")
    if drawn is None:
        return None
    caption = (
        f"Each point is the {name} of a client's final model; diamonds are the means of the "
        f"clusters. Points far to the {'left' if percent else 'right'} are clients that their "
        f"model serves badly.{drawn.remark}"
    )
    title = "How well clients are served"
    return Figure("scores", title, drawn.chart, caption, height=drawn.height, fields=FIELDS)
