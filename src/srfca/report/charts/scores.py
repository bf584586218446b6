"""How well the models serve each client, cluster by cluster."""

from __future__ import annotations

from srfca.report.charts.base import Figure
from srfca.report.charts.strips import FIELDS, strips
from srfca.report.view import RunView


def client_scores(view: RunView) -> Figure | None:
    """Draw each client's test accuracy, or loss, in the row of its cluster."""
    columns, score = view.clients, "accuracy"
    tuned = columns.tuned_loss is not None
    numbers = columns.tuned_accuracy if tuned else columns.accuracy
    if numbers is None:
        score, numbers = "loss", columns.tuned_loss if tuned else columns.loss
    if numbers is None:
        return None
    title = f"{columns.split} {score}" + (" after fine-tuning" if tuned else "")
    drawn = strips(view, numbers, title, ".1%" if score == "accuracy" else ".4~g")
    if drawn is None:
        return None
    worse = "left" if score == "accuracy" else "right"
    caption = (
        f"Each point is a client's {title}; diamonds are the means of the clusters. Points far to "
        f"the {worse} are clients that their model serves badly.{drawn.remark}"
    )
    title = "How well clients are served"
    return Figure("scores", title, drawn.chart, caption, height=drawn.height, fields=FIELDS)
