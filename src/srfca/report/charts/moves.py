"""How clients moved between clusters, stage by stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import altair as alt
import numpy as np

from srfca.clustering.partition import Labels
from srfca.methods import Stage
from srfca.report.charts.base import Figure, layer, values
from srfca.report.palette import NONE
from srfca.report.sampling import short
from srfca.report.view import RunView, final_clusters

MAX_CLUSTERS = 60
"""Most clusters of a stage that are drawn; smaller ones are drawn as one."""
BAR_SHARE = 0.035
"""Width of a stage's bar, as a share of the chart."""
GAP = 0.012
"""Between two clusters of a stage, as a fraction of the height."""
HEIGHT = 360
MIN_LABEL = 11 / HEIGHT
"""Height of a bar that has room for its label."""
ALONE, UNCLUSTERED, OTHERS = -2, -1, -3
"""Clusters of one client, no cluster, and the smallest of too many clusters, as labels."""
_NAMES = {ALONE: "alone", UNCLUSTERED: "unclustered", OTHERS: "others"}


@dataclass(frozen=True)
class Column:
    """The clusters of one stage, as bars above each other.

    Args:
        name: Name of the stage.
        labels: ``[m]`` the bar of each client: its cluster, or a negative number.
        colors: Colors of each bar.
    """

    name: str
    labels: Labels
    colors: dict[int, str]

    @property
    def sizes(self) -> dict[int, int]:
        """The number of clients of each bar, in the order of bars."""
        counts = Counter(self.labels.tolist())
        return {label: counts[label] for label in sorted(counts, key=lambda x: (x < 0, x))}

    def spans(self) -> dict[int, tuple[float, float]]:
        """Return where each bar begins and ends, from 0 to 1."""
        sizes = self.sizes
        gap = GAP if len(sizes) <= 20 else GAP / 4
        scale = (1 - gap * (len(sizes) - 1)) / len(self.labels)
        spans, start = {}, 0.0
        for label, size in sizes.items():
            spans[label] = (start, start + size * scale)
            start += size * scale + gap
        return spans


def client_moves(view: RunView) -> Figure | None:
    """Draw the clusters of each stage, and the clients that went from one to another."""
    columns = _columns(view)
    if len({column.labels.tobytes() for column in columns}) < 2:
        return None
    width = BAR_SHARE * (len(columns) - 1) / (1 - BAR_SHARE)
    right = len(columns) - 1 + width
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, right], nice=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[0, 1], reverse=True, nice=False))
    color = alt.Color("color:N", scale=None)
    flows = (
        alt.Chart(values(_flows(columns, width)))
        .mark_area(interpolate="monotone", opacity=0.4)
        .encode(
            x=x, y=y, y2="y2:Q", color=color, detail="flow:N",
            tooltip=[alt.Tooltip("flow:N", title="from, to"), alt.Tooltip("clients:Q")],
        )
    )  # fmt: skip
    bars = alt.Chart(values(_bars(columns, width))).encode(x=x, y=y)
    boxes = bars.mark_rect().encode(
        x2="x2:Q", y2="y2:Q", color=color,
        tooltip=[alt.Tooltip("stage:N"), alt.Tooltip("cluster:N"), alt.Tooltip("clients:Q")],
    )  # fmt: skip
    text = (
        bars.transform_filter(f"datum.y2 - datum.y >= {MIN_LABEL:.4f} && !datum.named")
        .transform_calculate(middle="(datum.y + datum.y2) / 2", x_middle=f"datum.x + {width / 2}")
        .mark_text(fontWeight="bold", color="white", fontSize=11)
        .encode(x="x_middle:Q", y="middle:Q", text="cluster:N")
    )
    named = (
        bars.transform_filter(f"datum.y2 - datum.y >= {MIN_LABEL:.4f} && datum.named")
        .transform_calculate(
            middle="(datum.y + datum.y2) / 2",
            side=f"datum.last ? datum.x - {width / 5} : datum.x2 + {width / 5}",
        )
        .mark_text(fontSize=11, align=alt.expr("datum.last ? 'right' : 'left'"))
        .encode(x="side:Q", y="middle:Q", text="cluster:N")
    )
    stages = (
        alt.Chart(values(_titles(columns, width)))
        .mark_text(baseline="bottom", dy=-6, fontSize=10.5, align=alt.expr("datum.align"))
        .encode(x="x:Q", y=alt.value(0), text="stage:N")
    )
    chart = layer(flows, boxes, text, named, stages)
    return Figure(
        "moves",
        "How clients moved",
        chart,
        _caption(view, columns),
        height=HEIGHT,
        fields=("flow", "clients"),
    )


def _caption(view: RunView, columns: Sequence[Column]) -> str:
    text = (
        "Bars are the clusters after a stage, as high as they have clients; bands are clients that "
        "went from one to another. Only stages that changed the clusters are shown, and the first "
        "and the last one. A color is that of the final cluster of most of the clients; gray has "
        "none."
    )
    present = {label for column in columns for label in column.labels.tolist()}
    if ALONE in present:
        text += " Alone: clients that are the only one of their cluster."
    if OTHERS in present:
        text += f" Others: clusters that are not among the {MAX_CLUSTERS} largest of their stage."
    return text


def _columns(view: RunView) -> list[Column]:
    """Return the first and the last stage, and those that changed the clusters."""
    stages = [stage for stage in view.main_stages if len(stage.labels) == view.num_clients]
    kept = [
        stage
        for number, stage in enumerate(stages)
        if number in (0, len(stages) - 1) or stage.labels != stages[number - 1].labels
    ]
    return [_column(stage, view) for stage in kept]


def _column(stage: Stage, view: RunView) -> Column:
    """Return the bars of a stage: clusters of one client are one bar, and the smallest of many."""
    labels = np.asarray(stage.labels)
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    kept = np.argsort(-sizes, kind="stable")[:MAX_CLUSTERS]
    large = np.zeros(len(sizes) + 1, dtype=bool)
    large[kept] = True
    single = np.append(sizes == 1, False)
    bars = np.where(large[labels], labels, OTHERS)
    bars = np.where(single[labels] & (len(labels) > 1), ALONE, bars)
    bars = np.where(labels < 0, UNCLUSTERED, bars)
    became = final_clusters(stage, view.labels)
    colors = {
        label: view.colors[became[label]] if label >= 0 else NONE for label in set(bars.tolist())
    }
    return Column(stage.name, bars, colors)


def _name(label: int) -> str:
    return _NAMES.get(label, str(label))


def _bars(columns: Sequence[Column], width: float) -> list[dict[str, object]]:
    return [
        {
            "x": number, "x2": number + width, "y": short(start, 5), "y2": short(end, 5),
            "stage": column.name, "cluster": _name(label), "clients": column.sizes[label],
            "color": column.colors[label], "named": label < 0, "last": column is columns[-1],
        }
        for number, column in enumerate(columns)
        for label, (start, end) in column.spans().items()
    ]  # fmt: skip


def _titles(columns: Sequence[Column], width: float) -> list[dict[str, object]]:
    last = len(columns) - 1
    return [
        {
            "x": number + (0 if number == 0 else width if number == last else width / 2),
            "stage": column.name.replace("_", " ").replace("TRIMMED MEAN GD", "TRAIN"),
            "align": "left" if number == 0 else "right" if number == last else "center",
        }
        for number, column in enumerate(columns)
    ]


def _flows(columns: Sequence[Column], width: float) -> list[dict[str, object]]:
    """Return the corners of every band between two stages."""
    lines: list[dict[str, object]] = []
    for number, (before, after) in enumerate(pairwise(columns)):
        pairs = Counter(zip(before.labels.tolist(), after.labels.tolist(), strict=True))
        left = {label: start for label, (start, _) in before.spans().items()}
        right = {label: start for label, (start, _) in after.spans().items()}
        heights = [
            {label: (end - start) / column.sizes[label] for label, (start, end) in spans.items()}
            for column, spans in ((before, before.spans()), (after, after.spans()))
        ]
        for source, target in sorted(pairs, key=lambda pair: [(x < 0, x) for x in pair]):
            count = pairs[source, target]
            start, end = left[source], right[target]
            left[source] += count * heights[0][source]
            right[target] += count * heights[1][target]
            flow = f"{before.name}: {_name(source)} → {after.name}: {_name(target)}"
            lines += [
                {
                    "flow": flow, "x": short(x, 5), "y": short(y, 5), "y2": short(y2, 5),
                    "clients": count, "color": after.colors[target],
                }
                for x, y, y2 in (
                    (number + width, start, left[source]),
                    (number + width + 0.3, start, left[source]),
                    (number + 0.7, end, right[target]),
                    (number + 1, end, right[target]),
                )
            ]  # fmt: skip
    return lines
