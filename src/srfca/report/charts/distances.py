"""The matrix of distances between clients, ordered by cluster."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import altair as alt
import numpy as np

from srfca.clustering.partition import Indices, Labels
from srfca.methods import Stage
from srfca.report.charts.base import Figure, layer, values
from srfca.report.palette import cluster_name
from srfca.report.sampling import sample_clients, short
from srfca.report.view import Numbers, RunView

MATRIX_CLIENTS = 120
"""Most clients of a matrix."""
LABELED_SHARE = 0.045
"""Clusters of a smaller share of the clients have no label beside the matrix."""
MANY_CLUSTERS = 16
"""From this many boundaries on they are thin."""
UNKNOWN = -1
"""Stands for an unknown distance."""


def distance_matrix(view: RunView) -> Figure | None:
    """Draw the matrix of distances, clients ordered by cluster; None if there is none."""
    stage = view.distance_stage
    if stage is None or stage.distances is None:
        return None
    shown = sample_clients(view.labels, MATRIX_CLIENTS)
    matrix = np.array(stage.distances[np.ix_(shown, shown)], dtype=np.float64)
    np.fill_diagonal(matrix, np.nan)
    finite = matrix[np.isfinite(matrix)]
    if not len(finite):
        return None
    chart = layer(
        _cells(view, shown, matrix, distance_title(stage)),
        _boundaries(view.labels[shown]),
        _cluster_labels(view.labels[shown]),
    ).resolve_scale(color="independent")
    sampled = ""
    if len(shown) < view.num_clients:
        sampled = f" {len(shown)} of the {view.num_clients:,} clients are shown."
    caption = (
        f"Each cell is the {distance_title(stage)} between the local models of two clients at "
        f"{stage.name}, ordered by their final cluster. Dark blocks on the diagonal are groups of "
        f"clients that are alike. Cells without a color are unknown.{sampled}"
    )
    return Figure(
        "distances", "Distances between clients", chart, caption, square=True, width=460,
        canvas=True,
    )  # fmt: skip


def distance_title(stage: Stage) -> str:
    """Return what the distances of a stage are, for a person."""
    name = stage.notes.get("distance")
    return f"{str(name).replace('_', ' ')} distance" if name else "distance"


def _cells(view: RunView, shown: Indices, matrix: Numbers, title: str) -> alt.Chart:
    """Return the cells; numbers alone are in the data, and the chart computes row and column."""
    m, finite = len(shown), matrix[np.isfinite(matrix)]
    domain = [float(f"{number:.3g}") for number in np.quantile(finite, (0.0, 0.98))]
    numbers = [UNKNOWN if (n := short(v, 3)) is None else n for v in matrix.ravel().tolist()]
    clients = values(
        {
            "position": position,
            "client": view.client_ids[client],
            "cluster": cluster_name(int(view.labels[client])),
        }
        for position, client in enumerate(shown.tolist())
    )
    cells = alt.Chart(alt.InlineData(values=numbers))
    lookups = {
        axis: alt.LookupData(clients, key="position", fields=["client", "cluster"])
        for axis in ("row", "column")
    }
    cells = cells.transform_window(number="row_number()").transform_calculate(
        row=f"floor((datum.number - 1) / {m})", column=f"(datum.number - 1) % {m}"
    )
    for axis, lookup in lookups.items():
        names: list[Any] = [f"{axis} client", f"{axis} cluster"]
        cells = cells.transform_lookup(lookup=axis, from_=lookup, as_=names)
    cells = cells.transform_calculate(row_end="datum.row + 1.03", column_end="datum.column + 1.03")
    scale = alt.Scale(domain=[0, m], nice=False, zero=False)
    chart: alt.Chart = cells.mark_rect(strokeWidth=0).encode(
        x=alt.X("column:Q", scale=scale, axis=None),
        x2="column_end:Q",
        y=alt.Y("row:Q", scale=scale.copy(), axis=None, sort="descending"),
        y2="row_end:Q",
        color=alt.condition(
            f"datum.data > {UNKNOWN}",
            alt.Color(
                "data:Q",
                scale=alt.Scale(scheme="viridis", domain=domain, clamp=True, nice=False),
                legend=alt.Legend(
                    title=title, orient="bottom", direction="horizontal", gradientLength=220
                ),
            ),
            alt.value("transparent"),
        ),
        tooltip=[
            alt.Tooltip("row client:N"), alt.Tooltip("row cluster:N"),
            alt.Tooltip("column client:N"), alt.Tooltip("column cluster:N"),
            alt.Tooltip("data:Q", title="distance", format=".4~g"),
        ],
    )  # fmt: skip
    return chart


def _boundaries(labels: Labels) -> alt.LayerChart:
    """Return lines between the clusters."""
    ends = (np.flatnonzero(np.diff(labels)) + 1).tolist()
    chart = alt.Chart(values({"end": end} for end in ends))
    width = 1.5 if len(ends) < MANY_CLUSTERS else 0.4  # thin lines, or they hide the cells
    line = chart.mark_rule(color="white", strokeWidth=width)
    return layer(line.encode(x="end:Q"), line.encode(y="end:Q"))


def _cluster_labels(labels: Labels) -> alt.Chart:
    """Return the numbers of the clusters, left of their clients."""
    ends = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    lines = [
        {"middle": (start + end) / 2, "cluster": cluster_name(int(labels[start]))}
        for start, end in pairwise(ends)
        if (end - start) / len(labels) >= LABELED_SHARE
    ]
    text = alt.Chart(values(lines)).mark_text(align="right", dx=-6, fontWeight="bold")
    chart: alt.Chart = text.encode(x=alt.value(0), y="middle:Q", text="cluster:N")
    return chart
