"""Quantities of the theory for given models and partitions: eps1, eps2, lambda, impurities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from srfca.clustering.partition import Labels, Partition
from srfca.errors import require


class Separations(NamedTuple):
    """How far apart models are within and across clusters (Definition 1).

    Args:
        eps1: The largest distance of two models in the same cluster.
        eps2: The smallest distance of two models in different clusters; infinite for one cluster.

    Examples:
        >>> Separations(eps1=1.0, eps2=4.0).eps2
        4.0
    """

    eps1: float
    eps2: float


def separations(distances: ArrayLike, partition: Partition) -> Separations:
    """Return eps1 and eps2 of models.

    Args:
        distances: ``[m, m]`` between the models of all clients; see ``l2_distances``.
        partition: Which models belong together; unclustered ones are left out.

    Returns:
        eps1 and eps2.

    Raises:
        InputError: If the matrix does not have a row for each client.

    >>> separations(l2_distances([[0.0], [1.0], [5.0]]), Partition([0, 0, 1]))
    Separations(eps1=1.0, eps2=4.0)
    """
    matrix, labels = np.asarray(distances, dtype=np.float64), partition.labels
    require(
        matrix.shape == (len(labels), len(labels)),
        f"distances must be [{len(labels)}, {len(labels)}] for {len(labels)} clients, "
        f"not {list(matrix.shape)}",
    )
    pairs = (labels[:, None] >= 0) & (labels >= 0) & ~np.eye(len(labels), dtype=bool)
    same = labels[:, None] == labels
    return Separations(
        float(matrix[pairs & same].max(initial=0.0)),
        float(matrix[pairs & ~same].min(initial=np.inf)),
    )


def l2_distances(models: ArrayLike) -> NDArray[np.float64]:
    """Return the l2 distances ``[m, m]`` of models ``[m, d]``."""
    rows = np.asarray(models, dtype=np.float64)
    return np.asarray(cdist(rows, rows))


def best_threshold(separations: Separations) -> float:
    """Return lambda = (eps1 + eps2) / 2, which gives the least bound.

    Args:
        separations: eps1 and eps2.

    Returns:
        lambda.

    >>> best_threshold(Separations(1.0, 4.0))
    2.5
    """
    return (separations.eps1 + separations.eps2) / 2


def cluster_labels(partition: Partition, truth: Partition) -> Labels:
    """Return the cluster label of each cluster (Definition 2): ``[k]``.

    It is the true cluster that most of its clients come from, the first on a tie.

    Args:
        partition: The clusters.
        truth: The true clusters.

    Returns:
        ``[k]`` true clusters.

    >>> cluster_labels(Partition([0, 0, 0, 1]), Partition([0, 1, 1, 0])).tolist()
    [1, 0]
    """
    counts = [_counts(truth.labels[members], truth) for members in partition]
    return np.array([int(count.argmax()) for count in counts], dtype=np.int64)


def cluster_impurities(partition: Partition, truth: Partition) -> NDArray[np.float64]:
    """Return the fraction of each cluster's clients that did not come from its label: ``[k]``.

    TrimmedMeanGD(beta) needs every impurity to be below beta.

    Args:
        partition: The clusters.
        truth: The true clusters.

    Returns:
        ``[k]``, from 0 to 1.

    >>> cluster_impurities(Partition([0, 0, 0, 0, 1]), Partition([0, 1, 1, 1, 0])).tolist()
    [0.25, 0.0]
    """
    counts = [_counts(truth.labels[members], truth) for members in partition]
    sizes = partition.sizes
    return np.array([1 - count.max() / size for count, size in zip(counts, sizes, strict=True)])


def _counts(labels: Labels, truth: Partition) -> NDArray[np.int64]:
    return np.bincount(labels[labels >= 0], minlength=max(truth.num_clusters, 1))
