"""A partition of the clients into clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from srfca.clustering.agreement import adjusted_rand_index, normalized_mutual_information
from srfca.errors import require

Indices = NDArray[np.int64]
"""Positions of clients or vertices."""
Labels = NDArray[np.int64]
"""The cluster of each client, -1 for none: ``[m]``."""
_LISTED = 12
"""Clusters whose sizes are listed one by one."""


@dataclass(frozen=True, eq=False)
class Partition:
    """The cluster of each client; label -1 marks an unclustered client.

    Clusters are numbered in the order of their first client, so two partitions are equal exactly
    when they group the clients in the same way. Instances are immutable and hashable.

    Args:
        labels: One integer per client: any number of at least 0 for a cluster, -1 for none.

    Raises:
        InputError: If the labels are not one-dimensional integers of at least -1.

    Examples:
        >>> p = Partition([7, 7, -1, 3, 7])
        >>> p
        Partition(3 in cluster 0, 1 in cluster 1, 1 unclustered)
        >>> p.labels.tolist(), p.num_clusters, p.members(0).tolist()
        ([0, 0, -1, 1, 0], 2, [0, 1, 4])
        >>> p == Partition([0, 0, -1, 2, 0])
        True
    """

    labels: Labels

    def __init__(self, labels: ArrayLike | Iterable[int]) -> None:
        array = np.asarray(labels if isinstance(labels, np.ndarray) else list(labels))  # type: ignore[arg-type]
        require(array.ndim == 1, f"labels must be one-dimensional, not of shape {array.shape}")
        require(
            array.size == 0 or np.issubdtype(array.dtype, np.integer),
            f"labels must be integers, not {array.dtype}",
        )
        require(
            bool((array >= -1).all()),
            f"labels must be at least 0, or -1 for an unclustered client, "
            f"not {array.min(initial=0)}",
        )
        canonical = canonical_labels(array)
        canonical.flags.writeable = False
        object.__setattr__(self, "labels", canonical)

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Indices]:
        """Iterate over the clusters; each item holds the cluster's clients, in ascending order."""
        clustered = np.flatnonzero(self.labels >= 0)
        by_cluster = clustered[np.argsort(self.labels[clustered], kind="stable")]
        return iter(np.split(by_cluster, np.cumsum(self.sizes)[:-1]) if self.num_clusters else ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and np.array_equal(self.labels, other.labels)

    def __hash__(self) -> int:
        return hash(self.labels.tobytes())

    def __repr__(self) -> str:
        parts = [f"{size} in cluster {cluster}" for cluster, size in enumerate(self.sizes)]
        if len(self.unclustered):
            parts.append(f"{len(self.unclustered)} unclustered")
        return f"Partition({', '.join(parts)})"

    def _repr_html_(self) -> str:
        from srfca.report.notebook import partition_html

        return partition_html(self)

    def describe(self) -> str:
        """Return the sizes of the clusters, for a person; clusters of one are clients alone.

        Examples:
            >>> Partition([0, 0, 1, 1, 1, 2]).describe()
            '2 clusters of 2, 3 clients and 1 client alone'
            >>> Partition([0, 0, 0]).describe(), Partition([0, 1, 2]).describe()
            ('1 cluster of 3 clients', '3 clients alone')
            >>> Partition([*range(20), *range(20), 0]).describe()
            '20 clusters of 2 to 3 clients'
        """
        sizes = [int(size) for size in self.sizes if size > 1]
        parts = []
        if sizes:
            listed = ", ".join(str(size) for size in sizes)
            if len(sizes) > _LISTED and min(sizes) < max(sizes):
                listed = f"{min(sizes)} to {max(sizes)}"
            elif len(sizes) > _LISTED:
                listed = str(sizes[0])
            parts.append(f"{len(sizes)} cluster{'s' * (len(sizes) != 1)} of {listed} clients")
        for count, text in ((len(self.alone), "alone"), (len(self.unclustered), "unclustered")):
            if count:
                parts.append(f"{count} client{'s' * (count != 1)} {text}")
        return " and ".join(parts)

    @cached_property
    def num_clusters(self) -> int:
        """Number of clusters, k."""
        return int(self.labels.max(initial=-1)) + 1

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of clients of each cluster: ``[k]``."""
        return np.bincount(self.labels[self.labels >= 0], minlength=self.num_clusters)

    @property
    def unclustered(self) -> Indices:
        """The clients that are in no cluster, in ascending order."""
        return np.flatnonzero(self.labels < 0)

    @property
    def alone(self) -> Indices:
        """The clients that are the only one of their cluster, in ascending order."""
        single = np.append(self.sizes == 1, False)
        return np.flatnonzero(single[self.labels])

    def without(self, clients: Indices) -> Partition:
        """Return the partition in which some clients are unclustered.

        Args:
            clients: Their positions.

        Examples:
            >>> Partition([0, 0, 1, 1]).without(np.array([0])).labels.tolist()
            [-1, 0, 1, 1]
        """
        labels = self.labels.copy()
        labels[clients] = -1
        return Partition(labels)

    def members(self, cluster: int) -> Indices:
        """Return the clients of one cluster, in ascending order.

        Args:
            cluster: Its label.

        Returns:
            ``[c]``
        """
        return np.flatnonzero(self.labels == cluster)

    def membership(self) -> NDArray[np.bool_]:
        """Return the indicator matrix ``[k, m]``: whether each cluster contains each client."""
        indicator: NDArray[np.bool_] = np.arange(self.num_clusters)[:, None] == self.labels
        return indicator

    def drop_smaller_than(self, min_size: int) -> Partition:
        """Return the partition without its clusters of fewer than ``min_size`` clients.

        The clients of dropped clusters become unclustered.

        Args:
            min_size: Clusters of exactly this size stay.

        Examples:
            >>> Partition([0, 0, 1]).drop_smaller_than(2)
            Partition(2 in cluster 0, 1 unclustered)
        """
        large = np.append(self.sizes >= min_size, False)  # the last entry is for the label -1
        return Partition(np.where(large[self.labels], self.labels, -1))

    def embed(self, clients: Indices, num_clients: int) -> Partition:
        """Return the partition as one of more clients; the additional ones are unclustered.

        Args:
            clients: ``[len(self)]``, the position of each client of this partition among all.
            num_clients: Number of all clients.

        Examples:
            >>> Partition([0, 1, 0]).embed(np.array([0, 2, 3]), 5).labels.tolist()
            [0, -1, 1, 0, -1]
        """
        labels = np.full(num_clients, -1, dtype=np.int64)
        labels[clients] = self.labels
        return Partition(labels)

    def misclustering(self, truth: Partition) -> float:
        """Return the fraction of clients in a wrong cluster, after one-to-one matching.

        Clusters are matched with true clusters by the Hungarian algorithm. An unclustered client
        counts as wrong, and so does every client of a cluster without a match: 0 means that the
        partitions are equal.

        Args:
            truth: The true clusters of the same clients.

        Returns:
            From 0 to 1.

        Raises:
            InputError: If the partitions have different numbers of clients.

        Examples:
            >>> Partition([0, 0, 1, 2]).misclustering(Partition([0, 0, 1, 1]))
            0.25
        """
        from scipy.optimize import linear_sum_assignment

        table = self._contingency(truth).toarray()
        rows, columns = linear_sum_assignment(table, maximize=True)
        return self._fraction_wrong(float(table[rows, columns].sum()))

    def impurity(self, truth: Partition) -> float:
        """Return the fraction of clients outside their cluster's majority (Definition 2).

        The majority of a cluster is the most frequent true cluster of its clients. An unclustered
        client counts as wrong. Several clusters may have the same majority: a partition into
        single clients has impurity 0.

        Args:
            truth: The true clusters of the same clients.

        Returns:
            From 0 to 1.

        Raises:
            InputError: If the partitions have different numbers of clients.

        Examples:
            >>> Partition([0, 0, 1, 2]).impurity(Partition([0, 0, 1, 1]))
            0.0
        """
        return self._fraction_wrong(float(self._contingency(truth).max(axis=1).sum()))

    def purity(self, truth: Partition) -> float:
        """Return one minus the impurity.

        Args:
            truth: The true clusters of the same clients.

        Returns:
            From 0 to 1.
        """
        return 1.0 - self.impurity(truth)

    def ari(self, truth: Partition) -> float:
        """Return the adjusted Rand index; an unclustered client counts as a cluster of one.

        Args:
            truth: The true clusters of the same clients.

        Returns:
            At most 1, for equal partitions; about 0 for a partition at random.
        """
        self._check_same_clients(truth)
        return adjusted_rand_index(truth._with_singletons(), self._with_singletons())

    def nmi(self, truth: Partition) -> float:
        """Return the normalized mutual information; an unclustered client is a cluster of one.

        Args:
            truth: The true clusters of the same clients.

        Returns:
            From 0 to 1.
        """
        self._check_same_clients(truth)
        return normalized_mutual_information(truth._with_singletons(), self._with_singletons())

    def _contingency(self, truth: Partition) -> sparse.csr_array:
        """Count the clients that each cluster shares with each true cluster: ``[k, k_true]``."""
        self._check_same_clients(truth)
        both = (self.labels >= 0) & (truth.labels >= 0)
        pairs = (self.labels[both], truth.labels[both])
        shape = (max(self.num_clusters, 1), max(truth.num_clusters, 1))
        return sparse.coo_array((np.ones(int(both.sum()), np.int64), pairs), shape=shape).tocsr()

    def _check_same_clients(self, other: Partition) -> None:
        require(
            len(self) == len(other),
            f"the partitions have {len(self)} and {len(other)} clients: they cannot be compared",
        )

    def _fraction_wrong(self, num_right: float) -> float:
        """Return the fraction of clients that are not right; 0 if there are none."""
        return 1.0 - num_right / len(self) if len(self) else 0.0

    def _with_singletons(self) -> Labels:
        """Return labels in which every unclustered client has a cluster of one."""
        singletons = self.num_clusters + np.arange(len(self))
        return np.where(self.labels < 0, singletons, self.labels)


def canonical_labels(labels: ArrayLike) -> Labels:
    """Renumber labels in the order of first appearance; -1 stays.

    Examples:
        >>> canonical_labels([5, -1, 2, 5]).tolist()
        [0, -1, 1, 0]
    """
    array = np.asarray(labels, dtype=np.int64)
    values, first, inverse = np.unique(array, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(np.where(values < 0, -1, first)))
    return order[inverse] - int((values < 0).any())
