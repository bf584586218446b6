"""Partitioners that give different clients different classes: label skew."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from srfca.data.partitioners.base import (
    MIN_SAMPLES,
    Partitioner,
    Parts,
    join,
    round_to_sum,
    samples_by_class,
    split_by,
)
from srfca.data.partitioners.by_size import checked_sizes, sizes_of
from srfca.errors import InputError, require
from srfca.parameters import constrained

ClassAssignment = Literal["random", "deterministic", "first-deterministic"]
"""How clients get their classes."""

_ATTEMPTS = 100
"""How often proportions are drawn until every client has enough samples."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class DirichletPartitioner(Partitioner):
    """Divide the samples of each class among the clients by Dirichlet proportions.

    The proportions are drawn again until every client has enough samples. Clients end up with
    different numbers of samples.

    Args:
        alpha: Concentration. Small values give each client few classes, large values give all
            clients the same shares.
        min_partition_size: Minimum number of samples per client.
        self_balancing: If true, a client that has more than the average number of samples gets
            none of the following classes.

    Raises:
        InputError: If an argument is out of range; in ``partition``, if the draws do not reach
            ``min_partition_size``.

    References:
        Yurochkin et al.: Bayesian Nonparametric Federated Learning of Neural Networks, ICML 2019.

    Examples:
        >>> labels = np.arange(1000) % 10
        >>> parts = DirichletPartitioner(alpha=0.1).partition(labels, 5)
        >>> sum(len(part) for part in parts), min(len(part) for part in parts) >= 10
        (1000, True)
    """

    alpha: float = constrained(more_than=0)
    min_partition_size: int = constrained(10, at_least=MIN_SAMPLES)
    self_balancing: bool = False

    def deal(self, labels: NDArray[Any], num_partitions: int, rng: np.random.Generator) -> Parts:
        """Return the indices of each client's samples."""
        by_class = samples_by_class(labels, rng)
        everybody = np.ones((len(by_class), num_partitions), dtype=bool)
        return _redraw(
            lambda: _divide_classes(by_class, everybody, self.alpha, self.self_balancing, rng),
            self.min_partition_size,
            self.alpha,
        )


@dataclass(frozen=True)
class ExtendedDirichletPartitioner(Partitioner):
    """Allocate classes to clients, then divide each class among its clients by Dirichlet shares.

    Every client gets the same number of classes at random, drawn so that no class has much fewer
    clients than others.

    Args:
        num_classes_per_partition: Number of classes of each client.
        alpha: Concentration of the proportions.
        min_partition_size: Minimum number of samples per client.
        self_balancing: If true, a client that has more than the average number of samples gets
            none of the following classes, if another client can take them.

    Raises:
        InputError: If an argument is out of range; in ``partition``, if there are fewer classes, or
            the draws do not reach ``min_partition_size``.

    References:
        Li, Lyu: Convergence Analysis of Sequential Federated Learning on Heterogeneous Data,
        NeurIPS 2023.

    Examples:
        >>> labels = np.arange(1000) % 10
        >>> parts = ExtendedDirichletPartitioner(2, alpha=1.0).partition(labels, 20)
        >>> max(len(np.unique(labels[part])) for part in parts)
        2
    """

    num_classes_per_partition: int = constrained(at_least=1)
    alpha: float = constrained(more_than=0)
    min_partition_size: int = constrained(10, at_least=MIN_SAMPLES)
    self_balancing: bool = True

    def deal(self, labels: NDArray[Any], num_partitions: int, rng: np.random.Generator) -> Parts:
        """Return the indices of each client's samples."""
        by_class = samples_by_class(labels, rng)
        allocated = _allocate_evenly(
            len(by_class), num_partitions, self.num_classes_per_partition, rng
        )
        return _redraw(
            lambda: _divide_classes(by_class, allocated, self.alpha, self.self_balancing, rng),
            self.min_partition_size,
            self.alpha,
        )


@dataclass(frozen=True)
class InnerDirichletPartitioner(Partitioner):
    """Draw each client's class shares from a Dirichlet distribution, for given numbers of samples.

    Samples are dealt one by one, to a random client, of a class by the client's shares. Classes
    that are used up are skipped.

    Args:
        alpha: Concentration, the same for all classes, or relative to the classes' frequencies.
        partition_sizes: The number of samples of each client, or one number for all; None to deal
            all samples, equally many to each client.
        relative: If true, the concentration of a class is ``alpha`` times its frequency, so that
            they sum to ``alpha``; otherwise every class has the concentration ``alpha``.

    Raises:
        InputError: If an argument is out of range; in ``partition``, if there are too few samples.

    References:
        Acar et al.: Federated Learning Based on Dynamic Regularization, ICLR 2021. With
        ``relative``: Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for
        Federated Visual Classification, 2019.

    Examples:
        >>> labels = np.arange(1000) % 10
        >>> parts = InnerDirichletPartitioner(alpha=0.3, partition_sizes=50).partition(labels, 8)
        >>> [len(part) for part in parts]
        [50, 50, 50, 50, 50, 50, 50, 50]
    """

    alpha: float = constrained(more_than=0)
    partition_sizes: int | tuple[int, ...] | None = None
    relative: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = self.partition_sizes
        if isinstance(sizes, int | np.integer):
            checked_sizes([int(sizes)])
        elif sizes is not None:
            object.__setattr__(self, "partition_sizes", checked_sizes(sizes))

    def deal(self, labels: NDArray[Any], num_partitions: int, rng: np.random.Generator) -> Parts:
        """Return the indices of each client's samples."""
        by_class = samples_by_class(labels, rng)
        left = np.array([len(indices) for indices in by_class])
        sizes = self._sizes(num_partitions, len(labels))
        frequencies = left / left.sum() if self.relative else np.ones(len(left))
        shares = rng.dirichlet(self.alpha * frequencies, num_partitions)
        turns = rng.permutation(np.repeat(np.arange(num_partitions), sizes))
        counts = _draw_classes(shares, left, turns, rng)
        return join([split_by(by_class[c], counts[:, c]) for c in range(len(by_class))])

    def _sizes(self, num_partitions: int, available: int) -> NDArray[np.int64]:
        sizes = self.partition_sizes
        if sizes is None:
            return round_to_sum(np.full(num_partitions, 1 / num_partitions), available)
        listed = (sizes,) * num_partitions if isinstance(sizes, int) else sizes
        return sizes_of(listed, num_partitions, available)


@dataclass(frozen=True)
class PathologicalPartitioner(Partitioner):
    """Give each client a number of classes, and divide each class equally among its clients.

    Args:
        num_classes_per_partition: Number of classes of each client.
        class_assignment_mode: "random"; "deterministic": client i gets the classes i, i + 1, ...,
            modulo their number; "first-deterministic": client i gets class i modulo their number,
            and others at random. Classes that no client gets are not used.

    Raises:
        InputError: If an argument is out of range; in ``partition``, if there are fewer classes.

    References:
        Li et al.: Federated Learning on Non-IID Data Silos: An Experimental Study, ICDE 2022.

    Examples:
        >>> labels = np.arange(100) % 10
        >>> parts = PathologicalPartitioner(2, "deterministic").partition(labels, 10)
        >>> [sorted(set(labels[part].tolist())) for part in parts[:3]]
        [[0, 1], [1, 2], [2, 3]]
    """

    num_classes_per_partition: int = constrained(at_least=1)
    class_assignment_mode: ClassAssignment = "random"

    def deal(self, labels: NDArray[Any], num_partitions: int, rng: np.random.Generator) -> Parts:
        """Return the indices of each client's samples."""
        by_class = samples_by_class(labels, rng)
        _check_enough_classes(self.num_classes_per_partition, len(by_class))
        assigned = self._assign(len(by_class), num_partitions, rng)
        pieces = []
        for indices, clients in zip(by_class, assigned, strict=True):
            counts = np.zeros(num_partitions, dtype=np.int64)
            takers = int(clients.sum())
            if takers:
                counts[clients] = round_to_sum(np.full(takers, 1 / takers), len(indices))
            pieces.append(split_by(indices, counts))
        return join(pieces)

    def _assign(self, num_classes: int, num_partitions: int, rng: np.random.Generator) -> Mask:
        """Return which client gets which class, ``[classes, clients]``."""
        each = self.num_classes_per_partition
        clients = np.arange(num_partitions)
        assigned = np.zeros((num_classes, num_partitions), dtype=bool)
        match self.class_assignment_mode:
            case "deterministic":
                for step in range(each):
                    assigned[(clients + step) % num_classes, clients] = True
            case "first-deterministic":
                for client in range(num_partitions):
                    first = client % num_classes
                    others = np.delete(np.arange(num_classes), first)
                    assigned[[first, *rng.choice(others, each - 1, replace=False)], client] = True
            case "random":
                for client in range(num_partitions):
                    assigned[rng.choice(num_classes, each, replace=False), client] = True
        return assigned


@dataclass(frozen=True)
class ShardPartitioner(Partitioner):
    """Sort the samples by label, cut them into shards, and deal the shards at random.

    Args:
        num_shards_per_partition: Shards of each client; None to deal all shards, as evenly as
            possible.
        shard_size: Samples per shard; None for as many as use all samples.
        keep_incomplete_shard: Whether to deal the last shard too if it is smaller. It has no effect
            if both ``num_shards_per_partition`` and ``shard_size`` are given.

    Raises:
        InputError: If both numbers are None, or out of range; in ``partition``, if there are too
            few samples.

    References:
        McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data,
        AISTATS 2017.

    Examples:
        >>> labels = np.arange(100) % 10
        >>> parts = ShardPartitioner(num_shards_per_partition=2).partition(labels, 5)
        >>> [len(part) for part in parts], max(len(np.unique(labels[part])) for part in parts)
        ([20, 20, 20, 20, 20], 2)
    """

    num_shards_per_partition: int | None = constrained(None, at_least=1)
    shard_size: int | None = constrained(None, at_least=1)
    keep_incomplete_shard: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_shards_per_partition is not None or self.shard_size is not None,
            "ShardPartitioner needs num_shards_per_partition or shard_size",
        )

    def deal(self, labels: NDArray[Any], num_partitions: int, rng: np.random.Generator) -> Parts:
        """Return the indices of each client's samples."""
        ordered = np.concatenate(samples_by_class(labels, rng))
        each, size = self.num_shards_per_partition, self.shard_size
        both = each is not None and size is not None
        size = size or len(ordered) // ((each or 1) * num_partitions)
        require(size >= 1, f"{len(ordered)} samples are too few for {each} shards of each client")
        shards = np.split(ordered, range(size, len(ordered), size))
        if len(shards[-1]) < size and (both or not self.keep_incomplete_shard):
            shards.pop()
        dealt = len(shards) if each is None else each * num_partitions
        require(
            num_partitions <= dealt <= len(shards),
            f"{len(ordered)} samples make {len(shards)} shards of {size}, but "
            f"{max(dealt, num_partitions)} are needed: take smaller shards, or fewer",
        )
        order = rng.permutation(len(shards))[:dealt]
        return [
            np.concatenate([shards[shard] for shard in piece])
            for piece in np.array_split(order, num_partitions)
        ]


def _divide_classes(
    by_class: Parts, eligible: Mask, alpha: float, self_balancing: bool, rng: np.random.Generator
) -> Parts:
    """Divide the samples of each class among its clients by Dirichlet proportions.

    Args:
        by_class: Indices of the samples of each class.
        eligible: Which clients may get a class, ``[classes, clients]``.
        alpha: Concentration.
        self_balancing: Whether clients above the average get none of the following classes.
        rng: Draws the proportions.
    """
    num_clients = eligible.shape[1]
    average = sum(len(indices) for indices in by_class) / num_clients
    sizes = np.zeros(num_clients, dtype=np.int64)
    pieces = []
    for indices, clients in zip(by_class, eligible, strict=True):
        counts = np.zeros(num_clients, dtype=np.int64)
        takers = clients & (sizes < average) if self_balancing else clients
        takers = takers if takers.any() else clients
        if takers.any():
            shares = rng.dirichlet(np.full(int(takers.sum()), alpha))
            counts[takers] = round_to_sum(shares, len(indices))
        sizes += counts
        pieces.append(split_by(indices, counts))
    return join(pieces)


def _redraw(draw: Callable[[], Parts], min_partition_size: int, alpha: float) -> Parts:
    """Draw until every client has enough samples.

    Raises:
        InputError: If that does not happen.
    """
    best = 0
    for _ in range(_ATTEMPTS):
        parts = draw()
        smallest = min(len(part) for part in parts)
        if smallest >= min_partition_size:
            return parts
        best = max(best, smallest)
    total = sum(len(part) for part in parts)
    raise InputError(
        f"alpha={alpha:g} leaves one of {len(parts)} clients with at most {best} of {total} "
        f"samples in {_ATTEMPTS} draws, below min_partition_size={min_partition_size}: raise "
        "alpha, lower min_partition_size, or take fewer clients"
    )


def _allocate_evenly(
    num_classes: int, num_clients: int, each: int, rng: np.random.Generator
) -> Mask:
    """Allocate classes to clients at random, ``[classes, clients]``.

    A draw is accepted if every class has at least a fifth of the average number of clients, and at
    least one if there are enough clients. If that fails too often, each client gets the classes
    that have been allocated least so far.
    """
    _check_enough_classes(each, num_classes)
    slots = each * num_clients
    minimum = max(slots // num_classes // 5, int(slots >= num_classes))
    for _ in range(_ATTEMPTS):
        order = rng.random((num_classes, num_clients)).argsort(axis=0)
        allocated = order < each
        if allocated.sum(axis=1).min() >= minimum:
            return np.asarray(allocated)
    allocated = np.zeros((num_classes, num_clients), dtype=bool)
    for client in range(num_clients):
        used = allocated.sum(axis=1) + rng.random(num_classes) / 2
        allocated[np.argsort(used)[:each], client] = True
    return allocated


def _draw_classes(
    shares: NDArray[np.float64],
    available: NDArray[np.int64],
    turns: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw the class of one sample after another, of classes that are not used up.

    Args:
        shares: Each client's shares of the classes, ``[clients, classes]``.
        available: Number of samples of each class, together at least as many as turns.
        turns: The client that gets each sample.
        rng: Draws the classes.

    Returns:
        The number of samples of each client and class.
    """
    counts = np.zeros(shares.shape, dtype=np.int64)
    left = available.tolist()
    ends: dict[int, list[float]] = {}
    for client, draw in zip(turns.tolist(), rng.random(len(turns)).tolist(), strict=True):
        if client not in ends:
            ends[client] = _cumulated(shares[client], np.array(left))
        cumulated = ends[client]
        chosen = bisect_right(cumulated, draw * cumulated[-1])
        chosen = min(chosen, bisect_left(cumulated, cumulated[-1]))
        counts[client, chosen] += 1
        left[chosen] -= 1
        if not left[chosen]:
            ends.clear()
    return counts


def _cumulated(shares: NDArray[np.float64], left: NDArray[np.int64]) -> list[float]:
    """Return cumulated weights of the classes: the shares of those that have samples left."""
    weights = np.where(left > 0, shares, 0.0)
    if weights.sum() <= 0:
        weights = left.astype(np.float64)
    ends: list[float] = np.cumsum(weights).tolist()
    return ends


def _check_enough_classes(each: int, num_classes: int) -> None:
    require(
        each <= num_classes,
        f"num_classes_per_partition must be at most the {num_classes} classes there are, "
        f"not {each}",
    )
