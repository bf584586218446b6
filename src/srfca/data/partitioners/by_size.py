"""Partitioners that look at numbers of samples alone: quantity skew."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.partitioners.base import MIN_SAMPLES, Partitioner, Parts, round_to_sum, split_by
from srfca.errors import require


@dataclass(frozen=True)
class IidPartitioner(Partitioner):
    """Deal all samples at random, equally many to each client.

    Examples:
        >>> [len(part) for part in IidPartitioner().partition([0] * 10, 3)]
        [4, 3, 3]
    """

    def deal(self, labels: NDArray[Any], num_partitions: int, rng: np.random.Generator) -> Parts:
        """Return the indices of each client's samples."""
        return np.array_split(rng.permutation(len(labels)), num_partitions)


@dataclass(frozen=True)
class SizePartitioner(Partitioner):
    """Deal a given number of samples to each client, at random.

    Args:
        partition_sizes: The number of samples of each client.

    Raises:
        InputError: If a number is below ``MIN_SAMPLES``.

    Examples:
        >>> [len(part) for part in SizePartitioner((2, 5)).partition([0] * 10, 2)]
        [2, 5]
    """

    partition_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "partition_sizes", checked_sizes(self.partition_sizes))

    def deal(self, labels: NDArray[Any], num_partitions: int, rng: np.random.Generator) -> Parts:
        """Return the indices of each client's samples."""
        counts = sizes_of(self.partition_sizes, num_partitions, len(labels))
        return split_by(rng.permutation(len(labels)), counts)


@dataclass(frozen=True)
class _IdToSizePartitioner(Partitioner):
    """Deal all samples at random; how many depends on the client's position i = 1, ..., m.

    Every client gets ``MIN_SAMPLES``, and a share of the others that is proportional to its weight.
    """

    @abstractmethod
    def weights(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the clients' weights.

        Args:
            positions: 1, ..., m.
        """

    def deal(self, labels: NDArray[Any], num_partitions: int, rng: np.random.Generator) -> Parts:
        """Return the indices of each client's samples."""
        weights = self.weights(np.arange(1.0, num_partitions + 1))
        spare = len(labels) - MIN_SAMPLES * num_partitions
        counts = MIN_SAMPLES + round_to_sum(weights / weights.sum(), spare)
        return split_by(rng.permutation(len(labels)), counts)


class LinearPartitioner(_IdToSizePartitioner):
    """Deal all samples; client i = 1, ..., m gets a number proportional to i.

    Every client gets at least ``MIN_SAMPLES``.

    Examples:
        >>> [len(part) for part in LinearPartitioner().partition([0] * 106, 3)]
        [19, 35, 52]
    """

    def weights(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the clients' weights."""
        return positions


class SquarePartitioner(_IdToSizePartitioner):
    """Deal all samples; client i = 1, ..., m gets a number proportional to i squared.

    Every client gets at least ``MIN_SAMPLES``.

    Examples:
        >>> [len(part) for part in SquarePartitioner().partition([0] * 146, 3)]
        [12, 42, 92]
    """

    def weights(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the clients' weights."""
        return np.square(positions)


class ExponentialPartitioner(_IdToSizePartitioner):
    """Deal all samples; client i = 1, ..., m gets a number proportional to exp(i).

    Every client gets at least ``MIN_SAMPLES``.

    Examples:
        >>> [len(part) for part in ExponentialPartitioner().partition([0] * 106, 3)]
        [11, 26, 69]
    """

    def weights(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the clients' weights, up to a factor that avoids overflow."""
        return np.asarray(np.exp(positions - positions[-1]))


def checked_sizes(partition_sizes: Iterable[int]) -> tuple[int, ...]:
    """Return numbers of samples as a tuple.

    Raises:
        InputError: If one is below ``MIN_SAMPLES``.
    """
    sizes = tuple(int(size) for size in partition_sizes)
    require(
        min(sizes, default=MIN_SAMPLES) >= MIN_SAMPLES,
        f"partition_sizes must be at least {MIN_SAMPLES} each, but one is {min(sizes, default=0)}",
    )
    return sizes


def sizes_of(
    partition_sizes: tuple[int, ...], num_partitions: int, available: int
) -> NDArray[np.int64]:
    """Return the numbers of samples of all clients.

    Raises:
        InputError: If there are not as many sizes as clients, or they ask for too many samples.
    """
    require(
        len(partition_sizes) == num_partitions,
        f"there are {len(partition_sizes)} partition_sizes for {num_partitions} clients",
    )
    total = sum(partition_sizes)
    require(
        total <= available,
        f"partition_sizes ask for {total} samples, but there are {available}",
    )
    return np.asarray(partition_sizes, dtype=np.int64)
