"""How far apart clusters are, and the clustering of distances that keeps them farthest apart.

The separation of a cluster is the mean distance to the nearest other cluster, divided by the mean
distance within. It is large for real groups, about 1 where a group was cut in two, and lower where
several groups were joined than where they are not, so that the number of clusters is where it
peaks. Distances may be unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.matrix import Matrix
from srfca.clustering.partition import Partition
from srfca.clustering.profile import spectral_coordinates

MIN_SEPARATION = 1.5
"""Least separation of clusters that distances alone show to be groups."""
MAX_CLUSTERS = 20
"""Most clusters that are tried."""
_NEARLY = 0.95
"""Fewer clusters are preferred if their separation is this fraction of the best one."""


def mean_distances(distances: Matrix, partition: Partition) -> Matrix:
    """Return the mean known distance between the clients of any two clusters: ``[k, k]``.

    On the diagonal it is the mean within a cluster; NaN where no distance is known.

    Examples:
        >>> at = np.array([0.0, 1.0, 5.0, 7.0])
        >>> mean_distances(np.abs(at[:, None] - at), Partition([0, 0, 1, 1])).tolist()
        [[1.0, 5.5], [5.5, 2.0]]
    """
    is_known = np.isfinite(distances) & ~np.eye(len(distances), dtype=bool)
    members = partition.membership().astype(np.float64)
    sums = members @ np.where(is_known, distances, 0.0) @ members.T
    counts = members @ is_known.astype(np.float64) @ members.T
    with np.errstate(invalid="ignore"):
        means: Matrix = (sums + sums.T) / (counts + counts.T)
    return means


def separations(distances: Matrix, partition: Partition) -> NDArray[np.float64]:
    """Return the separation of each cluster: ``[k]``.

    Clusters of one client have none (NaN) and do not count for the others; and a cluster has none
    if there is no other.

    Args:
        distances: ``[m, m]``, NaN if unknown.
        partition: The clusters.

    Examples:
        >>> at = np.array([0.0, 1.0, 5.0, 7.0])
        >>> separations(np.abs(at[:, None] - at), Partition([0, 0, 1, 1])).tolist()
        [5.5, 2.75]
    """
    means = mean_distances(distances, partition)
    within = np.diag(means).copy()
    others = np.where(np.isfinite(means) & np.isfinite(within), means, np.inf)
    np.fill_diagonal(others, np.inf)
    nearest = others.min(1, initial=np.inf)
    nearest[np.isinf(nearest)] = np.nan
    return np.asarray(nearest / np.maximum(within, np.finfo(np.float64).tiny))


def least_separation(distances: Matrix, partition: Partition) -> float:
    """Return the separation of the least separated cluster, 0 if no two have one."""
    values = separations(distances, partition)
    is_known = values[np.isfinite(values)]
    return float(is_known.min()) if len(is_known) > 1 else 0.0


@dataclass(frozen=True)
class SeparatedClusters:
    """The clusters of largest separation.

    Args:
        partition: Clusters of fewer than ``min_size`` clients are unclustered.
        separation: Separation of the least separated cluster.
    """

    partition: Partition
    separation: float


def separated(distances: Matrix, min_size: int = 2) -> list[SeparatedClusters]:
    """Return clusters by average linkage of profiles, those of largest least separation first.

    K clusters are formed from the K - 1 leading coordinates of the profiles, for every K up to
    ``MAX_CLUSTERS``. Fewer clusters are first if they are separated nearly as well as the best.

    Args:
        distances: ``[m, m]``, NaN if unknown.
        min_size: Smaller clusters are dropped, at least those of one client.

    Returns:
        One for each K, without those that are the same; none if no two clusters can be formed.

    Examples:
        >>> at = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2, 9.0, 9.1, 9.2])
        >>> best, *others = separated(np.abs(at[:, None] - at) + 0.1)
        >>> best.partition.num_clusters
        3
    """
    from scipy.cluster.hierarchy import fcluster, linkage

    count = len(distances)
    if count < 4:
        return []
    coordinates = spectral_coordinates(distances)
    tried: list[SeparatedClusters] = []
    for k in range(2, min(MAX_CLUSTERS, count // 2) + 1):
        tree = linkage(coordinates[:, : k - 1], "average")
        partition = Partition(fcluster(tree, k, "maxclust") - 1)
        partition = partition.drop_smaller_than(max(min_size, 2))
        if partition.num_clusters > 1 and all(partition != c.partition for c in tried):
            tried.append(SeparatedClusters(partition, least_separation(distances, partition)))
    best = max((clusters.separation for clusters in tried), default=0.0)
    return sorted(tried, key=lambda c: -best if c.separation >= _NEARLY * best else -c.separation)


def drop_scattered(distances: Matrix, partition: Partition, max_size: int) -> Partition:
    """Dissolve small clusters whose clients are as far from each other as from other clusters.

    Clients that are far from all others have similar profiles, though they have nothing in common.

    Args:
        distances: ``[m, m]``, NaN if unknown.
        partition: The clusters.
        max_size: Larger clusters stay.

    Examples:
        >>> at = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [9, 0], [0, 9]])
        >>> distances = np.abs(at[:, None] - at).sum(-1).astype(float)
        >>> drop_scattered(distances, Partition([0, 0, 0, 0, 1, 1]), 2)
        Partition(4 in cluster 0, 2 unclustered)
    """
    if partition.num_clusters < 2:
        return partition
    within = np.diag(mean_distances(distances, partition))
    apart = separations(distances, partition)
    weights = np.where(np.isfinite(within), partition.sizes, 0)
    order = np.argsort(within)
    usual = within[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)]
    scattered = (
        (partition.sizes <= max_size)
        & (apart < MIN_SEPARATION)
        & (within >= MIN_SEPARATION * usual)
    )
    dropped = np.append(scattered, False)[partition.labels]
    return Partition(np.where(dropped, -1, partition.labels))
