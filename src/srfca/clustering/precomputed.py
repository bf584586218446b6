"""Clustering by a matrix of distances, without a federation."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from srfca.clustering.graph import Graph, GraphClustering, cluster_graph, threshold_graph
from srfca.clustering.matrix import check_distances
from srfca.clustering.partition import Partition
from srfca.clustering.threshold import check_threshold, choose_threshold
from srfca.errors import require, require_positive, require_seed


def cluster(
    distances: Any,
    *,
    threshold: float | str = "auto",
    min_size: int = 1,
    graph: GraphClustering = "correlation",
    seed: int = 0,
) -> Partition:
    """Cluster by a matrix of distances, with an edge wherever one is at most the threshold.

    Args:
        distances: ``[m, m]``, a nested list, a numpy array, a torch tensor or a scipy sparse
            matrix, in which an entry that is not stored is infinite.
        threshold: A number, a quantile of the distances such as ``"30%"``, or ``"auto"``, which
            makes one cluster of everyone if there are no groups.
        min_size: Smaller clusters are dropped: their members get the label -1.
        graph: ``correlation``, ``components`` or ``cliques``.
        seed: Seed of the random pivots of correlation clustering.

    Returns:
        A partition of the m rows.

    Raises:
        InputError: If the matrix or an option is invalid.

    Examples:
        >>> cluster([[0, 1, 9, 8], [1, 0, 8, 9], [9, 8, 0, 2], [8, 9, 2, 0]], threshold=3)
        Partition(2 in cluster 0, 2 in cluster 1)
    """
    require_positive(min_size=min_size)
    require_seed(seed)
    if sparse.issparse(distances):
        edges = _sparse_graph(distances, threshold)
    else:
        matrix = np.asarray(distances, dtype=np.float64)
        check_distances(matrix)
        chosen = choose_threshold(matrix, threshold, min_size, seed).graph
        if chosen is None:
            everyone = Partition(np.zeros(len(matrix), dtype=np.int64))
            return everyone.drop_smaller_than(min_size)
        edges = chosen
    return cluster_graph(edges, graph, seed).drop_smaller_than(min_size)


def _sparse_graph(distances: sparse.sparray, threshold: float | str) -> Graph:
    """Return the graph of a sparse matrix at a threshold, which must be a number."""
    check_threshold(threshold)
    require(
        not isinstance(threshold, str),
        f"a sparse matrix needs a threshold that is a number, not {threshold!r}",
    )
    entries = sparse.coo_array(distances)
    require(
        entries.shape[0] == entries.shape[1],
        f"distances must be a square matrix, not of shape {entries.shape}",
    )
    require(not np.isnan(entries.data).any(), "distances must not be NaN, but at least one is")
    return threshold_graph(entries, float(threshold))
