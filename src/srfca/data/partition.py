"""Deal the samples of a data set to clients, with a known true partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from srfca.data.client_data import ClientData
from srfca.data.partitioners import MIN_SAMPLES, Partitioner, Parts, matching_partition
from srfca.data.partitioners.base import split_by
from srfca.data.transforms import Array, Transform, apply, compose, unchanged
from srfca.data.transforms.base import Split, split_at_random_part
from srfca.errors import (
    is_integer,
    is_number,
    require,
    require_positive,
    require_seed,
    unknown,
)
from srfca.parameters import choices
from srfca.random import Key

SizeRule = Literal["balanced", "lognormal"]
"""How many samples each client gets: equally many, or log-normally distributed numbers."""
Sizes = SizeRule | int | Sequence[int] | NDArray[np.int64]
"""A rule, one number for all clients, or a number for each client."""
Standardization = Literal["federation", "client", "no"]
"""Whose training samples are brought to mean 0 and standard deviation 1."""

Pairs = list[tuple[Array, Array]]
"""Samples and labels of each client."""


def federate(
    x: Array,
    y: Array,
    *,
    num_clients: int,
    clusters: Sequence[Transform],
    shares: Sequence[float] | None = None,
    outliers: Sequence[Transform] = (),
    sizes: Sizes = "balanced",
    partitioner: Partitioner | None = None,
    test: tuple[Array, Array] | None = None,
    reuse: bool = False,
    standardize: Standardization = "federation",
    client_transforms: Mapping[int, Transform] | None = None,
    seed: int = 0,
) -> ClientData:
    """Deal samples to clients and apply each cluster's transform to its clients' samples.

    Args:
        x: Samples, ``[n, ...]``; integers are taken as pixels from 0 to 255.
        y: Labels, ``[n]``.
        num_clients: Number of clients, outliers included.
        clusters: A transform for each cluster. Clients are assigned to the clusters in turn.
        shares: The fraction of the clients in each cluster, outliers not counted; None for equal
            fractions.
        outliers: A transform for each client that belongs to no cluster. These are the last
            clients, and each of them is a cluster of its own in the true partition.
        sizes: Training samples per client: "balanced", "lognormal" (very unequal), one number for
            all clients, or a list with a number for each client. With a partitioner: "balanced"
            deals all samples, and a number is the mean number of samples per client.
        partitioner: How the samples of each cluster are dealt to its clients, after the cluster's
            transform; None to deal them at random. Each client's test samples then have the same
            shares of the classes as its training samples.
        test: Test samples and labels, equally many for each client of a cluster.
        reuse: If true, each cluster deals all samples among its clients, and an outlier gets as
            many as a client of the largest cluster; otherwise every sample goes to at most one
            client of the federation.
        standardize: Bring each channel (or all entries together, without channels) to mean 0 and
            standard deviation 1: over the training samples of the whole "federation", or of each
            "client" separately (which removes a constant shift between clients). "no" only scales
            integers to [0, 1].
        client_transforms: Transforms of single clients, by their index, after their cluster's: they
            do not change the true partition.
        seed: Decides which client gets which samples.

    Returns:
        The clients, with their true partition; ``x`` is float32 if the samples are integers.

    Raises:
        InputError: If there are too few samples or an argument is out of range.

    Examples:
        >>> from srfca.data.transforms import rotate, unchanged
        >>> x, y = np.zeros((90, 4, 4), np.uint8), np.arange(90) % 3
        >>> federate(x, y, num_clients=9, clusters=[unchanged, rotate(180)], shares=[2 / 3, 1 / 3])
        ClientData(9 clients, 10 training samples of shape (4, 4), no test data, 2 true clusters)
        >>> from srfca.data.partitioners import PathologicalPartitioner
        >>> two = PathologicalPartitioner(num_classes_per_partition=2)
        >>> skewed = federate(x, y, num_clients=9, clusters=[unchanged], partitioner=two)
        >>> max(len(skewed.train.of(client)[1].unique()) for client in range(9))
        2
    """
    require(len(x) == len(y), f"there are {len(x)} samples but {len(y)} labels")
    require(len(clusters) >= 1, "federate needs at least one cluster")
    require_positive(num_clients=num_clients)
    require_seed(seed)
    require(isinstance(reuse, bool), f"reuse must be True or False, not {reuse!r}")
    _check_sizes(sizes)
    if isinstance(sizes, np.ndarray):
        sizes = sizes.tolist()  # arrays cannot be compared with the name of a rule
    if not isinstance(standardize, str):
        raise unknown("standardize", standardize, choices(Standardization))
    available = len(x) * len(clusters) + len(outliers) if reuse else len(x)
    require(
        num_clients <= available,
        f"num_clients={num_clients} is more than the {available} samples that can be dealt",
    )
    groups = _Groups.assign(num_clients, clusters, outliers, shares)
    rng = np.random.default_rng([seed, num_clients])
    if partitioner is not None:
        _check_sizes_with_partitioner(sizes)
        deal = _by_partitioner(partitioner, sizes, seed)
    else:
        deal = _by_counts(sizes, num_clients, rng)
    train_parts = _deal(x, y, groups, reuse, rng, deal)
    test_parts = None
    if test is not None:
        if partitioner is not None:
            deal = _by_labels([labels for _, labels in train_parts], seed)
        else:
            deal = _by_counts("balanced", num_clients, rng)
        test_parts = _deal(*test, groups, reuse, rng, deal)
    changes = _client_changes(groups, client_transforms or {})
    train_parts = _change(train_parts, changes, "train", seed)
    test_parts = None if test_parts is None else _change(test_parts, changes, "test", seed)
    moments = _moments_by_client(train_parts, standardize, x.dtype)

    def scaled(parts: Pairs) -> Pairs:
        return [
            ((samples - mean) / deviation, labels)
            for (samples, labels), (mean, deviation) in zip(parts, moments, strict=True)
        ]

    return ClientData.from_arrays(
        scaled(train_parts), None if test_parts is None else scaled(test_parts), groups.truth
    )


@dataclass(frozen=True)
class _Groups:
    """The clusters, and the outliers as clusters of one client each.

    Args:
        truth: The cluster of each client, ``[m]``.
        transforms: The transform of each cluster.
        num_outliers: How many of the clusters, the last ones, are outliers.
    """

    truth: NDArray[np.int64]
    transforms: Sequence[Transform]
    num_outliers: int

    @classmethod
    def assign(
        cls,
        num_clients: int,
        clusters: Sequence[Transform],
        outliers: Sequence[Transform],
        shares: Sequence[float] | None,
    ) -> _Groups:
        """Assign clients to clusters in turn; the last clients are the outliers."""
        transforms = [*clusters, *outliers]
        require(
            num_clients >= len(transforms),
            f"num_clients must be at least {len(transforms)} (clusters and outliers), "
            f"not {num_clients}",
        )
        truth = _assign_clusters(num_clients - len(outliers), len(clusters), shares)
        alone = np.arange(len(clusters), len(transforms))
        return cls(np.concatenate([truth, alone]), transforms, len(outliers))

    def pool_sizes(self, available: int) -> list[int]:
        """Return how many samples each cluster deals if it may deal them all."""
        outlier = available // int(np.bincount(self.truth).max())
        num_clusters = len(self.transforms) - self.num_outliers
        return [available] * num_clusters + [outlier] * self.num_outliers


def _moments_by_client(
    parts: Pairs, standardize: Standardization, dtype: np.dtype[Any]
) -> list[tuple[Array, Array]]:
    """Return what to subtract from each client's samples, and what to divide them by."""
    match standardize:
        case "federation":
            return [_moments([samples for samples, _ in parts])] * len(parts)
        case "client":
            return [_moments([samples]) for samples, _ in parts]
        case "no":
            scale = 255 if np.issubdtype(dtype, np.integer) else 1
            return [(np.zeros(1, np.float32), np.full(1, scale, np.float32))] * len(parts)
    raise unknown("standardize", standardize, choices(Standardization))


def _assign_clusters(
    num_clients: int, num_clusters: int, shares: Sequence[float] | None
) -> NDArray[np.int64]:
    """Return the cluster of each client, ``[m]``.

    Cluster sizes are as close to the shares as possible, and at least 1; clients are assigned in
    turn.
    """
    if shares is None:
        return np.arange(num_clients, dtype=np.int64) % num_clusters
    require(
        isinstance(shares, Sequence | np.ndarray)
        and np.shape(shares) == (num_clusters,)
        and all(is_number(share) for share in shares)
        and min(shares) > 0
        and abs(sum(shares) - 1) < 1e-6,
        f"shares must be {num_clusters} positive numbers that sum to 1, not {shares!r}",
    )
    targets = np.asarray(shares) * num_clients
    counts = np.maximum(1, np.floor(targets + 1e-9).astype(np.int64))
    while counts.sum() != num_clients:
        missing = targets - counts
        if counts.sum() < num_clients:
            counts[np.argmax(missing)] += 1
        else:
            counts[np.argmin(np.where(counts > 1, missing, np.inf))] -= 1
    turns = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    return np.repeat(np.arange(num_clusters), counts)[np.argsort(turns, kind="stable")]


Deal = Callable[[int, NDArray[np.int64], Array], Parts]
"""From a cluster, its clients and the labels of its samples to the indices of each client's."""


def _deal(
    x: Array, y: Array, groups: _Groups, reuse: bool, rng: np.random.Generator, deal: Deal
) -> Pairs:
    """Return each client's samples and labels, with its cluster's transform up to random parts."""
    order = rng.permutation(len(x))
    pairs: dict[int, tuple[Array, Array]] = {}
    pools = _split(order, np.bincount(groups.truth))
    sizes = groups.pool_sizes(len(x))
    for cluster, transform in enumerate(groups.transforms):
        members = np.flatnonzero(groups.truth == cluster)
        pool = rng.permutation(order)[: sizes[cluster]] if reuse else pools[cluster]
        before_drawing, _ = split_at_random_part(transform)
        transformed, labels = before_drawing(x[pool], y[pool])
        require(
            len(transformed) >= MIN_SAMPLES * len(members),
            f"a cluster has {len(transformed)} samples for its {len(members)} clients: too few",
        )
        for member, part in zip(members, deal(cluster, members, labels), strict=True):
            pairs[int(member)] = np.ascontiguousarray(transformed[part]), labels[part]
    return [pairs[client] for client in range(len(groups.truth))]


def _client_changes(groups: _Groups, client_transforms: Mapping[int, Transform]) -> list[Transform]:
    """Return what happens to each client's samples after they are dealt."""
    num_clients = len(groups.truth)
    for client in client_transforms:
        require(
            0 <= client < num_clients,
            f"client_transforms has a client {client}, but there are {num_clients} clients, "
            "numbered from 0",
        )
    random_parts = [split_at_random_part(transform)[1] for transform in groups.transforms]
    return [
        compose(random_parts[cluster], client_transforms.get(client, unchanged))
        for client, cluster in enumerate(groups.truth)
    ]


def _change(pairs: Pairs, changes: Sequence[Transform], split: Split, seed: int) -> Pairs:
    """Apply each client's transform to its samples, with random numbers of its own."""
    return [
        apply(change, x, y, split=split, rng=_generator(seed, f"{split} transform", client))
        for client, ((x, y), change) in enumerate(zip(pairs, changes, strict=True))
    ]


def _by_counts(sizes: Sizes, num_clients: int, rng: np.random.Generator) -> Deal:
    """Return a function that deals numbers of samples, in the given order."""

    def deal(cluster: int, members: NDArray[np.int64], labels: Array) -> Parts:
        counts = _sample_counts(sizes, members, len(labels), num_clients, rng)
        return split_by(np.arange(len(labels)), counts)

    return deal


def _by_partitioner(partitioner: Partitioner, sizes: Sizes, seed: int) -> Deal:
    """Return a function that deals samples by a partitioner."""

    def deal(cluster: int, members: NDArray[np.int64], labels: Array) -> Parts:
        if isinstance(sizes, int | np.integer):
            needed = int(sizes) * len(members)
            require(
                needed <= len(labels),
                f"sizes ask for {needed} samples of a cluster that has {len(labels)}",
            )
            labels = labels[:needed]
        return partitioner.partition(labels, len(members), _generator(seed, "partition", cluster))

    return deal


def _by_labels(client_labels: Sequence[Array], seed: int) -> Deal:
    """Return a function that gives each client samples with the labels that it has already."""

    def deal(cluster: int, members: NDArray[np.int64], labels: Array) -> Parts:
        wanted = [client_labels[member] for member in members]
        return matching_partition(wanted, labels, _generator(seed, "test partition", cluster))

    return deal


def _check_sizes(sizes: Sizes) -> None:
    """Raise an error unless sizes are a rule, an integer or a list of integers."""
    numbers: Any = [sizes] if is_integer(sizes) else sizes
    is_list = isinstance(numbers, list | tuple | np.ndarray) and np.ndim(numbers) == 1
    rules = ", ".join(repr(rule) for rule in choices(SizeRule))
    require(
        (isinstance(sizes, str) and sizes in choices(SizeRule))
        or (is_list and all(is_integer(n) and n < 2**63 for n in numbers)),
        f"sizes must be {rules}, a number or a list of integers, not {sizes!r}",
    )


def _check_sizes_with_partitioner(sizes: Sizes) -> None:
    """Raise an error if sizes say more than the mean."""
    require(
        sizes == "balanced" or isinstance(sizes, int | np.integer),
        f"with a partitioner, sizes must be 'balanced' or a number, not {sizes!r}: use "
        "SizePartitioner or InnerDirichletPartitioner for sizes of your own",
    )


def _generator(seed: int, purpose: str, index: int) -> np.random.Generator:
    """Return a generator of random numbers for a purpose, for one cluster or client."""
    return np.random.default_rng(Key(seed, purpose, index).word() % 2**64)


def _split(order: NDArray[np.int64], weights: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split indices into consecutive pieces of sizes proportional to the weights."""
    ends = np.floor(np.cumsum(weights) / weights.sum() * len(order) + 1e-9).astype(np.int64)
    return np.split(order, ends[:-1])


def _sample_counts(
    sizes: Sizes,
    members: NDArray[np.int64],
    available: int,
    num_clients: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return how many of a cluster's samples each of its clients gets."""
    num_members = len(members)
    match sizes:
        case "balanced":
            pieces = np.array_split(np.arange(available), num_members)
            return np.array([len(piece) for piece in pieces])
        case "lognormal":
            weights = rng.lognormal(size=num_members)
            spare = available - MIN_SAMPLES * num_members
            extra = np.floor(spare * weights / weights.sum())
            return np.asarray(MIN_SAMPLES + extra, dtype=np.int64)
        case int() | np.integer():
            counts = np.full(num_clients, sizes, dtype=np.int64)
        case _:
            counts = np.asarray(sizes, dtype=np.int64)
    require(len(counts) == num_clients, f"there are {len(counts)} sizes for {num_clients} clients")
    require(
        bool((counts >= MIN_SAMPLES).all()), f"every client needs at least {MIN_SAMPLES} samples"
    )
    total = int(counts[members].sum())
    require(total <= available, f"sizes ask for {total} samples of a cluster that has {available}")
    return np.asarray(counts[members])


def _moments(parts: list[Array]) -> tuple[Array, Array]:
    """Return mean and standard deviation over all samples.

    They are taken per channel for samples ``[channels, height, width]``, and over all entries
    otherwise.
    """
    axes = (0, 2, 3) if parts[0].ndim == 4 else None
    count = sum(part.size for part in parts) / (parts[0].shape[1] if axes else 1)
    total = sum(part.sum(axis=axes, dtype=np.float64, keepdims=True) for part in parts)
    mean = np.asarray(total / count)
    squares = sum(
        np.square(part - mean, dtype=np.float64).sum(axis=axes, keepdims=True) for part in parts
    )
    deviation = np.sqrt(squares / count)
    return mean.astype(np.float32), np.maximum(deviation, 1e-8).astype(np.float32)
