"""Deal test samples so that each client's have the labels of its training samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from srfca.data.partitioners.base import Parts, join, samples_by_class, split_by
from srfca.errors import require


def matching_partition(
    client_labels: Sequence[ArrayLike],
    labels: ArrayLike,
    rng: np.random.Generator | int = 0,
) -> Parts:
    """Deal samples to clients that already have others, with the same shares of the classes.

    All clients get the same number of samples, as large as the classes allow. Labels that are not
    integers are taken as one class.

    Args:
        client_labels: Labels of the samples that each client has.
        labels: Labels of the samples to deal, ``[n]``.
        rng: A generator of random numbers, or a seed.

    Returns:
        The indices of each client's samples, in random order; every sample goes to at most one
        client.

    Raises:
        InputError: If the classes do not suffice for one sample per client.

    Examples:
        >>> parts = matching_partition([[0, 0, 0, 1], [1, 1]], [0, 1] * 10)
        >>> [np.bincount(np.array([0, 1] * 10)[part]).tolist() for part in parts]
        [[6, 2], [0, 8]]
    """
    generator = np.random.default_rng(rng)
    pool = _classes(np.asarray(labels))
    held = [_classes(np.asarray(client)) for client in client_labels]
    require(len(pool) >= len(held), f"there are {len(pool)} test samples for {len(held)} clients")
    classes = np.unique(np.concatenate(held))
    shares = np.stack([_shares(client, classes) for client in held])
    indices = dict(zip(np.unique(pool).tolist(), samples_by_class(pool, generator), strict=True))
    by_class = [indices.get(int(label), np.zeros(0, np.int64)) for label in classes]
    available = np.array([len(members) for members in by_class])
    counts = _counts(shares, available, generator)
    scarce = int(np.argmin(available / shares.sum(axis=0)))
    require(
        counts is not None,
        f"there are too few test samples for {len(held)} clients with the labels of their training "
        f"samples: {available[scarce]} of class {classes[scarce]}, {len(pool)} in all",
    )
    assert counts is not None
    parts = join([split_by(by_class[c], counts[:, c]) for c in range(len(classes))])
    return [generator.permutation(part) for part in parts]


def _classes(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return labels that are classes, and zeros for others."""
    if labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer):
        return labels.astype(np.int64)
    return np.zeros(len(labels), dtype=np.int64)


def _shares(labels: NDArray[np.int64], classes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the fraction of each class."""
    counts = np.bincount(np.searchsorted(classes, labels), minlength=len(classes))
    return np.asarray(counts / len(labels))


def _counts(
    shares: NDArray[np.float64], available: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64] | None:
    """Return the number of samples of each client and class, None if there are too few.

    Args:
        shares: Each client's shares of the classes, ``[clients, classes]``.
        available: Number of samples of each class.
        rng: Draws how the clients' shares are rounded.
    """
    num_clients = len(shares)
    offsets = rng.permutation((np.arange(num_clients) + 0.5) / num_clients)
    size = int((available / shares.sum(axis=0)).min() + 1e-9)
    while size >= 1:
        counts = _round_evenly(shares, size, offsets)
        if (counts.sum(axis=0) <= available).all():
            return counts
        size -= 1
    return None


def _round_evenly(
    shares: NDArray[np.float64], size: int, offsets: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Round each client's shares of a number of samples to whole numbers with this sum.

    Every number is rounded up or down. Evenly spaced offsets, one for each client, make the sums
    over clients nearly right.
    """
    ends = np.cumsum(shares, axis=1) * size
    ends[:, -1] = size
    ends_rounded = np.floor(ends + offsets[:, None] + 1e-9).astype(np.int64)
    return np.diff(ends_rounded, axis=1, prepend=0)
