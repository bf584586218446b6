from __future__ import annotations

from itertools import combinations, product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from srfca.clustering.graph import (
    GRAPH_CLUSTERINGS,
    Graph,
    cluster_graph,
    connected_components,
    correlation_clustering,
    disagreements,
    greedy_cliques,
    improve,
    pivot,
    pivot_graph,
    threshold_graph,
)
from srfca.clustering.partition import Partition
from srfca.errors import InputError
from tests.clustering.distance_queries import DistanceQueries
from tests.clustering.matrices import block_distances

Adjacency = NDArray[np.bool_]


@st.composite
def adjacencies(draw: st.DrawFn, directed: bool = False, max_size: int = 8) -> Adjacency:
    m = draw(st.integers(1, max_size))
    a = np.array(draw(st.lists(st.booleans(), min_size=m * m, max_size=m * m))).reshape(m, m)
    a = a if directed else np.triu(a, 1) | np.triu(a, 1).T
    np.fill_diagonal(a, False)
    return a


def graph_of(adjacency: Adjacency) -> Graph:
    return sparse.csr_array(adjacency.astype(np.int64))


def count_disagreements(a: Adjacency, labels: NDArray[np.int64]) -> float:
    pairs = [(i, j) for i in range(len(a)) for j in range(len(a)) if i != j]
    return sum(bool(a[i, j]) != bool(labels[i] == labels[j]) for i, j in pairs) / 2


def plain_pivot(a: Adjacency, order: list[int]) -> list[set[int]]:
    unassigned, clusters = list(order), []
    while unassigned:
        first = unassigned[0]
        cluster = {first} | {j for j in unassigned[1:] if a[first, j]}
        clusters.append(cluster)
        unassigned = [j for j in unassigned if j not in cluster]
    return clusters


def as_sets(labels: NDArray[np.int64]) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())}


@given(adjacencies(directed=True), st.randoms(use_true_random=False))
def test_pivot_graph_is_the_plain_algorithm(a: Adjacency, random: object) -> None:
    order = list(range(len(a)))
    random.shuffle(order)  # type: ignore[attr-defined]
    clusters = as_sets(pivot_graph(graph_of(a), np.array(order)))
    assert clusters == {frozenset(cluster) for cluster in plain_pivot(a, order)}


@given(st.integers(1, 12), st.floats(0, 4), st.integers(0, 100))
def test_pivot_with_queries_equals_pivot_of_the_full_matrix(
    m: int, threshold: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    distances = rng.uniform(0, 4, (m, m))
    order = rng.permutation(m)
    queries = DistanceQueries(distances)
    labels = pivot(lambda v, candidates: queries(np.array([v]), candidates)[0] <= threshold, order)
    assert labels.tolist() == pivot_graph(threshold_graph(distances, threshold), order).tolist()
    assert queries.count <= m * (m - 1) / 2


def test_pivot_queries_few_distances_for_few_clusters() -> None:
    truth = [i % 4 for i in range(400)]
    queries = DistanceQueries(block_distances(truth, 1.0, 3.0, 0.1))
    order = np.random.default_rng(0).permutation(400)
    labels = pivot(lambda v, candidates: queries(np.array([v]), candidates)[0] <= 2, order)
    assert Partition(labels) == Partition(truth)
    assert queries.count < 4 * 400


def test_pivot_stops_after_patience_small_clusters() -> None:
    truth = [0] * 10 + list(range(1, 91))
    queries = DistanceQueries(block_distances(truth, 1.0, 3.0, 0.0))

    def has_edges(vertex: int, candidates: NDArray[np.int64]) -> Adjacency:
        return np.asarray(queries(np.array([vertex]), candidates)[0] <= 2)

    labels = pivot(has_edges, np.arange(100), min_size=2, patience=3)
    assert Partition(labels) == Partition(truth)
    assert queries.count == 99 + 89 + 88 + 87


@given(adjacencies(directed=True), st.data())
def test_disagreements_are_counted(a: Adjacency, data: st.DataObject) -> None:
    labels = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(a), max_size=len(a))))
    assert disagreements(graph_of(a), labels) == count_disagreements(a, labels)


def plain_improve(a: Adjacency, start: NDArray[np.int64]) -> list[int]:
    """Move vertex by vertex to the first of the clusters with the largest gain."""
    labels: list[int] = np.unique(start, return_inverse=True)[1].tolist()
    moved = True
    while moved:
        moved = False
        for vertex, current in enumerate(labels):
            gain = [0] * (len(a) + 1)
            for other, label in enumerate(labels):
                if other != vertex:
                    gain[label] += int(a[vertex, other]) + int(a[other, vertex]) - 1
            if max(gain) > gain[current]:
                labels[vertex], moved = gain.index(max(gain)), True
    return labels


@given(adjacencies(directed=True), st.data())
def test_improve_ends_where_no_single_move_helps(a: Adjacency, data: st.DataObject) -> None:
    start = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(a), max_size=len(a))))
    both_directions = sparse.csr_array(graph_of(a) + graph_of(a).T)
    labels = improve(both_directions, start.copy())
    assert labels.tolist() == plain_improve(a, start)
    reached = count_disagreements(a, labels)
    assert reached <= count_disagreements(a, start)
    for vertex in range(len(a)):
        for target in range(len(a) + 1):
            moved = labels.copy()
            moved[vertex] = target
            assert count_disagreements(a, moved) >= reached


def partitions_of(m: int) -> list[list[int]]:
    """Return all partitions of m vertices as restricted growth strings."""
    partitions = [[0]]
    for _ in range(m - 1):
        partitions = [[*p, label] for p in partitions for label in range(max(p) + 2)]
    return partitions


def fewest_disagreements(edges: NDArray[np.bool_], same: NDArray[np.bool_]) -> int:
    """Return the optimum over all partitions: ``same`` says which pairs each puts together."""
    return int((same != edges).sum(1).min())


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6])
def test_correlation_clustering_is_within_three_times_the_optimum_on_all_graphs(m: int) -> None:
    """All graphs of m vertices: with all labelings up to 5 of them, else up to isomorphism."""
    pairs = list(combinations(range(m), 2))
    same = np.array([[p[i] == p[j] for i, j in pairs] for p in partitions_of(m)])
    if m <= 5:
        graphs = list(product([False, True], repeat=len(pairs)))
    else:
        atlas = (graph for graph in nx.graph_atlas_g() if len(graph) == m)
        graphs = [tuple(graph.has_edge(i, j) for i, j in pairs) for graph in atlas]
        assert len(graphs) == 156
    num_optimal = 0
    for number, edges in enumerate(graphs):
        a = np.zeros((m, m), dtype=bool)
        for (i, j), edge in zip(pairs, edges, strict=True):
            a[i, j] = a[j, i] = edge
        graph, optimum = graph_of(a), fewest_disagreements(np.array(edges, dtype=bool), same)
        cost = disagreements(graph, correlation_clustering(graph, seed=number))
        assert cost <= 3 * optimum
        num_optimal += cost == optimum
    assert num_optimal >= 0.99 * len(graphs), "restarts and moves nearly always find the optimum"


@given(adjacencies())
def test_random_pivots_cost_three_times_the_optimum_on_average(a: Adjacency) -> None:
    graph = graph_of(a)
    if len(a) > 6:
        return
    best = min(count_disagreements(a, np.array(p)) for p in partitions_of(len(a)))
    rng = np.random.default_rng(0)
    costs = [disagreements(graph, pivot_graph(graph, rng.permutation(len(a)))) for _ in range(200)]
    assert np.mean(costs) <= 3 * best + 3 * np.std(costs) / np.sqrt(200) + 1e-9


@given(adjacencies(directed=True))
def test_connected_components_are_reachability(a: Adjacency) -> None:
    reachable = a | a.T | np.eye(len(a), dtype=bool)
    for _ in a:
        reachable = reachable @ reachable
    labels = connected_components(graph_of(a))
    assert np.array_equal(labels[:, None] == labels, reachable)


@given(adjacencies(directed=True))
def test_greedy_cliques_are_cliques(a: Adjacency) -> None:
    for clique in as_sets(greedy_cliques(graph_of(a))):
        assert all(a[i, j] and a[j, i] for i in clique for j in clique if i != j)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(0, 50))
def test_all_methods_find_disjoint_cliques(labels: list[int], seed: int) -> None:
    truth = np.array(labels)
    a = truth[:, None] == truth
    np.fill_diagonal(a, False)
    for method in GRAPH_CLUSTERINGS:
        assert as_sets(cluster_graph(graph_of(a), method, seed).labels) == as_sets(truth)


def test_the_threshold_is_inclusive_and_the_diagonal_is_no_edge() -> None:
    d = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    assert threshold_graph(d, 2.0).toarray().tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]
    stored = sparse.coo_array(([1.0, 2.5, 1.0], ([0, 0, 1], [1, 2, 0])), shape=(3, 3))
    assert threshold_graph(stored, 2.0).toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]


@given(adjacencies(), st.integers(0, 99))
def test_without_restarts_correlation_clustering_is_one_pass_of_pivots(
    a: Adjacency, seed: int
) -> None:
    order = np.random.default_rng(seed).permutation(len(a)).tolist()
    clusters = as_sets(correlation_clustering(graph_of(a), seed, restarts=0))
    assert clusters == {frozenset(cluster) for cluster in plain_pivot(a, order)}


def test_the_same_seed_gives_the_same_clusters() -> None:
    a = np.random.default_rng(0).random((30, 30)) < 0.4
    graph = graph_of(np.triu(a, 1) | np.triu(a, 1).T)
    assert cluster_graph(graph, seed=5) == cluster_graph(graph, seed=5)
    with pytest.raises(InputError, match="did you mean 'correlation'"):
        cluster_graph(graph, "correlations")  # type: ignore[arg-type]
