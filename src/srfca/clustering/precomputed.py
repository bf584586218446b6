"""Clustering alone, for people who bring a distance matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from srfca.clustering.graph import cluster_graph, threshold_graph
from srfca.clustering.partition import Partition
from srfca.clustering.threshold import check_distances, check_threshold, choose
from srfca.errors import require


def cluster(
    distances: Any,
    *,
    threshold: float | str = "auto",
    min_size: int = 1,
    graph: str = "correlation",
    seed: int = 0,
) -> Partition:
    """Cluster by a matrix of distances: an edge where one is at most the threshold.

    Args:
        distances: ``[m, m]``, a numpy array, a torch tensor or a scipy sparse matrix, in which an
            entry that is not stored is far.
        threshold: A number, a quantile of the distances such as ``"30%"``, or ``"auto"``, which
            puts everybody into one cluster if it sees no groups.
        min_size: Smaller clusters are dissolved: their members get the label -1.
        graph: ``correlation``, ``components`` or ``cliques``.
        seed: For the random pivots of correlation clustering.

    >>> cluster([[0, 1, 9, 8], [1, 0, 8, 9], [9, 8, 0, 2], [8, 9, 2, 0]], threshold=3)
    Partition(2 in cluster 0, 2 in cluster 1)
    """
    require(min_size >= 1, f"min_size must be at least 1, not {min_size}")
    if sparse.issparse(distances):
        check_threshold(threshold)
        require(
            not isinstance(threshold, str), "a sparse matrix needs a threshold that is a number"
        )
        distances = sparse.coo_array(distances)
        require(
            distances.shape[0] == distances.shape[1],
            f"distances must be a square matrix, not of shape {distances.shape}",
        )
        require(not np.isnan(distances.data).any(), "distances must not be NaN")
        chosen = threshold_graph(distances, float(threshold))
    else:
        matrix = np.asarray(distances, dtype=np.float64)
        check_distances(matrix)
        found = choose(matrix, threshold, min_size, seed).graph
        if found is None:
            return Partition(np.zeros(len(matrix), dtype=np.int64)).keep(min_size)
        chosen = found
    return cluster_graph(chosen, graph, seed).keep(min_size)
