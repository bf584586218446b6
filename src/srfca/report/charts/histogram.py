"""Histograms of how far apart clients are, with the threshold of ONE_SHOT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from srfca.clustering import denoised_profiles
from srfca.clustering.matrix import complete_subset
from srfca.clustering.partition import Indices
from srfca.methods import Stage
from srfca.report.charts.base import Drawing, Figure, layer, values
from srfca.report.charts.distances import distance_title
from srfca.report.palette import BLUE, VERMILION
from srfca.report.sampling import sample_clients, short
from srfca.report.view import Numbers, RunView

MAX_CLIENTS = 1000
"""Most clients whose pairs are counted."""
BINS = 40
FIELDS = ("pairs", "from", "to", "share")
"""Of the data, for a table."""
SAME, OTHER = "same cluster", "different clusters"


def distance_histogram(view: RunView) -> Figure | None:
    """Draw how far apart clients of the same and of different clusters are."""
    stage = view.distance_stage
    if stage is None or stage.distances is None:
        return None
    clients = sample_clients(view.labels, MAX_CLIENTS)
    matrix = stage.distances[np.ix_(clients, clients)]
    chart = _histogram(view, clients, matrix, distance_title(stage), _limits(stage, "distance"))
    if chart is None:
        return None
    caption = (
        "How far apart the local models of two clients are: pairs that ended in the same cluster "
        "(filled), and pairs that did not (outlined), each as shares of its kind. The less the two "
        f"overlap, the clearer the clusters.{_threshold_text(stage, 'distance')}"
    )
    if len(clients) < view.num_clients:
        caption += f" From {len(clients):,} of the {view.num_clients:,} clients."
    return Figure(
        "histogram", "How far apart clients are", chart, caption, height=260, fields=FIELDS
    )


def profile_histogram(view: RunView) -> Figure | None:
    """Draw how far apart the clients' profiles are, if ONE_SHOT compared those."""
    stage = view.distance_stage
    if stage is None or stage.distances is None or stage.notes.get("metric") != "profile":
        return None
    clients = complete_subset(np.asarray(stage.distances))
    if not len(clients) or len(clients) > MAX_CLIENTS:
        return None
    profile = denoised_profiles(np.asarray(stage.distances)[np.ix_(clients, clients)])
    if profile is None:
        return None
    title, limits = "distance between profiles", _limits(stage, "profile")
    chart = _histogram(view, clients, profile.distances, title, limits)
    if chart is None:
        return None
    caption = (
        "A client's profile is its row of distances to all others, without the noise. Profiles of "
        "clients that are alike are near to each other, even where single distances are not."
        f"{_threshold_text(stage, 'profile')}"
    )
    return Figure(
        "profiles",
        "How far apart the clients' profiles are",
        chart,
        caption,
        height=260,
        fields=FIELDS,
    )


def recorded_histogram(experiment: str, distances: Mapping[str, Any]) -> Figure:
    """Draw the histogram of a recorded run (``srfca.experiments.records``).

    Args:
        experiment: Its name.
        distances: Counts of pairs of the same cluster and of different ones, and the threshold.
    """
    end, threshold = float(distances["end"]), distances["threshold"]
    shown = threshold is not None and distances["metric"] == "distance"
    axis = max(end, 1.1 * threshold) if shown else end
    lines = [
        line
        for kind, name in ((SAME, "same"), (OTHER, "different"))
        for line in counted(np.asarray(distances[name]), end, kind)
    ]
    title = "distance between local models"
    layers: list[Drawing] = [bars(lines, title, axis)]
    caption = (
        f"{experiment}: how far apart the local models of two clients are after ONE_SHOT, by "
        f"{distances['of']}, each as shares of its kind."
    )
    if shown:
        layers.append(threshold_line(float(threshold), axis))
        caption += " Clients nearer than λ, the dashed line, were joined by an edge."
    return Figure(
        f"distances-{experiment}", "How far apart clients are", layer(*layers), caption, height=220
    )


def _limits(stage: Stage, metric: str) -> tuple[float, float, float] | None:
    """Return the threshold, and the least and largest one that give the same clusters."""
    threshold = stage.notes.get("threshold")
    if threshold is None or stage.notes.get("metric") != metric:
        return None
    low, high = stage.notes.get("margin") or (threshold, threshold)
    return float(threshold), float(low), float(high)


def _threshold_text(stage: Stage, metric: str) -> str:
    limits = _limits(stage, metric)
    if limits is None:
        return ""
    text = " Clients nearer than λ, the dashed line, were joined by an edge in ONE_SHOT"
    return text + (
        "." if limits[1] == limits[2] else "; any λ in the band gives the same clusters."
    )


def _histogram(
    view: RunView,
    clients: Indices,
    matrix: Numbers,
    title: str,
    limits: tuple[float, float, float] | None,
) -> Drawing | None:
    """Draw the histogram of the distances ``[c, c]`` of some clients."""
    labels = view.labels[clients]
    pairs = ~np.eye(len(clients), dtype=bool) & np.isfinite(matrix)
    same = (labels[:, None] == labels) & (labels >= 0)
    if not pairs.any():
        return None
    end = _end(matrix[pairs], limits)
    lines = [
        line
        for kind, chosen in ((SAME, pairs & same), (OTHER, pairs & ~same))
        for line in _shares(matrix[chosen], end, kind)
    ]
    layers: list[Drawing] = [bars(lines, title, end)]
    if limits is not None:
        layers = [_band(limits, end), *layers, threshold_line(limits[0], end)]
    return layer(*layers)


def _end(distances: Numbers, limits: tuple[float, float, float] | None) -> float:
    """Return the end of the axis: beyond the threshold, and short of a few far clients."""
    end = float(np.quantile(distances, 0.995))
    return max(end, 0.0 if limits is None else 1.1 * limits[0]) or 1.0


def _shares(distances: Numbers, end: float, kind: str) -> list[dict[str, object]]:
    """Return the share of distances in each bin; those beyond the last bin are in it."""
    if not len(distances):
        return []
    counts, _ = np.histogram(np.clip(distances, 0, end), BINS, (0, end))
    return counted(counts, end, kind)


def counted(counts: NDArray[np.int64], end: float, kind: str) -> list[dict[str, object]]:
    """Return the share of each bin from 0 to the end, without empty ones."""
    edges, total = np.linspace(0, end, len(counts) + 1), counts.sum()
    return [
        {
            "from": short(start), "to": short(stop), "pairs": kind,
            "share": short(count / total),
        }
        for start, stop, count in zip(edges[:-1], edges[1:], counts, strict=True)
        if count
    ]  # fmt: skip


def bars(
    lines: list[dict[str, object]],
    title: str,
    end: float,
    kinds: tuple[str, str] = (SAME, OTHER),
    legend_title: str = "pairs of clients in",
) -> alt.Chart:
    """Return the bars of two kinds of distances: the first filled, the second outlined.

    Args:
        lines: Same as in ``counted``.
        title: Title of the distances.
        end: End of their axis.
        kinds: The two kinds.
        legend_title: What they are.
    """
    scale = alt.Scale(domain=[0, short(end) or 1], nice=False)
    colors = alt.Scale(domain=list(kinds), range=[BLUE, VERMILION])
    legend = alt.Legend(title=legend_title, orient="top")
    chart: alt.Chart = (
        alt.Chart(values(lines))
        .mark_bar(strokeWidth=1.2)
        .encode(
            x=alt.X("from:Q", bin="binned", scale=scale, title=title, axis=alt.Axis(tickCount=6)),
            x2="to:Q",
            y=alt.Y("share:Q", stack=None, axis=alt.Axis(format="%", tickCount=4), title="share"),
            fill=alt.Fill("pairs:N", scale=colors, legend=legend),
            stroke=alt.Stroke("pairs:N", scale=colors, legend=legend),
            fillOpacity=alt.condition(
                f"datum.pairs === '{kinds[0]}'", alt.value(0.75), alt.value(0.2)
            ),
            tooltip=[
                alt.Tooltip("pairs:N"),
                alt.Tooltip("from:Q", format=".3~g"),
                alt.Tooltip("to:Q", format=".3~g"),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )
    return chart


def _band(limits: tuple[float, float, float], end: float) -> alt.Chart:
    band = values([{"low": short(limits[1]), "high": short(min(limits[2], end))}])
    chart: alt.Chart = (
        alt.Chart(band)
        .mark_rect(opacity=0.18)
        .encode(x="low:Q", x2="high:Q", y=alt.value(0), y2=alt.value("height"))
    )
    return chart


def threshold_line(threshold: float, end: float) -> alt.LayerChart:
    """Return a dashed line at lambda, with its value."""
    chart = alt.Chart(values([{"threshold": short(threshold), "text": f"λ = {threshold:.3g}"}]))
    line = chart.mark_rule(strokeWidth=2, strokeDash=[6, 3]).encode(x="threshold:Q")
    far = threshold > 0.8 * end
    text = chart.mark_text(
        align="right" if far else "left", dx=-5 if far else 5, baseline="top", fontWeight="bold"
    )
    return layer(line, text.encode(x="threshold:Q", y=alt.value(2), text="text:N"))
