"""A map of the clients in two dimensions: near on the map is near in distance."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from srfca.clustering.partition import Indices
from srfca.report.charts.base import LEGEND_SIZE, Figure, layer, values
from srfca.report.charts.strips import cluster_rows, row_order
from srfca.report.palette import SHAPES, cluster_name
from srfca.report.sampling import sample_clients, short
from srfca.report.view import Numbers, RunView

MAP_CLIENTS = 800
"""Most clients on a map."""


def client_map(view: RunView) -> Figure | None:
    """Draw the clients by their distances, by their individual models, or else by losses.

    Distances are scaled classically; losses are those of the clusters' models.
    """
    shown = sample_clients(view.labels, MAP_CLIENTS)
    stage, near, embedding = view.distance_stage, "have similar models", None
    if stage is not None and stage.distances is not None:
        embedding = scaled(np.asarray(stage.distances[np.ix_(shown, shown)], dtype=np.float64))
        origin = "the distances between their local models"
    elif view.individual_models is not None:
        rows = view.individual_models[shown].detach().cpu().double().numpy()
        embedding, origin = principal(rows), "their models"
    elif (embedding := _by_losses(view, shown)) is not None:
        shown = shown[np.isfinite(embedding[0]).all(1)]
        embedding = embedding[0][np.isfinite(embedding[0]).all(1)], embedding[1]
        near, origin = "are served by the same models", "the losses of the clusters' models"
    if embedding is None:
        return None
    places, explained = embedding
    caption = (
        f"Each point is a client; near points {near}. The two axes keep {explained:.0%} of what "
        f"{origin} say{_colors_and_shapes(view)}."
    )
    if len(shown) < view.num_clients:
        caption += f" {len(shown)} of the {view.num_clients:,} clients are shown."
    chart = _points(view, shown, places)
    return Figure(
        "map",
        "Map of the clients",
        chart,
        caption,
        height=380,
        fields=("client", "cluster", "x", "y"),
    )


def _by_losses(view: RunView, shown: Indices) -> tuple[Numbers, float] | None:
    """Return places of clients by the losses of the clusters' models, if the analysis has them."""
    structure = None if view.analysis is None else view.analysis.structure
    if structure is None or structure.places is None:
        return None
    return structure.places[shown], structure.explained


def _colors_and_shapes(view: RunView) -> str:
    """Return what colors, numbers and shapes mean, with the period before it."""
    shapes = view.truth is not None and 1 < view.truth.num_clusters <= len(SHAPES)
    if not (view.partition.sizes > 1).any():  # everyone is alone
        return ". Shapes are those of the true clusters" if shapes else ""
    if not shapes:
        return ". Numbers are those of the clusters"
    return ". Numbers and colors are those of the clusters, shapes those of the true ones"


def scaled(distances: Numbers) -> tuple[Numbers, float] | None:
    """Return places of clients by classical multidimensional scaling, and the share they explain.

    Args:
        distances: ``[c, c]``; unknown ones count as the median.

    Returns:
        ``[c, 2]`` and a fraction; None if there are no distances.
    """
    d = (distances + distances.T) / 2
    np.fill_diagonal(d, 0.0)
    finite = np.isfinite(d)
    if len(d) < 3 or not (d[finite] > 0).any():
        return None
    d = np.where(finite, d, np.median(d[finite & ~np.eye(len(d), dtype=bool)]))
    squares = d**2
    centered = squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean()
    eigenvalues, vectors = np.linalg.eigh(-centered / 2)
    return _leading(eigenvalues, vectors)


def principal(rows: Numbers) -> tuple[Numbers, float] | None:
    """Return places of clients by the two principal components of their rows ``[c, P]``."""
    finite = np.asarray(np.isfinite(rows).all(axis=1))
    if finite.sum() < 3:
        return None
    rows = np.where(finite[:, None], rows, rows[finite].mean(0))
    centered = rows - rows.mean(0)
    if not centered.any():
        return None
    return _leading(*np.linalg.eigh(centered @ centered.T))


def _leading(eigenvalues: Numbers, vectors: Numbers) -> tuple[Numbers, float]:
    """Return the two leading components; the sign of each is that of its largest entry."""
    positive = np.clip(eigenvalues[::-1], 0, None)
    places = vectors[:, ::-1][:, :2] * np.sqrt(positive[:2])
    largest = places[np.abs(places).argmax(0), np.arange(2)]
    places = places * np.where(largest < 0, -1.0, 1.0)
    return places, float(positive[:2].sum() / positive.sum())


def _points(view: RunView, shown: Indices, places: Numbers) -> alt.LayerChart:
    truth = view.truth
    rows = cluster_rows(view)
    rows_shown = [rows[client] for client in shown.tolist()]
    lines = [
        {
            "x": short(x),
            "y": short(y),
            "client": view.client_ids[client],
            "cluster": rows[client][0],
            **({} if truth is None else {"truth": f"true {truth.labels[client]}"}),
        }
        for client, (x, y) in zip(shown.tolist(), places.tolist(), strict=True)
    ]
    axis = alt.Axis(title=None, labels=False, ticks=False, domain=False, grid=False)
    scale = alt.Scale(zero=False, padding=18)
    place: dict[str, Any] = {
        "x": alt.X("x:Q", axis=axis, scale=scale),
        "y": alt.Y("y:Q", axis=axis, scale=scale.copy()),
    }
    tooltip = [alt.Tooltip("client:N"), alt.Tooltip("cluster:N")]
    encodings = {
        **place,
        "color": alt.Color("cluster:N", scale=_colors(rows_shown), legend=_legend(rows_shown)),
    }
    if truth is not None:
        encodings |= _shapes([str(line["truth"]) for line in lines])
        tooltip.append(alt.Tooltip("truth:N", title="true cluster"))
    points = (
        alt.Chart(values(lines))
        .mark_point(filled=True, size=70, opacity=0.75, strokeWidth=0)
        .encode(**encodings, tooltip=tooltip)
    )
    centers = _centers(view, shown, places, place)
    return layer(points) if centers is None else layer(points, centers)


def _colors(rows: list[tuple[str, str]]) -> alt.Scale:
    """Return the colors of rows of clients, clients that are alone in one."""
    colors, order = dict(rows), row_order(rows)
    return alt.Scale(domain=order, range=[colors[name] for name in order])


def _legend(rows: list[tuple[str, str]]) -> alt.Legend | None:
    """Return a legend of rows of clients, None if they are one, or too many to list."""
    if not 1 < len(set(rows)) <= LEGEND_SIZE:
        return None
    return alt.Legend(
        title="cluster", orient="top", columns=6, symbolType="circle", symbolOpacity=1
    )


def _shapes(truth: list[str]) -> dict[str, alt.Shape]:
    """Return an encoding of the true clusters, if they are few enough for shapes."""
    names = sorted(set(truth), key=lambda name: (len(name), name))
    if not 1 < len(names) <= len(SHAPES):
        return {}
    scale = alt.Scale(domain=names, range=list(SHAPES[: len(names)]))
    legend = alt.Legend(title="true cluster", orient="top", columns=6)
    return {"shape": alt.Shape("truth:N", scale=scale, legend=legend)}


def _centers(
    view: RunView, shown: Indices, places: Numbers, place: dict[str, Any]
) -> alt.Chart | None:
    """Return the numbers of clusters of several clients, above their clients; None without any."""
    labels = view.labels[shown]
    lines = [
        {
            "x": short(float(np.median(places[labels == cluster, 0]))),
            "y": short(float(places[labels == cluster, 1].max())),
            "cluster": cluster_name(cluster),
        }
        for cluster in np.unique(labels[labels >= 0]).tolist()
        if (labels == cluster).sum() > 1
    ]
    if not lines:
        return None
    text = alt.Chart(values(lines)).mark_text(fontSize=14, fontWeight="bold", dy=-13)
    chart: alt.Chart = text.encode(**place, text="cluster:N")
    return chart
