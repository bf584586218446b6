"""Correlation clustering of many small graphs at once, equal to that of each alone.

An automatic threshold clusters the graphs of some fifty candidates. One after another, a few dozen
vertices cost little but overhead; here every step is taken in all graphs together. With numba, the
step that takes the time is compiled, with the same result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.partition import Indices, Labels
from srfca.registry import is_installed

MAX_VERTICES = 128
"""Larger graphs are clustered one by one, as sparse matrices."""

Adjacency = NDArray[np.bool_]
"""Graphs ``[g, m, m]`` without loops."""


def correlation_clustering_of_all(graphs: Adjacency, seed: int, restarts: int) -> Labels:
    """Return for each graph what ``correlation_clustering`` returns: ``[g, m]``.

    Labels count from 0, in the order of ``correlation_clustering``.

    Examples:
        >>> pair = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=bool)
        >>> correlation_clustering_of_all(np.stack([pair, ~pair & ~np.eye(3, dtype=bool)]), 0, 1)
        array([[0, 0, 1],
               [0, 0, 0]])
    """
    rng = np.random.default_rng(seed)
    both_directions = graphs.astype(np.float64) + graphs.transpose(0, 2, 1)
    best = np.zeros(graphs.shape[:2], dtype=np.int64)
    fewest = np.full(len(graphs), np.inf)
    for _ in range(restarts):
        order = rng.permutation(graphs.shape[1])
        labels = _fastest_improve_all()(both_directions, pivot_all(graphs, order))
        wrong = disagreements_of_all(graphs, labels)
        better = wrong < fewest
        best[better], fewest[better] = labels[better], wrong[better]
    return best


@cache
def _fastest_improve_all() -> Callable[[NDArray[np.float64], Labels], Labels]:
    """Return the compiled ``improve_all``, or that of this module if numba is not there."""
    if is_installed("numba"):
        try:
            from srfca.clustering import numba_graphs
        except ImportError as error:
            warnings.warn(f"clustering without numba, which fails to import: {error}", stacklevel=2)
        else:
            return numba_graphs.improve_all  # type: ignore[no-any-return]
    return improve_all


def pivot_all(graphs: Adjacency, order: Indices) -> Labels:
    """Return ``pivot`` of every graph ``[g, m, m]``; labels count from 0, by pivot: ``[g, m]``."""
    labels = np.full(graphs.shape[:2], -1, dtype=np.int64)
    for vertex in order:
        is_pivot = labels[:, vertex] < 0
        joined = graphs[is_pivot, vertex] & (labels[is_pivot] < 0)
        joined[:, vertex] = True
        labels[is_pivot] = np.where(joined, vertex, labels[is_pivot])
    pivots = labels == np.arange(graphs.shape[1])
    numbers = pivots.cumsum(1) - 1
    return np.asarray(np.take_along_axis(numbers, labels, 1))


def disagreements_of_all(graphs: Adjacency, labels: Labels) -> NDArray[np.float64]:
    """Return the ``disagreements`` of every graph ``[g, m, m]`` with its labels: ``[g]``."""
    same = labels[:, :, None] == labels[:, None, :]
    count = graphs.shape[1]
    return np.asarray((graphs != same).sum((1, 2)) - count, dtype=np.float64) / 2


def improve_all(graphs: NDArray[np.float64], labels: Labels) -> Labels:
    """Return what ``improve`` returns for every graph: ``[g, m]``.

    Args:
        graphs: ``[g, m, m]``, symmetric.
        labels: ``[g, m]``, where to start.
    """
    number, count = labels.shape
    labels = labels.copy()
    members = (labels[:, :, None] == np.arange(count + 1)).astype(np.float64)
    edges = graphs @ members  # [g, m, m + 1]: of each vertex to each cluster
    sizes = members.sum(1)
    everyone = np.arange(number)
    while True:
        gain = edges - sizes[:, None]
        stay = np.take_along_axis(gain, labels[..., None], 2)[..., 0]
        moves = gain.max(2) > stay + 1
        first = np.where(moves.any(1), moves.argmax(1), count)
        if first.min(initial=count) == count:
            return labels
        for vertex in range(int(first.min()), count):
            chosen = everyone[first <= vertex]
            current = labels[chosen, vertex]
            gain_here = edges[chosen, vertex] - sizes[chosen]
            gain_here[np.arange(len(chosen)), current] += 1  # without the vertex itself
            best = gain_here.argmax(1)
            position = np.arange(len(chosen))
            moved = gain_here[position, best] > gain_here[position, current]
            for graph, before, after in zip(
                chosen[moved], current[moved], best[moved], strict=True
            ):
                labels[graph, vertex] = after
                sizes[graph, before] -= 1
                sizes[graph, after] += 1
                edges[graph, :, before] -= graphs[graph, :, vertex]
                edges[graph, :, after] += graphs[graph, :, vertex]
