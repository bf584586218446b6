"""Clusters of a graph: correlation clustering, connected components, cliques.

A graph is a sparse adjacency matrix. It may be directed, as the graph of a one-sided distance is:
then pivots follow outgoing edges, components ignore directions, and cliques need both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from srfca.clustering.partition import Indices, Labels, Partition
from srfca.errors import unknown

Graph: TypeAlias = sparse.csr_array

GraphClustering = Literal["correlation", "components", "cliques"]
"""How the vertices of a graph become clusters."""
GRAPH_CLUSTERINGS: tuple[GraphClustering, ...] = get_args(GraphClustering)

HasEdges = Callable[[int, Indices], NDArray[np.bool_]]
"""From a vertex and other vertices ``[n]`` to whether there is an edge to each: ``[n]``."""

RESTARTS = 10
"""Random pivot orders that correlation clustering tries."""
_COUNTED_PAIRS = 2**20
"""Pairs of a vertex and a cluster whose edges are counted at once."""


def threshold_graph(distances: NDArray[np.floating] | sparse.sparray, threshold: float) -> Graph:
    """Return the graph with an edge wherever ``distance <= threshold``.

    Args:
        distances: ``[m, m]``, dense or sparse. An entry that a sparse matrix does not store is
            no edge. The diagonal is ignored.
        threshold: Largest distance of an edge.

    Returns:
        The adjacency matrix ``[m, m]``.

    Examples:
        >>> threshold_graph(np.array([[0, 1, 5], [1, 0, 5], [5, 5, 0]]), 2).toarray().tolist()
        [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    """
    if sparse.issparse(distances):
        entries = sparse.coo_array(distances)
        is_edge = (entries.data <= threshold) & (entries.row != entries.col)
        ones = np.ones(int(is_edge.sum()), dtype=np.int64)
        ends = (entries.row[is_edge], entries.col[is_edge])
        return sparse.csr_array((ones, ends), shape=entries.shape)
    is_edge = np.asarray(distances) <= threshold
    np.fill_diagonal(is_edge, False)
    return sparse.csr_array(is_edge.astype(np.int64))


def cluster_graph(
    graph: Graph,
    method: GraphClustering = "correlation",
    seed: int = 0,
    restarts: int = RESTARTS,
) -> Partition:
    """Cluster the vertices of a graph.

    Args:
        graph: Adjacency matrix ``[m, m]``.
        method: ``correlation``, ``components`` or ``cliques``.
        seed: Seed of the pivot orders of correlation clustering.
        restarts: Number of these orders; 0 is a single one, without local moves.

    Returns:
        A partition of all m vertices.

    Raises:
        InputError: If there is no such method.

    Examples:
        >>> path = threshold_graph(np.array([[0, 1, 9], [1, 0, 1], [9, 1, 0]]), 2)
        >>> cluster_graph(path, "components")
        Partition(3 in cluster 0)
        >>> cluster_graph(path, "cliques")
        Partition(2 in cluster 0, 1 in cluster 1)
    """
    match method:
        case "correlation":
            return Partition(correlation_clustering(graph, seed, restarts))
        case "components":
            return Partition(connected_components(graph))
        case "cliques":
            return Partition(greedy_cliques(graph))
    raise unknown("graph clustering", method, GRAPH_CLUSTERINGS)


def correlation_clustering(graph: Graph, seed: int = 0, restarts: int = RESTARTS) -> Labels:
    """Return the best labels ``[m]`` of several random pivot orders, improved by local moves.

    "Best" means fewest ``disagreements``; the first order wins a tie. With no restarts it is one
    pass of pivots, as they are: the randomized approximation algorithm.
    """
    rng = np.random.default_rng(seed)
    if not restarts:
        return pivot_graph(graph, rng.permutation(graph.shape[0]))
    both_directions = sparse.csr_array(graph + graph.T)
    orders = (rng.permutation(graph.shape[0]) for _ in range(restarts))
    solutions = [improve(both_directions, pivot_graph(graph, order)) for order in orders]
    return min(solutions, key=lambda labels: disagreements(graph, labels))


def pivot(
    has_edges: HasEdges, order: Indices, min_size: int = 1, patience: int | None = None
) -> Labels:
    """Cluster by pivots (Ailon, Charikar, Newman, 2008), querying few edges.

    The first unassigned vertex of ``order`` is a pivot: it forms a cluster with its unassigned
    neighbors. C clusters need about C edge queries per vertex. A random order has at most three
    times the optimal number of disagreements in expectation.

    Args:
        has_edges: Answers which of some vertices a vertex has an edge to.
        order: ``[m]``, a permutation of the vertices.
        min_size: Clusters of fewer vertices count as small for ``patience``.
        patience: Stop after this many small clusters in a row; every vertex that is still
            unassigned then becomes a cluster of one. None never stops early.

    Returns:
        Labels ``[m]``: each vertex has the number of its pivot.
    """
    labels = np.full(len(order), -1, dtype=np.int64)
    unassigned = np.asarray(order)
    num_small = 0
    while len(unassigned) and num_small != patience:
        vertex, candidates = int(unassigned[0]), unassigned[1:]
        joined = has_edges(vertex, candidates)
        labels[vertex] = vertex
        labels[candidates[joined]] = vertex
        unassigned = candidates[~joined]
        num_small = num_small + 1 if joined.sum() + 1 < min_size else 0
    labels[unassigned] = unassigned
    return labels


def pivot_graph(graph: Graph, order: Indices) -> Labels:
    """Return ``pivot`` of a graph ``[m, m]``, reading only the rows of the pivots: ``[m]``."""

    def has_edges(vertex: int, candidates: Indices) -> NDArray[np.bool_]:
        is_neighbor = np.zeros(graph.shape[0], dtype=bool)
        is_neighbor[graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]] = True
        return np.asarray(is_neighbor[candidates])

    return pivot(has_edges, order)


def disagreements(graph: Graph, labels: Labels) -> float:
    """Count edges across clusters and missing edges inside clusters.

    In a directed graph each direction of a pair counts one half.
    """
    source = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    inside = int((labels[source] == labels[graph.indices]).sum())
    sizes = np.unique(labels, return_counts=True)[1]
    return float((graph.nnz - inside) + (sizes * (sizes - 1)).sum() - inside) / 2


def improve(graph: Graph, labels: Labels) -> Labels:
    """Move single vertices between clusters while that lowers the disagreements.

    Vertices move one after another, in sweeps. A vertex with ``e`` edges to a cluster of ``s``
    other vertices gains ``2e - s`` there; a new cluster of its own is worth 0.

    Args:
        graph: ``[m, m]``, symmetric: the sum of a graph and its transpose.
        labels: ``[m]``, where to start.

    Returns:
        Labels ``[m]`` that no single move improves.
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
            current = labels[vertex]
            sizes[current] -= 1
            gain = edges - sizes
            best = int(gain.argmax())
            if gain[best] > gain[current]:
                labels[vertex] = current = best
            sizes[current] += 1
    return labels


def _first_to_move(graph: Graph, labels: Labels, sizes: NDArray[np.int64]) -> int | None:
    """Return the first vertex that gains by a move, None if there is none."""
    count, clusters = len(labels), int(labels.max(initial=0)) + 1
    block = max(1, _COUNTED_PAIRS // clusters)
    for start in range(0, count, block):
        current = labels[start : start + block]
        ends = graph.indptr[start : start + block + 1]
        vertex = np.repeat(np.arange(len(current)), np.diff(ends))
        pair = vertex * clusters + labels[graph.indices[ends[0] : ends[-1]]]
        weights = graph.data[ends[0] : ends[-1]]
        edges = np.bincount(pair, weights=weights, minlength=len(current) * clusters)
        gain = edges.reshape(len(current), clusters) - sizes[:clusters]
        moves = gain.max(1).clip(min=0) > gain[np.arange(len(current)), current] + 1
        if moves.any():
            return start + int(moves.argmax())
    return None


def connected_components(graph: Graph) -> Labels:
    """Return the connected component of each vertex, ignoring directions: ``[m]``."""
    return np.asarray(
        sparse.csgraph.connected_components(graph, directed=True, connection="weak")[1],
        dtype=np.int64,
    )


def greedy_cliques(graph: Graph) -> Labels:
    """Return disjoint cliques as labels ``[m]``.

    Each clique grows from the unassigned vertex of highest degree, and takes candidates in the
    order of their degrees.
    """
    mutual = (graph.multiply(graph.T)).toarray() > 0
    labels = np.full(len(mutual), -1, dtype=np.int64)
    by_degree = np.argsort(-mutual.sum(axis=1), kind="stable")
    for vertex in by_degree:
        if labels[vertex] >= 0:
            continue
        candidates = mutual[vertex] & (labels < 0)
        labels[vertex] = vertex
        for candidate in by_degree:
            if candidates[candidate]:
                labels[candidate] = vertex
                candidates &= mutual[candidate]
    return labels
