"""Deal the samples of a data set to clients, with a known true partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from srfca.data.client_data import ClientData
from srfca.data.transforms import Array, Transform
from srfca.errors import InputError, require, unknown
from srfca.parameters import choices

SizeRule = Literal["balanced", "lognormal"]
"""How many samples each client gets: equally many, or log-normally distributed numbers."""
Sizes = SizeRule | int | Sequence[int]
"""A rule, one number for all clients, or a number for each client."""
Standardization = Literal["federation", "client", "no"]
"""Whose training samples are brought to mean 0 and standard deviation 1."""

MIN_SAMPLES = 2
"""Minimum number of samples per client, so that one can be held out."""


def federate(
    x: Array,
    y: Array,
    *,
    num_clients: int,
    clusters: Sequence[Transform],
    shares: Sequence[float] | None = None,
    sizes: Sizes = "balanced",
    test: tuple[Array, Array] | None = None,
    reuse: bool = False,
    standardize: Standardization = "federation",
    seed: int = 0,
) -> ClientData:
    """Deal samples to clients and apply each cluster's transform to its clients' samples.

    Args:
        x: Samples, ``[n, ...]``; integers are taken as pixels from 0 to 255.
        y: Labels, ``[n]``.
        num_clients: Number of clients.
        clusters: A transform for each cluster. Clients are assigned to the clusters in turn.
        shares: The fraction of the clients in each cluster; None for equal fractions.
        sizes: Training samples per client: "balanced", "lognormal" (very unequal), one number for
            all clients, or a list with a number for each client.
        test: Test samples and labels, dealt in the same way and always balanced.
        reuse: If true, each cluster deals all samples among its clients; otherwise every sample
            goes to at most one client of the federation.
        standardize: Bring each channel (or all entries together, without channels) to mean 0 and
            standard deviation 1: over the training samples of the whole "federation", or of each
            "client" separately (which removes a constant shift between clients). "no" only scales
            integers to [0, 1].
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
    """
    require(len(x) == len(y), f"there are {len(x)} samples but {len(y)} labels")
    require(len(clusters) >= 1, "federate needs at least one cluster")
    truth = _assign_clusters(num_clients, len(clusters), shares)
    rng = np.random.default_rng([seed, num_clients])
    train_parts = _deal(x, y, truth, clusters, sizes, reuse, rng)
    test_parts = None if test is None else _deal(*test, truth, clusters, "balanced", reuse, rng)
    moments = _moments_by_client(train_parts, standardize, x.dtype)

    def scaled(parts: list[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
        return [
            ((samples - mean) / deviation, labels)
            for (samples, labels), (mean, deviation) in zip(parts, moments, strict=True)
        ]

    return ClientData.from_arrays(
        scaled(train_parts), None if test_parts is None else scaled(test_parts), truth
    )


def _moments_by_client(
    parts: list[tuple[Array, Array]], standardize: str, dtype: np.dtype[Any]
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
    require(
        num_clients >= num_clusters,
        f"num_clients must be at least {num_clusters} (clusters), not {num_clients}",
    )
    if shares is None:
        return np.arange(num_clients, dtype=np.int64) % num_clusters
    require(
        len(shares) == num_clusters and min(shares) > 0 and abs(sum(shares) - 1) < 1e-6,
        f"shares must be {num_clusters} positive numbers that sum to 1, not {list(shares)}",
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


def _deal(
    x: Array,
    y: Array,
    truth: NDArray[np.int64],
    clusters: Sequence[Transform],
    sizes: Sizes,
    reuse: bool,
    rng: np.random.Generator,
) -> list[tuple[Array, Array]]:
    """Return each client's samples and labels, transformed."""
    order = rng.permutation(len(x))
    parts: dict[int, tuple[Array, Array]] = {}
    pools = [order] * len(clusters) if reuse else _split(order, np.bincount(truth))
    for cluster, transform in enumerate(clusters):
        members = np.flatnonzero(truth == cluster)
        pool = rng.permutation(pools[cluster]) if reuse else pools[cluster]
        transformed, labels = transform(x[pool], y[pool])
        counts = _sample_counts(sizes, members, len(transformed), len(truth), rng)
        ends = np.cumsum(counts)
        for member, start, end in zip(members, ends - counts, ends, strict=True):
            samples = np.ascontiguousarray(transformed[start:end])
            parts[int(member)] = samples, labels[start:end]
    return [parts[client] for client in range(len(truth))]


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
    require(
        available >= MIN_SAMPLES * num_members,
        f"a cluster has {available} samples for its {num_members} clients: too few",
    )
    if isinstance(sizes, str) and sizes not in choices(SizeRule):
        rules = ", ".join(repr(rule) for rule in choices(SizeRule))
        raise InputError(f"sizes must be {rules}, a number or a list, not {sizes!r}")
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
