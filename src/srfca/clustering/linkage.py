"""Agglomerative clustering: merge the two nearest clusters repeatedly, up to a cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from srfca.clustering.graph import cluster_graph
from srfca.clustering.matrix import Matrix, check_distances
from srfca.clustering.partition import Labels, Partition
from srfca.clustering.threshold import choose_threshold
from srfca.errors import require, unknown

Linkage = Literal["single", "complete", "average", "ward"]
"""Distance of two clusters: nearest pair, farthest pair, mean, or increase of the variance."""
LINKAGES: tuple[Linkage, ...] = get_args(Linkage)


@dataclass(frozen=True)
class Cut:
    """The clusters at a cut through the tree of merges, and the reason for the cut."""

    partition: Partition
    heights: Matrix
    """``[m - 1]``, the distance of each merge, in ascending order."""
    reason: str


def check_cut(threshold: float | str, k: int | None, linkage: str) -> None:
    """Check the options of ``agglomerate``.

    Raises:
        InputError: If an option is invalid, or if both k and a threshold are set.
    """
    require(
        (isinstance(threshold, str) and threshold == "auto")
        or (isinstance(threshold, float | int) and threshold >= 0),
        f"threshold must be 'auto', or a number that is not negative, not {threshold!r}",
    )
    require(
        k is None or threshold == "auto",
        f"k and threshold exclude each other, but k is {k} and threshold {threshold}: "
        "set one of them",
    )
    require(k is None or k >= 1, f"k must be at least 1, not {k}")
    if linkage not in LINKAGES:
        raise unknown("linkage", linkage, LINKAGES)


def agglomerate(
    distances: Matrix,
    *,
    threshold: float | Literal["auto"] = "auto",
    k: int | None = None,
    linkage: Linkage = "average",
    seed: int = 0,
) -> Cut:
    """Cluster by a matrix of distances, bottom up.

    Args:
        distances: ``[m, m]``; l2 distances for ``ward``. Both directions are averaged.
        threshold: Clusters farther apart than this are not merged: a number, or ``auto``, which
            makes as many clusters as ``find_groups`` finds.
        k: The number of clusters, instead of a threshold.
        linkage: ``single``, ``complete``, ``average`` or ``ward``.
        seed: Seed of ``find_groups``.

    Returns:
        The partition, the heights of the merges, and the reason for the cut.

    Raises:
        InputError: If an option or the matrix is invalid, or k exceeds m.

    Examples:
        >>> at = np.array([1.0, 2.0, 9.0, 7.0])
        >>> agglomerate(np.abs(at[:, None] - at), threshold=3).partition
        Partition(2 in cluster 0, 2 in cluster 1)
    """
    from scipy.cluster import hierarchy
    from scipy.spatial.distance import squareform

    check_cut(threshold, k, linkage)
    distances = np.asarray(distances, dtype=np.float64)
    check_distances(distances)
    count = len(distances)
    require(k is None or k <= count, f"k must be at most {count}, the number of rows, not {k}")
    reason = "given"
    if k is None and threshold == "auto":
        groups, reason = find_groups(distances, seed=seed)
        k = max(1, groups.num_clusters)
    if count < 2:
        return Cut(Partition(range(count)), np.empty(0), reason)
    symmetric = distances / 2 + distances.T / 2
    require(bool(np.isfinite(symmetric).all()), "distances must be finite to be linked")
    tree = hierarchy.linkage(squareform(symmetric, checks=False), linkage)
    if k is None:
        labels = hierarchy.fcluster(tree, threshold, criterion="distance")
    else:
        labels = cut_in(tree, k)
    return Cut(Partition(labels), tree[:, 2], reason)


def cut_in(tree: Matrix, k: int) -> Labels:
    """Return the clusters that are left after all but the last ``k - 1`` merges of a tree: ``[m]``.

    Args:
        tree: ``[m - 1, 4]``, as of ``scipy.cluster.hierarchy.linkage``.
        k: The number of clusters.

    Examples:
        >>> cut_in(np.array([[0, 2, 1.0, 2], [1, 3, 2.0, 3]]), 2).tolist()
        [3, 1, 3]
    """
    count = len(tree) + 1
    labels = np.arange(count)
    for number, (left, right) in enumerate(tree[: count - k, :2].astype(np.int64)):
        labels[(labels == left) | (labels == right)] = count + number
    return labels


def find_groups(distances: Matrix, min_size: int = 2, seed: int = 0) -> tuple[Partition, str]:
    """Find the groups that a matrix of distances shows at the automatic threshold.

    Args:
        distances: ``[m, m]``.
        min_size: Smaller groups are dropped: their members become unclustered.
        seed: Seed of the correlation clustering.

    Returns:
        The groups, one group of everyone if there are none; and the reason.

    Raises:
        InputError: If a distance is infinite or NaN.

    Examples:
        >>> labels = np.arange(12) % 2
        >>> find_groups(np.where(labels[:, None] == labels, 1.0, 5.0))[0]
        Partition(6 in cluster 0, 6 in cluster 1)
    """
    require(not np.isnan(distances).any(), "distances must not be NaN, but at least one is")
    choice = choose_threshold(distances, "auto", min_size, seed)
    if choice.graph is None:
        return Partition(np.zeros(len(distances), dtype=np.int64)), choice.reason
    partition = cluster_graph(choice.graph, "correlation", seed)
    return partition.drop_smaller_than(min_size), choice.reason
