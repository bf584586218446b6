"""Learning curves: loss and accuracy of each cluster over the local steps of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import altair as alt
import numpy as np

from srfca.methods import CurvePoint, Stage
from srfca.report.charts.base import (
    LEGEND_SIZE,
    Figure,
    layer,
    percent_axis,
    values,
)
from srfca.report.palette import NONE, SHAPES, cluster_name
from srfca.report.sampling import short
from srfca.report.view import RunView, final_clusters

Score = Literal["accuracy", "loss"]
FIELDS = ("training", "round", "cluster", "split", "steps", "value")
"""Of the data, for a table."""
LABELED_SHARE = 0.11
"""Trainings of a smaller share of the steps have no label."""
ALONE, MIXED = -2, -1
"""Stand for clients that are alone in the end, and for those of several final clusters."""
_NAMES = {ALONE: "alone", MIXED: "several"}
_SPLITS = {"validation": "held-out data", "train": "training data"}


def accuracy_curves(view: RunView) -> Figure | None:
    """Draw the accuracy of each cluster over the local steps; None if it is unknown."""
    return _curves(view, "accuracy")


def loss_curves(view: RunView) -> Figure | None:
    """Draw the loss of each cluster over the local steps; None if it is unknown."""
    return _curves(view, "loss")


def _curves(view: RunView, score: Score) -> Figure | None:
    lines = list(_lines(view, score))
    if not lines:
        return None
    clusters = sorted({int(line["number"]) for line in lines}, key=lambda c: (c < 0, c))
    splits = list(dict.fromkeys(str(line["split"]) for line in lines))
    chart = layer(_trainings(view), _series(view, lines, clusters, splits, score))
    text = f"Mean {score} of each cluster's clients after a number of local steps per client."
    if len(splits) > 1:
        text += " Solid lines are on held-out data, dashed ones on training data."
    text += " Curves restart with every training."
    if not view.parameters.get("curves"):
        text += " Few scores are known without extra cost: --curves N scores every N rounds."
    return Figure(score, f"Learning curves: {score}", chart, text, height=280, fields=FIELDS)


def _lines(view: RunView, score: Score) -> Iterator[dict[str, Any]]:
    """Yield the points of all curves."""
    final = np.asarray(view.labels)
    for number, stage in enumerate(view.history):
        if stage.budget.local_steps == 0:
            continue
        names = final_clusters(stage, final)
        for point in stage.curve:
            means = point.accuracy if score == "accuracy" else point.loss
            for cluster, mean in enumerate(means or ()):
                if mean is not None and (value := short(mean)) is not None:
                    yield _line(view, stage, point, number, cluster, names, value)


def _line(
    view: RunView,
    stage: Stage,
    point: CurvePoint,
    number: int,
    cluster: int,
    names: dict[int, int],
    value: float,
) -> dict[str, Any]:
    final = names.get(cluster, MIXED)
    if len(point.loss) != stage.partition.num_clusters:
        final = MIXED
    elif final >= 0 and (view.labels == final).sum() == 1:
        final = ALONE
    return {
        "steps": short(point.local_steps / view.num_clients, 6),
        "value": value,
        "number": final,
        "cluster": _name(final),
        "training": point.training,
        "round": point.round,
        "split": _SPLITS[point.split],
        "series": f"{number} {point.training} {point.split} {cluster}",
    }


def _name(cluster: int) -> str:
    return _NAMES.get(cluster, cluster_name(cluster))


def _series(
    view: RunView,
    lines: list[dict[str, Any]],
    clusters: list[int],
    splits: list[str],
    score: Score,
) -> alt.LayerChart:
    axis = percent_axis() if score == "accuracy" else alt.Axis(format=".3~g")
    names = [_name(cluster) for cluster in clusters]
    scale = alt.Scale(domain=names, range=[view.colors.get(cluster, NONE) for cluster in clusters])
    legend = None
    if 1 < len(clusters) <= LEGEND_SIZE:
        legend = alt.Legend(title="cluster", orient="top", columns=6, symbolOpacity=1)
    few = len(clusters) <= LEGEND_SIZE
    base = alt.Chart(values(lines)).encode(
        x=alt.X(
            "steps:Q",
            title="local steps per client",
            axis=alt.Axis(grid=False, tickCount=6),
            scale=alt.Scale(nice=False),
        ),
        y=alt.Y("value:Q", title=score, axis=axis, scale=alt.Scale(zero=False)),
        color=alt.Color("cluster:N", scale=scale, legend=legend),
        detail="series:N",
    )
    line = base.mark_line(strokeWidth=2 if few else 1, opacity=0.9 if few else 0.5)
    if len(splits) > 1:
        dash = alt.Scale(domain=list(_SPLITS.values()), range=[[1, 0], [4, 3]])
        line = line.encode(strokeDash=alt.StrokeDash("split:N", scale=dash, legend=None))
    points = base.mark_point(filled=True, size=42 if few else 16, opacity=1).encode(
        tooltip=[
            alt.Tooltip("training:N"),
            alt.Tooltip("round:Q"),
            alt.Tooltip("cluster:N"),
            alt.Tooltip("split:N", title="on"),
            alt.Tooltip("value:Q", title=score, format=".1%" if score == "accuracy" else ".4~g"),
        ]
    )
    if few:
        shapes = [SHAPES[place % len(SHAPES)] for place in range(len(names))]
        points = points.encode(
            shape=alt.Shape("cluster:N", scale=alt.Scale(domain=names, range=shapes), legend=legend)
        )
    return layer(line, points)


def _trainings(view: RunView) -> alt.LayerChart:
    """Return a line where each training ends, with its name where there is room."""
    lines, start = [], 0.0
    total = sum(stage.budget.local_steps for stage in view.history)
    for stage in view.history:
        end = start + stage.budget.local_steps
        if end > start:
            name = stage.name.replace("_", " ").replace("TRIMMED MEAN GD", "TRAIN")
            lines.append({
                "middle": short((start + end) / 2 / view.num_clients, 6),
                "end": short(end / view.num_clients, 6),
                "training": name if (end - start) / total >= LABELED_SHARE else "",
            })  # fmt: skip
        start = end
    chart = alt.Chart(values(lines))
    rules = chart.mark_rule(strokeDash=[2, 3], opacity=0.5).encode(x="end:Q")
    text = chart.mark_text(baseline="bottom", dy=-4, fontSize=10)
    return layer(rules, text.encode(x="middle:Q", y=alt.value(0), text="training:N"))
