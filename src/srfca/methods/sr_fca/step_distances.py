"""What the history keeps of the distances of RECLUSTER and MERGE: few numbers, for a report."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.partition import Labels

Distances = NDArray[np.float64]

BINS = 40
MOST_PAIRS = 2000
"""Most pairs of clusters whose distances are kept."""


def to_clusters(distances: Distances, labels: Labels) -> dict[str, Any]:
    """Return histograms of how far clients are from their cluster, and from the nearest other one.

    Args:
        distances: ``[m, k]`` from the clients to the clusters, NaN if unknown.
        labels: ``[m]`` the clients' clusters.

    Returns:
        ``own`` and ``other``: counts of equal bins from 0 to ``end``; larger distances are in the
        last one. Nothing if there are no two clusters.

    >>> distances = np.array([[1.0, 3.0], [4.0, 2.0], [np.nan, np.nan]])
    >>> notes = to_clusters(distances, np.array([0, 1, 1]))
    >>> sum(notes["own"]), sum(notes["other"])
    (2, 2)
    """
    members = np.flatnonzero(labels >= 0)
    if distances.shape[1] < 2 or not len(members):
        return {}
    to_own = distances[members, labels[members]]
    others = np.where(np.isnan(distances[members]), np.inf, distances[members])
    others[np.arange(len(members)), labels[members]] = np.inf
    nearest = others.min(1)
    valid = np.isfinite(to_own) & np.isfinite(nearest)
    if not valid.any():
        return {}
    both = np.stack([to_own[valid], nearest[valid]])
    end = max(float(np.quantile(both, 0.995)), float(np.finfo(np.float32).tiny))
    counts = [np.histogram(np.clip(part, 0, end), BINS, (0, end))[0].tolist() for part in both]
    return {"end": end, "own": counts[0], "other": counts[1]}


def between_clusters(distances: Distances, threshold: float) -> dict[str, Any]:
    """Return the distances between pairs of clusters, and the lambda that they are compared with.

    >>> between_clusters(np.array([[0.0, 2.5], [2.5, 0.0]]), 1.0)
    {'threshold': 1.0, 'distances': [2.5]}
    """
    pairs = distances[np.triu_indices(len(distances), 1)]
    kept = np.sort(pairs[np.isfinite(pairs)])
    if len(kept) > MOST_PAIRS:
        kept = kept[np.linspace(0, len(kept) - 1, MOST_PAIRS).astype(np.int64)]
    return {"threshold": threshold, "distances": [float(f"{value:.5g}") for value in kept]}
