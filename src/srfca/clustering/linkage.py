"""Agglomerative clustering: join the two nearest clusters, again and again, up to a cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srfca.clustering.graph import cluster_graph
from srfca.clustering.partition import Partition
from srfca.clustering.threshold import Matrix, check_distances, choose
from srfca.errors import require, unknown

LINKAGES = ("single", "complete", "average", "ward")
"""How far two clusters are: their nearest pair, their farthest, the mean, the growth of squares."""


@dataclass(frozen=True)
class Cut:
    """The clusters at a cut through the tree of joins, and why it is cut there."""

    partition: Partition
    heights: Matrix
    """``[m - 1]`` the distance at which each join was made."""
    why: str


def check_cut(threshold: float | str, k: int | None, linkage: str) -> None:
    """Refuse what ``agglomerate`` cannot work with."""
    require(
        threshold == "auto" or (isinstance(threshold, float | int) and threshold >= 0),
        f"threshold must be 'auto', or a number that is not negative, not {threshold!r}",
    )
    require(
        k is None or threshold == "auto",
        f"k and threshold exclude each other, but k is {k} and threshold {threshold}",
    )
    require(k is None or k >= 1, f"k must be at least 1, not {k}")
    if linkage not in LINKAGES:
        raise unknown("linkage", linkage, LINKAGES)


def agglomerate(
    distances: Matrix,
    *,
    threshold: float | str = "auto",
    k: int | None = None,
    linkage: str = "average",
    seed: int = 0,
) -> Cut:
    """Cluster by a symmetric matrix ``[m, m]`` of distances.

    Args:
        distances: ``[m, m]``; l2 distances for ``ward``.
        threshold: Clusters farther apart are not joined: a number, or ``auto``, which joins down
            to as many clusters as ``groups_seen`` finds in the distances.
        k: The number of clusters, in the place of a threshold.
        linkage: ``single``, ``complete``, ``average`` or ``ward``.
        seed: For the draws of ``auto``.

    >>> at = np.array([1.0, 2.0, 9.0, 7.0])
    >>> agglomerate(np.abs(at[:, None] - at), threshold=3).partition
    Partition(2 in cluster 0, 2 in cluster 1)
    """
    from scipy.cluster import hierarchy
    from scipy.spatial.distance import squareform

    check_cut(threshold, k, linkage)
    check_distances(distances)
    count = len(distances)
    require(k is None or k <= count, f"k must be at most the {count} that there are, not {k}")
    why = "given"
    if k is None and threshold == "auto":
        groups, why = groups_seen(distances, seed=seed)
        k = max(1, groups.num_clusters)
    if count < 2:
        return Cut(Partition(range(count)), np.empty(0), why)
    symmetric = (distances + distances.T) / 2
    tree = hierarchy.linkage(squareform(symmetric, checks=False), linkage)
    if k is None:
        labels = hierarchy.fcluster(tree, threshold, criterion="distance")
    else:
        labels = hierarchy.cut_tree(tree, n_clusters=k).ravel()
    return Cut(Partition(labels), tree[:, 2], why)


def groups_seen(distances: Matrix, min_size: int = 2, seed: int = 0) -> tuple[Partition, str]:
    """The groups that a matrix ``[m, m]`` of distances shows, and why; all in one if it shows none.

    They are those of the automatic threshold (docs/thresholds.md): whoever is in no group of
    ``min_size`` is left out.
    """
    choice = choose(distances, "auto", min_size, seed)
    if choice.graph is None:
        return Partition(np.zeros(len(distances), dtype=np.int64)), choice.why
    return cluster_graph(choice.graph, "correlation", seed).keep(min_size), choice.why
