"""What all partitioners share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from srfca.errors import InputError, require
from srfca.parameters import check_parameters

Indices = NDArray[np.int64]
Parts = list[Indices]
"""Indices of samples, an array for each client."""

MIN_SAMPLES = 2
"""Minimum number of samples per client, so that one can be held out."""


@dataclass(frozen=True)
class Partitioner(ABC):
    """Deals samples to clients, by their labels or by numbers of samples.

    A subclass is a frozen dataclass with ``deal``. Every sample goes to at most one client, and
    every client gets at least ``MIN_SAMPLES``.

    Raises:
        InputError: If the value of a parameter is not allowed.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class InTurn(Partitioner):
        ...     def deal(self, labels, num_partitions, rng):
        ...         indices = np.arange(len(labels))
        ...         return [indices[indices % num_partitions == i] for i in range(num_partitions)]
        >>> [sorted(part.tolist()) for part in InTurn().partition(np.zeros(6), 2)]
        [[0, 2, 4], [1, 3, 5]]
    """

    def __post_init__(self) -> None:
        check_parameters(self)

    def partition(
        self, labels: ArrayLike, num_partitions: int, rng: np.random.Generator | int = 0
    ) -> Parts:
        """Return the indices of each client's samples, in random order.

        Args:
            labels: Labels, ``[n]``; of any type if the partitioner only looks at their number.
            num_partitions: Number of clients.
            rng: A generator of random numbers, or a seed.

        Returns:
            For each client its indices, ``[n_i]``.

        Raises:
            InputError: If there are too few samples, or the labels do not suit the parameters.
        """
        labels = np.asarray(labels)
        generator = np.random.default_rng(rng)
        require(num_partitions >= 1, f"num_partitions must be at least 1, not {num_partitions}")
        needed = MIN_SAMPLES * num_partitions
        require(
            len(labels) >= needed,
            f"{len(labels)} samples are too few for {num_partitions} clients: each needs "
            f"{MIN_SAMPLES}, {needed} together",
        )
        parts = self.deal(labels, num_partitions, generator)
        sizes = [len(part) for part in parts]
        smallest = int(np.argmin(sizes))
        require(
            sizes[smallest] >= MIN_SAMPLES,
            f"{self} gives client {smallest} {sizes[smallest]} of {len(labels)} samples, but every "
            f"client needs {MIN_SAMPLES}: take fewer clients, or more samples",
        )
        return [generator.permutation(part) for part in parts]

    @abstractmethod
    def deal(self, labels: NDArray[Any], num_partitions: int, rng: np.random.Generator) -> Parts:
        """Return the indices of each client's samples, in any order.

        Args:
            labels: Labels, ``[n]``.
            num_partitions: Number of clients.
            rng: A generator of random numbers.

        Returns:
            For each client its indices, ``[n_i]``.
        """


def samples_by_class(labels: NDArray[Any], rng: np.random.Generator) -> Parts:
    """Return the indices of the samples of each class that occurs, in random order.

    Classes are in ascending order.

    Raises:
        InputError: If the labels are not classes.

    Examples:
        >>> by_class = samples_by_class(np.array([7, 3, 7]), np.random.default_rng(0))
        >>> [sorted(indices.tolist()) for indices in by_class]
        [[1], [0, 2]]
    """
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(
            f"labels must be classes, integers of shape [n], not {labels.dtype} of shape "
            f"{labels.shape}: partition other targets by size"
        )
    order = rng.permutation(len(labels))
    ordered = order[np.argsort(labels[order], kind="stable")]
    counts = np.unique(labels, return_counts=True)[1]
    return np.split(ordered, np.cumsum(counts)[:-1])


def split_by(indices: Indices, counts: NDArray[np.int64]) -> Parts:
    """Return consecutive pieces of these lengths; what is left over is dropped.

    Examples:
        >>> [piece.tolist() for piece in split_by(np.arange(6), np.array([1, 0, 3]))]
        [[0], [], [1, 2, 3]]
    """
    ends = np.cumsum(counts)
    return [indices[end - count : end] for count, end in zip(counts, ends, strict=True)]


def round_to_sum(shares: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Round shares of a total to whole numbers that sum to it, by largest remainders.

    Args:
        shares: Nonnegative numbers with sum 1 along the last axis.
        total: The sum of the rounded numbers.

    Examples:
        >>> round_to_sum(np.array([0.5, 0.3, 0.2]), 4).tolist()
        [2, 1, 1]
    """
    exact = shares * total
    counts = np.floor(exact + 1e-9).astype(np.int64)
    rank = np.argsort(np.argsort(counts - exact, axis=-1, kind="stable"), axis=-1)
    missing = total - counts.sum(axis=-1, keepdims=True)
    return np.asarray(counts + (rank < missing))


def join(pieces: list[Parts]) -> Parts:
    """Concatenate each client's pieces.

    Args:
        pieces: For each class, a piece for each client.
    """
    return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
