"""Clusters of a graph: correlation clustering, connected components, cliques.

A graph is a sparse adjacency matrix. It may be directed (a one-sided distance gives such): then the
pivot's own arrows decide, components take either direction, and cliques need both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from srfca.clustering.partition import Labels, Partition
from srfca.errors import unknown

Graph: TypeAlias = sparse.csr_array
Order = NDArray[np.int64]

RESTARTS = 10
_COUNTED = 2**20
"""Pairs of a vertex and a cluster whose edges are counted at once."""


def threshold_graph(distances: NDArray[np.floating] | sparse.sparray, threshold: float) -> Graph:
    """The graph with an edge where ``distance <= threshold``; in a sparse matrix, absent is far."""
    if sparse.issparse(distances):
        edges = sparse.coo_array(distances)
        near = (edges.data <= threshold) & (edges.row != edges.col)
        ones = np.ones(int(near.sum()), dtype=np.int64)
        return sparse.csr_array((ones, (edges.row[near], edges.col[near])), shape=edges.shape)
    near = np.asarray(distances) <= threshold
    np.fill_diagonal(near, False)
    return sparse.csr_array(near.astype(np.int64))


Near = Callable[[int, Labels], NDArray[np.bool_]]
"""Which of some vertices a vertex has an edge to."""


def pivots(near: Near, order: Order, least: int = 1, patience: int | None = None) -> Labels:
    """Correlation clustering by pivots (Ailon, Charikar, Newman, 2008), asking for few edges.

    The first vertex of ``order`` that is still free takes its free neighbours along: C clusters
    are found by asking for about C edges of each vertex. A random order costs at most three times
    the optimum in expectation. After ``patience`` clusters in a row of fewer than ``least``
    vertices, what is still free stays single, and nothing more is asked.
    """
    labels = np.full(len(order), -1, dtype=np.int64)
    free = np.asarray(order)
    small = 0
    while len(free) and small != patience:
        vertex, others = int(free[0]), free[1:]
        joined = near(vertex, others)
        labels[vertex] = vertex
        labels[others[joined]] = vertex
        free = others[~joined]
        small = small + 1 if joined.sum() + 1 < least else 0
    labels[free] = free
    return labels


def pivot(graph: Graph, order: Order) -> Labels:
    """``pivots`` of a graph; only the rows of the pivots are read."""

    def near(vertex: int, others: Labels) -> NDArray[np.bool_]:
        joined = np.zeros(graph.shape[0], dtype=bool)
        joined[graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]] = True
        return np.asarray(joined[others])

    return pivots(near, order)


def disagreements(graph: Graph, labels: Labels) -> float:
    """Pairs that the graph joins and the labels part, or the other way round.

    In a directed graph each direction of a pair counts for half.
    """
    source = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    inside = int((labels[source] == labels[graph.indices]).sum())
    sizes = np.unique(labels, return_counts=True)[1]
    return float((graph.nnz - inside) + (sizes * (sizes - 1)).sum() - inside) / 2


def improve(graph: Graph, labels: Labels) -> Labels:
    """Move single vertices while that lowers the disagreements: one after another, round by round.

    A vertex with ``e`` edges into a cluster of ``s`` other vertices agrees with it to ``2e - s``; a
    cluster of its own is worth 0. ``graph`` has both directions of its edges, with weights that are
    their sum.
    """
    labels = np.unique(labels, return_inverse=True)[1]
    count = len(labels)
    sizes = np.bincount(labels, minlength=count + 1)
    while (first := _first_to_move(graph, labels, sizes)) is not None:
        for vertex in range(first, count):
            span = slice(graph.indptr[vertex], graph.indptr[vertex + 1])
            edges = np.bincount(
                labels[graph.indices[span]], weights=graph.data[span], minlength=count + 1
            )
            own = labels[vertex]
            sizes[own] -= 1
            gain = edges - sizes
            best = int(gain.argmax())
            if gain[best] > gain[own]:
                labels[vertex] = own = best
            sizes[own] += 1
    return labels


def _first_to_move(graph: Graph, labels: Labels, sizes: Labels) -> int | None:
    """The first vertex that agrees better with another cluster, or with none, than with its own."""
    count, clusters = len(labels), int(labels.max(initial=0)) + 1
    together = max(1, _COUNTED // clusters)
    for start in range(0, count, together):
        own = labels[start : start + together]
        ends = graph.indptr[start : start + together + 1]
        vertex = np.repeat(np.arange(len(own)), np.diff(ends))
        into = vertex * clusters + labels[graph.indices[ends[0] : ends[-1]]]
        weights = graph.data[ends[0] : ends[-1]]
        edges = np.bincount(into, weights=weights, minlength=len(own) * clusters)
        gain = edges.reshape(len(own), clusters) - sizes[:clusters]
        moves = gain.max(1).clip(min=0) > gain[np.arange(len(own)), own] + 1
        if moves.any():
            return start + int(moves.argmax())
    return None


def correlation(graph: Graph, seed: int = 0, restarts: int = RESTARTS) -> Labels:
    """Correlation clustering: the best of several random pivot orders, improved by local moves."""
    rng = np.random.default_rng(seed)
    both = sparse.csr_array(graph + graph.T)
    orders = (rng.permutation(graph.shape[0]) for _ in range(restarts))
    found = [improve(both, pivot(graph, order)) for order in orders]
    return min(found, key=lambda labels: disagreements(graph, labels))


def components(graph: Graph) -> Labels:
    """Connected components."""
    return np.asarray(
        sparse.csgraph.connected_components(graph, directed=True, connection="weak")[1],
        dtype=np.int64,
    )


def cliques(graph: Graph) -> Labels:
    """Disjoint cliques, taken greedily: each grows from the free vertex of highest degree."""
    mutual = (graph.multiply(graph.T)).toarray() > 0
    labels = np.full(len(mutual), -1, dtype=np.int64)
    by_degree = np.argsort(-mutual.sum(axis=1), kind="stable")
    for vertex in by_degree:
        if labels[vertex] >= 0:
            continue
        candidates = mutual[vertex] & (labels < 0)
        labels[vertex] = vertex
        for other in by_degree:
            if candidates[other]:
                labels[other] = vertex
                candidates &= mutual[other]
    return labels


GRAPH_CLUSTERINGS = ("correlation", "components", "cliques")


def cluster_graph(
    graph: Graph, method: str = "correlation", seed: int = 0, restarts: int = RESTARTS
) -> Partition:
    """Clusters of a graph by one of ``GRAPH_CLUSTERINGS``."""
    match method:
        case "correlation":
            return Partition(correlation(graph, seed, restarts))
        case "components":
            return Partition(components(graph))
        case "cliques":
            return Partition(cliques(graph))
    raise unknown("graph clustering", method, GRAPH_CLUSTERINGS)
