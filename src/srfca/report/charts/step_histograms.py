"""Histograms of the distances of RECLUSTER and MERGE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srfca.methods import Stage
from srfca.report.charts.base import Drawing, Figure, layer
from srfca.report.charts.distances import distance_title
from srfca.report.charts.histogram import BINS, FIELDS, bars, counted, threshold_line
from srfca.report.view import RunView

OWN, NEXT = "own cluster", "nearest other cluster"
NEARER, FURTHER = "nearer than lambda", "further"


def recluster_histogram(view: RunView) -> Figure | None:
    """Draw how far clients were from their cluster and from the next one, in the last RECLUSTER."""
    stage, notes = _last(view, "RECLUSTER", "to_clusters")
    if stage is None:
        return None
    end = float(notes["end"])
    lines = [
        line
        for kind, name in ((OWN, "own"), (NEXT, "other"))
        for line in counted(np.asarray(notes[name]), end, kind)
    ]
    chart = bars(lines, f"{_title(view)} to a cluster's model", end, (OWN, NEXT), "distance to the")
    caption = (
        f"How far the local models of the clients were from the clusters' models in {stage.name}: "
        "from the model of their own cluster (filled), and of the nearest other one (outlined). "
        "The less the two overlap, the fewer clients are between clusters."
    )
    return Figure(
        "recluster", "How far clients are from the clusters", chart, caption, height=260,
        fields=FIELDS,
    )  # fmt: skip


def merge_histogram(view: RunView) -> Figure | None:
    """Draw how far apart the clusters were in the last MERGE, if it compared distances."""
    stage, notes = _last(view, "MERGE", "between_clusters")
    distances = np.asarray(notes.get("distances", ()), dtype=np.float64)
    if stage is None or not len(distances):
        return None
    threshold = float(notes["threshold"])
    end = 1.1 * max(float(distances.max()), threshold)
    near = distances <= threshold
    lines = [
        line
        for kind, chosen in ((NEARER, distances[near]), (FURTHER, distances[~near]))
        if len(chosen)
        for line in counted(np.histogram(chosen, BINS, (0, end))[0], end, kind)
    ]
    title = f"{_title(view)} between clusters' models"
    layers: list[Drawing] = [
        bars(lines, title, end, (NEARER, FURTHER), "pairs of clusters"),
        threshold_line(threshold, end),
    ]
    caption = (
        f"How far apart the clusters' models were in {stage.name}, each as shares of its kind. "
        "Clusters nearer than λ, the dashed line, were merged, if the graph of clusters agreed."
    )
    return Figure(
        "merge", "How far apart clusters are", layer(*layers), caption, height=260, fields=FIELDS
    )


def _last(view: RunView, stage: str, note: str) -> tuple[Stage | None, Mapping[str, Any]]:
    """Return the last stage of a name whose notes have some distances, and these."""
    for candidate in reversed(view.main_stages):
        if candidate.name.split()[0] == stage and candidate.notes.get(note):
            return candidate, candidate.notes[note]
    return None, {}


def _title(view: RunView) -> str:
    stage = view.distance_stage
    return "distance" if stage is None else distance_title(stage)
