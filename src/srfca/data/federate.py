"""Any data set times any transforms: a federation with a known partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.clients import ClientData
from srfca.data.transforms import Array, Transform
from srfca.errors import InputError, require, unknown

Sizes = str | int | Sequence[int]
SMALLEST = 2
"""Samples that every client gets, so that one can be held out."""


def federate(
    x: Array,
    y: Array,
    *,
    clients: int,
    clusters: Sequence[Transform],
    shares: Sequence[float] | None = None,
    sizes: Sizes = "balanced",
    test: tuple[Array, Array] | None = None,
    reuse: bool = False,
    standardise: str = "federation",
    seed: int = 0,
) -> ClientData:
    """Deal samples to clients, those of each cluster seeing them through its transform.

    Args:
        x: Samples ``[n, ...]``; integers are taken as pixels from 0 to 255.
        y: Labels ``[n]``.
        clients: How many clients.
        clusters: A transform for each cluster. Clients are dealt to the clusters in turn.
        shares: The fraction of the clients in each cluster; None deals them evenly.
        sizes: Training samples of each client: ``balanced``, ``lognormal`` (very unequal), one
            number for all, or a list with one for each client.
        test: Test samples and labels, dealt in the same way; balanced.
        reuse: Each cluster deals all of the samples among its clients; else every sample goes to
            one client of the federation.
        standardise: Bring each channel (or the whole, where there are none) to mean 0 and standard
            deviation 1 over the training samples of the ``federation``, or of each ``client`` by
            itself (which takes away what a constant shift makes different); or ``no``.
        seed: Decides who gets what.

    >>> from srfca.data.transforms import rotate, unchanged
    >>> x, y = np.zeros((90, 4, 4), np.uint8), np.arange(90) % 3
    >>> federate(x, y, clients=9, clusters=[unchanged, rotate(180)], shares=[2 / 3, 1 / 3])
    ClientData(9 clients, 10 training samples of shape (4, 4), no test data, 2 true clusters)
    """
    require(len(x) == len(y), f"there are {len(x)} samples but {len(y)} labels")
    require(len(clusters) >= 1, "federate needs at least one cluster")
    truth = _truth(clients, len(clusters), shares)
    rng = np.random.default_rng([seed, clients])
    train = _deal(x, y, truth, clusters, sizes, reuse, rng)
    held = None if test is None else _deal(*test, truth, clusters, "balanced", reuse, rng)
    ways = _standards(train, standardise, x.dtype)

    def scaled(dealt: list[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
        return [
            ((part - mean) / deviation, labels)
            for (part, labels), (mean, deviation) in zip(dealt, ways, strict=True)
        ]

    return ClientData.of(scaled(train), None if held is None else scaled(held), truth)


def _standards(
    train: list[tuple[Array, Array]], standardise: str, dtype: np.dtype[Any]
) -> list[tuple[Array, Array]]:
    """What each client subtracts from its samples, and what it divides them by."""
    match standardise:
        case "federation":
            return [_moments([part for part, _ in train])] * len(train)
        case "client":
            return [_moments([part]) for part, _ in train]
        case "no":
            scale = 255 if np.issubdtype(dtype, np.integer) else 1
            return [(np.zeros(1, np.float32), np.full(1, scale, np.float32))] * len(train)
    raise unknown("standardise", standardise, ["federation", "client", "no"])


def _truth(clients: int, clusters: int, shares: Sequence[float] | None) -> NDArray[np.int64]:
    """The cluster of each client: as even as the shares allow, none empty, dealt in turn."""
    require(
        clients >= clusters, f"clients must be at least {clusters} (clusters), but is {clients}"
    )
    if shares is None:
        return np.arange(clients, dtype=np.int64) % clusters
    require(
        len(shares) == clusters and min(shares) > 0 and abs(sum(shares) - 1) < 1e-6,
        f"shares must be {clusters} positive numbers that sum to 1, not {list(shares)}",
    )
    due = np.asarray(shares) * clients
    counts = np.maximum(1, np.floor(due + 1e-9).astype(np.int64))
    while counts.sum() != clients:
        missing = due - counts
        if counts.sum() < clients:
            counts[np.argmax(missing)] += 1
        else:
            counts[np.argmin(np.where(counts > 1, missing, np.inf))] -= 1
    turns = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    return np.repeat(np.arange(clusters), counts)[np.argsort(turns, kind="stable")]


def _deal(
    x: Array,
    y: Array,
    truth: NDArray[np.int64],
    clusters: Sequence[Transform],
    sizes: Sizes,
    reuse: bool,
    rng: np.random.Generator,
) -> list[tuple[Array, Array]]:
    """Each client's samples, as its cluster sees them."""
    order = rng.permutation(len(x))
    dealt: dict[int, tuple[Array, Array]] = {}
    pools = [order] * len(clusters) if reuse else _split(order, np.bincount(truth))
    for cluster, transform in enumerate(clusters):
        members = np.flatnonzero(truth == cluster)
        pool = rng.permutation(pools[cluster]) if reuse else pools[cluster]
        seen, labels = transform(x[pool], y[pool])
        counts = _counts(sizes, members, len(seen), len(truth), rng)
        ends = np.cumsum(counts)
        for member, start, end in zip(members, ends - counts, ends, strict=True):
            dealt[int(member)] = np.ascontiguousarray(seen[start:end]), labels[start:end]
    return [dealt[client] for client in range(len(truth))]


def _split(order: NDArray[np.int64], weights: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    ends = np.floor(np.cumsum(weights) / weights.sum() * len(order) + 1e-9).astype(np.int64)
    return np.split(order, ends[:-1])


def _counts(
    sizes: Sizes,
    members: NDArray[np.int64],
    available: int,
    clients: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """How many of a cluster's samples each of its clients gets."""
    count = len(members)
    require(
        available >= SMALLEST * count,
        f"a cluster has {available} samples for its {count} clients: too few",
    )
    match sizes:
        case "balanced":
            return np.array([len(part) for part in np.array_split(np.arange(available), count)])
        case "lognormal":
            weights = rng.lognormal(size=count)
            spare = available - SMALLEST * count
            extra = np.floor(spare * weights / weights.sum())
            return np.asarray(SMALLEST + extra, dtype=np.int64)
        case int() | np.integer():
            wanted = np.full(clients, sizes, dtype=np.int64)
        case str():
            raise InputError(
                f"sizes must be 'balanced', 'lognormal', a number or a list, not {sizes!r}"
            )
        case _:
            wanted = np.asarray(sizes, dtype=np.int64)
    require(len(wanted) == clients, f"there are {len(wanted)} sizes for {clients} clients")
    require(bool((wanted >= SMALLEST).all()), f"every client needs at least {SMALLEST} samples")
    asked = int(wanted[members].sum())
    require(asked <= available, f"sizes ask for {asked} samples of a cluster that has {available}")
    return np.asarray(wanted[members])


def _moments(parts: list[Array]) -> tuple[Array, Array]:
    """Mean and deviation of each channel over all samples; of the whole where samples are flat."""
    axes = (0, 2, 3) if parts[0].ndim == 4 else None
    count = sum(part.size for part in parts) / (parts[0].shape[1] if axes else 1)
    total = sum(part.sum(axis=axes, dtype=np.float64, keepdims=True) for part in parts)
    mean = np.asarray(total / count)
    squares = sum(
        np.square(part - mean, dtype=np.float64).sum(axis=axes, keepdims=True) for part in parts
    )
    deviation = np.sqrt(squares / count)
    return mean.astype(np.float32), np.maximum(deviation, 1e-8).astype(np.float32)
