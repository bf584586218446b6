"""Strips: a number of each client as a point in the row of its cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import altair as alt
import numpy as np

from srfca.clustering.partition import Indices
from srfca.report.charts.base import Drawing, layer, percent_axis, values
from srfca.report.sampling import sample_clients, short
from srfca.report.view import Numbers, RunView

STRIP_CLIENTS = 2000
"""Most clients that are drawn."""
FEW_ROWS = 12
"""Rows up to this number are high."""
FIELDS = ("client", "cluster", "value")
"""Of the data, for a table."""
ALONE, UNCLUSTERED = "alone", "unclustered"


@dataclass(frozen=True)
class Strips:
    """A chart of strips.

    Args:
        chart: The chart.
        height: In pixels.
        remark: To be added to its caption, if clients are left out.
    """

    chart: Drawing
    height: int
    remark: str


def strips(
    view: RunView, numbers: Numbers, title: str, form: str, line: float | None = None
) -> Strips | None:
    """Draw a number of each client in the row of its cluster, and the mean of each row.

    Args:
        view: The run.
        numbers: ``[m]``, NaN if unknown.
        title: What the numbers are.
        form: Their format.
        line: A number to mark by a line.

    Returns:
        None if no number is finite.
    """
    finite = np.isfinite(numbers)
    if not finite.any():
        return None
    shown = sample_clients(view.labels, STRIP_CLIENTS)
    shown = shown[finite[shown]]
    rows = cluster_rows(view)
    order = row_order([row for row, known in zip(rows, finite.tolist(), strict=True) if known])
    lines = [
        {
            "client": view.client_ids[client],
            "cluster": rows[client][0],
            "color": rows[client][1],
            "value": short(float(numbers[client])),
            "offset": short(offset),
        }
        for client, offset in zip(shown.tolist(), _offsets(numbers, rows, shown), strict=True)
    ]
    many = len(order) > FEW_ROWS
    axis = (
        percent_axis(tickCount=6)
        if form == ".1%"
        else alt.Axis(format=form.replace(".1f", ".3~g"), tickCount=6)
    )
    x = alt.X("value:Q", title=title, axis=axis, scale=alt.Scale(zero=False, padding=12))
    y = alt.Y(
        "cluster:N", scale=alt.Scale(domain=order), title="cluster",
        axis=alt.Axis(labelFontWeight="bold"),
    )  # fmt: skip
    number = alt.Tooltip("value:Q", title=title, format=form)
    points = alt.Chart(values(lines)).mark_circle(size=12 if many else 26, opacity=0.85)
    points = points.encode(
        x=x,
        y=y,
        yOffset=alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1.2, 1.2])),
        color=alt.Color("color:N", scale=None),
        tooltip=[alt.Tooltip("client:N"), alt.Tooltip("cluster:N"), number],
    )
    diamonds = alt.Chart(values(_means(numbers, rows, order))).mark_point(
        filled=True, shape="diamond", size=36 if many else 110, opacity=1, strokeWidth=0
    )
    diamonds = diamonds.encode(
        x=x,
        y=y,
        tooltip=[alt.Tooltip("cluster:N"), alt.Tooltip("value:Q", title="mean", format=form)],
    )
    layers: list[Drawing] = [points, diamonds]
    if line is not None:
        rule = alt.Chart(values([{"line": line}])).mark_rule(strokeDash=[4, 3])
        layers.insert(0, rule.encode(x="line:Q"))
    remark = _remark(view.num_clients, int(finite.sum()), len(shown))
    height = (15 if many else 54) * len(order) + 10
    return Strips(layer(*layers), min(height, 1000), remark)


def _remark(num_clients: int, known: int, shown: int) -> str:
    """Say which clients are not drawn.

    >>> _remark(30, 30, 30), _remark(30, 29, 29)
    ('', ' One client without a number is left out.')
    >>> _remark(30, 24, 24), _remark(9000, 9000, 2000)
    (' 6 clients without a number are left out.', ' 2,000 of the 9,000 clients are shown.')
    """
    if shown < known:
        return f" {shown:,} of the {num_clients:,} clients are shown."
    missing = num_clients - known
    if missing == 1:
        return " One client without a number is left out."
    return f" {missing:,} clients without a number are left out." if missing else ""


def cluster_rows(view: RunView) -> list[tuple[str, str]]:
    """Return the row and the color of each client; clients that are alone share a row."""
    alone = set(view.partition.alone.tolist())
    rows = []
    for client, label in enumerate(view.labels.tolist()):
        name = ALONE if client in alone else UNCLUSTERED if label < 0 else str(label)
        rows.append((name, view.colors[label]))
    return rows


def row_order(rows: list[tuple[str, str]]) -> list[str]:
    """Return the names of the rows in order: clusters, alone, unclustered."""
    names = {row for row, _ in rows}
    clusters = sorted((name for name in names if name.isdigit()), key=int)
    return [*clusters, *(name for name in (ALONE, UNCLUSTERED) if name in names)]


def _offsets(numbers: Numbers, rows: list[tuple[str, str]], shown: Indices) -> list[float]:
    """Return an offset from -1 to 1 for each client, so that about equal numbers are apart.

    Clients of a row whose numbers are in the same hundredth of the range are above each other.
    """
    low, high = np.nanmin(numbers[shown]), np.nanmax(numbers[shown])
    bins = np.round(100 * (numbers - low) / ((high - low) or 1.0))
    places = [(rows[client][0], float(bins[client])) for client in shown.tolist()]
    counts, seen = Counter(places), Counter[tuple[str, float]]()
    spacing = 2 / max(7, *counts.values())
    offsets = []
    for place in places:
        offsets.append((seen[place] - (counts[place] - 1) / 2) * spacing)
        seen[place] += 1
    return offsets


def _means(
    numbers: Numbers, rows: list[tuple[str, str]], order: list[str]
) -> list[dict[str, object]]:
    of_row = np.array([row for row, _ in rows])
    finite = np.isfinite(numbers)
    return [
        {"cluster": row, "value": short(float(numbers[finite & (of_row == row)].mean()))}
        for row in order
        if (finite & (of_row == row)).any()
    ]
