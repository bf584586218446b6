"""Improve clusters of many small graphs in one compiled call. Needs numba."""

from __future__ import annotations

from functools import partial
from typing import Any

import numba
import numpy as np

_compiled: Any = partial(numba.njit, cache=True, nogil=True)


@_compiled
def improve_all(graphs, labels):
    """Return what ``dense_graphs.improve_all`` returns: ``[g, m]``.

    Args:
        graphs: ``[g, m, m]``, symmetric.
        labels: ``[g, m]``, where to start.
    """
    labels = labels.copy()
    number, count = labels.shape
    edges, sizes = np.empty((count, count + 1)), np.empty(count + 1)
    for g in range(number):
        edges[:], sizes[:] = 0, 0
        for member in range(count):
            cluster = labels[g, member]
            sizes[cluster] += 1
            for vertex in range(count):
                edges[vertex, cluster] += graphs[g, member, vertex]
        while _sweep(graphs[g], labels[g], edges, sizes):
            pass
    return labels


@_compiled
def _sweep(graph, labels, edges, sizes):
    """Move each vertex to its best cluster, in place; return whether any has moved."""
    moved = False
    for vertex in range(len(labels)):
        current = labels[vertex]
        stay = edges[vertex, current] - sizes[current] + 1  # without the vertex itself
        best, most = current, stay
        for cluster in range(len(sizes)):
            gain = edges[vertex, cluster] - sizes[cluster]
            if cluster != current and gain > most:
                best, most = cluster, gain
        if best == current:
            continue
        moved = True
        labels[vertex] = best
        sizes[current] -= 1
        sizes[best] += 1
        for other in range(len(labels)):
            edges[other, current] -= graph[vertex, other]
            edges[other, best] += graph[vertex, other]
    return moved
