"""A partition of the clients into clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from srfca.errors import require

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition:
    """Which cluster each client is in; -1 is a client left out.

    Clusters are numbered in the order of their first client, so that two partitions are equal
    exactly when they group the clients alike.

    >>> p = Partition([7, 7, -1, 3, 7])
    >>> p
    Partition(3 in cluster 0, 1 in cluster 1, 1 left out)
    >>> p.labels.tolist(), p.num_clusters, p.members(0).tolist()
    ([0, 0, -1, 1, 0], 2, [0, 1, 4])
    >>> p == Partition([0, 0, -1, 2, 0])
    True
    """

    labels: Labels

    def __init__(self, labels: ArrayLike | Iterable[int]) -> None:
        given = np.asarray(labels if isinstance(labels, np.ndarray) else list(labels))  # type: ignore[arg-type]
        require(given.ndim == 1, f"labels must be one-dimensional, not of shape {given.shape}")
        require(
            given.size == 0 or np.issubdtype(given.dtype, np.integer),
            f"labels must be integers, not {given.dtype}",
        )
        require(bool((given >= -1).all()), "labels must be 0 or more, or -1 for a client left out")
        canonical = canonical_labels(given)
        canonical.flags.writeable = False
        object.__setattr__(self, "labels", canonical)

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """The members of each cluster in turn."""
        placed = np.flatnonzero(self.labels >= 0)
        together = placed[np.argsort(self.labels[placed], kind="stable")]
        return iter(np.split(together, np.cumsum(self.sizes)[:-1]) if self.num_clusters else ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and np.array_equal(self.labels, other.labels)

    def __hash__(self) -> int:
        return hash(self.labels.tobytes())

    def __repr__(self) -> str:
        parts = [f"{size} in cluster {c}" for c, size in enumerate(self.sizes)]
        if len(self.left_out):
            parts.append(f"{len(self.left_out)} left out")
        return f"Partition({', '.join(parts)})"

    @cached_property
    def num_clusters(self) -> int:
        """Number of clusters."""
        return int(self.labels.max(initial=-1)) + 1

    @cached_property
    def sizes(self) -> Labels:
        """Number of clients of each cluster: ``[k]``."""
        return np.bincount(self.labels[self.labels >= 0], minlength=self.num_clusters)

    @property
    def left_out(self) -> Labels:
        """The clients that are in no cluster."""
        return np.flatnonzero(self.labels < 0)

    def members(self, cluster: int) -> Labels:
        """The clients of one cluster."""
        return np.flatnonzero(self.labels == cluster)

    def membership(self) -> NDArray[np.bool_]:
        """Who is in which cluster: ``[k, m]``."""
        clusters: NDArray[np.bool_] = np.arange(self.num_clusters)[:, None] == self.labels
        return clusters

    def keep(self, min_size: int) -> Partition:
        """The same partition without its clusters of fewer than ``min_size`` clients."""
        large = np.append(self.sizes >= min_size, False)  # the last one serves the label -1
        return Partition(np.where(large[self.labels], self.labels, -1))

    def spread(self, here: Labels, count: int) -> Partition:
        """The same among ``count`` clients, of which these are ``here``; the others are left out.

        >>> Partition([0, 1, 0]).spread(np.array([0, 2, 3]), 5).labels.tolist()
        [0, -1, 1, 0, -1]
        """
        labels = np.full(count, -1, dtype=np.int64)
        labels[here] = self.labels
        return Partition(labels)

    def misclustering(self, truth: Partition) -> float:
        """The fraction of clients in a wrong cluster, clusters matched one to one (Hungarian).

        A client left out is wrong, and so is all of a cluster that has no partner: 0 means that
        the partitions are equal.

        >>> Partition([0, 0, 1, 2]).misclustering(Partition([0, 0, 1, 1]))
        0.25
        """
        from scipy.optimize import linear_sum_assignment

        table = self._contingency(truth).toarray()
        rows, columns = linear_sum_assignment(table, maximize=True)
        return 1.0 - float(table[rows, columns].sum()) / len(self)

    def impurity(self, truth: Partition) -> float:
        """The fraction of clients that are not of their cluster's label (the paper's Definition 2).

        A cluster's label is the true cluster of the majority of its clients. A client left out is
        wrong. Several clusters may share a label: singletons have impurity 0.

        >>> Partition([0, 0, 1, 2]).impurity(Partition([0, 0, 1, 1]))
        0.0
        """
        return 1.0 - float(self._contingency(truth).max(axis=1).sum()) / len(self)

    def purity(self, truth: Partition) -> float:
        """One minus the impurity."""
        return 1.0 - self.impurity(truth)

    def ari(self, truth: Partition) -> float:
        """Adjusted Rand index; each client left out counts as a cluster of its own."""
        from sklearn.metrics import adjusted_rand_score

        return float(adjusted_rand_score(truth._singled(), self._singled()))

    def nmi(self, truth: Partition) -> float:
        """Normalised mutual information; each client left out counts as a cluster of its own."""
        from sklearn.metrics import normalized_mutual_info_score

        return float(normalized_mutual_info_score(truth._singled(), self._singled()))

    def _contingency(self, truth: Partition) -> sparse.csr_array:
        """How many clients each cluster shares with each true one: ``[k, k*]``."""
        require(
            len(self) == len(truth),
            f"the partitions have {len(self)} and {len(truth)} clients: they cannot be compared",
        )
        both = (self.labels >= 0) & (truth.labels >= 0)
        pairs = (self.labels[both], truth.labels[both])
        shape = (max(self.num_clusters, 1), max(truth.num_clusters, 1))
        return sparse.coo_array((np.ones(int(both.sum()), np.int64), pairs), shape=shape).tocsr()

    def _singled(self) -> Labels:
        singles = self.num_clusters + np.arange(len(self))
        return np.where(self.labels < 0, singles, self.labels)


def canonical_labels(labels: ArrayLike) -> Labels:
    """Labels renumbered in the order of first appearance; -1 stays.

    >>> canonical_labels([5, -1, 2, 5]).tolist()
    [0, -1, 1, 0]
    """
    given = np.asarray(labels, dtype=np.int64)
    names, first, inverse = np.unique(given, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(np.where(names < 0, -1, first)))
    return order[inverse] - int((names < 0).any())
