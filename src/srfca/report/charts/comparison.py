"""Charts over the methods of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from srfca.report.charts.base import Figure, layer, percent_axis, values
from srfca.report.palette import BLUE, NONE, ORANGE
from srfca.report.sampling import short
from srfca.report.summary import Metrics, RunGroup, group_runs, needs_truth

ROW = 30
"""Height of a method's row in pixels."""


@dataclass(frozen=True)
class Measure:
    """A number of a run that methods are compared by.

    Args:
        value: The number of a run, None if it does not apply.
        title: Title of the axis.
        axis: Format of the axis.
        text: Format of a mean.
        descending: Whether the largest comes first.
        log: Whether the axis is logarithmic, and linear around 0.
    """

    value: Callable[[Metrics], float | None]
    title: str
    axis: str
    text: str
    descending: bool = True
    log: bool = False


def method_scores(runs: Sequence[Metrics]) -> Figure | None:
    """Draw the score of each method: every run, and the mean."""
    score = score_name(runs)
    percent, title = score == "accuracy", f"mean {runs[0]['scored_on']} {score} of the clients"
    measure = Measure(
        lambda run: run[score], title, ".0%" if percent else ".3~g", ".1%" if percent else ".3g",
        descending=percent,
    )  # fmt: skip
    caption = (
        f"The {title}: each small point is a run, the large one the mean of a method's runs. "
        "SR-FCA is orange; gray methods are given the true clusters."
    )
    return _rows("scores", "Which method serves clients best", runs, measure, caption)


def method_clusters(runs: Sequence[Metrics]) -> Figure | None:
    """Draw how well each method found the true clusters; None if they are unknown."""
    measure = Measure(lambda run: run["ari"], "adjusted Rand index", ".2~f", ".2f")
    caption = (
        "The adjusted Rand index compares the clusters with the true ones: 1 is the same, 0 is "
        "chance. Methods that find no clusters are left out."
    )
    return _rows("clusters", "Which method finds the clusters", runs, measure, caption)


def method_traffic(runs: Sequence[Metrics]) -> Figure | None:
    """Draw what each method sends."""
    measure = Measure(
        lambda run: (run["bytes_down"] + run["bytes_up"]) / run["clients"] / 1e6,
        "MB per client", "~g", ".3g", descending=False, log=True,
    )  # fmt: skip
    caption = "Models and gradients that a client receives and sends, on average."
    return _rows("traffic", "What methods send", runs, measure, caption)


def score_name(runs: Sequence[Metrics]) -> str:
    """Return the metric that methods are compared by: accuracy if all runs have it, else loss."""
    return "accuracy" if all(run["accuracy"] is not None for run in runs) else "loss"


def _rows(
    name: str, heading: str, runs: Sequence[Metrics], measure: Measure, caption: str
) -> Figure | None:
    """Draw a measure of every run in the row of its method, the best method first."""
    groups = [group for group in group_runs(runs) if group.k != "mean"]
    spreads = {group.title: group.spread(measure.value) for group in groups}
    means = {title: spread.mean for title, spread in spreads.items() if spread is not None}
    if not means:
        return None
    order = sorted(means, key=lambda title: means[title], reverse=measure.descending)
    lines = [
        {"method": group.title, "value": short(value), "seed": run["seed"], "color": _color(group)}
        for group in groups
        for run in group.runs
        if (value := measure.value(run)) is not None
    ]
    centers = [
        {
            "method": group.title, "mean": short(mean), "color": _color(group),
            "text": format(mean, measure.text),
        }
        for group in groups
        if (mean := means.get(group.title)) is not None
    ]  # fmt: skip
    kind: dict[str, Any] = {"type": "symlog", "constant": 0.1} if measure.log else {}
    scale = alt.Scale(zero=False, padding=18, nice=False, **kind)
    make_axis = percent_axis if measure.axis == ".0%" else alt.Axis
    axis = make_axis(format=measure.axis, tickCount=5)
    y = alt.Y(
        "method:N", scale=alt.Scale(domain=order), title=None,
        axis=alt.Axis(labelLimit=190, grid=True),
    )  # fmt: skip
    color = alt.Color("color:N", scale=None)
    number = alt.Tooltip("value:Q", title=measure.title, format=measure.text.replace("g", "~g"))
    seeds = alt.Chart(values(lines)).mark_circle(size=40, opacity=0.6)
    seeds = seeds.encode(
        x=alt.X("value:Q", title=measure.title, axis=axis, scale=scale), y=y, color=color,
        tooltip=[alt.Tooltip("method:N"), alt.Tooltip("seed:Q"), number],
    )  # fmt: skip
    base = alt.Chart(values(centers)).encode(x="mean:Q", y=y)
    points = base.mark_point(filled=True, size=130, opacity=1, shape="diamond").encode(
        color=color, tooltip=[alt.Tooltip("method:N"), alt.Tooltip("text:N", title="mean")]
    )
    text = base.mark_text(dy=-12, fontSize=11, fontWeight="bold").encode(text="text:N")
    height, fields = ROW * len(order) + 16, ("method", "seed", "value")
    return Figure(name, heading, layer(seeds, points, text), caption, height=height, fields=fields)


def _color(group: RunGroup) -> str:
    if needs_truth(group.method):
        return NONE
    return ORANGE if group.method == "sr-fca" else BLUE


COMPARISON_CHARTS: dict[str, Callable[[Sequence[Metrics]], Figure | None]] = {
    "scores": method_scores,
    "clusters": method_clusters,
    "traffic": method_traffic,
}
"""Functions that draw a chart of a comparison, None if there is nothing to draw."""
