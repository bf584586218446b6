from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srfca.clustering import Metric, Partition
from srfca.clustering.scalable import NUM_LANDMARKS, cluster_from_few_distances, sampled_moves
from tests.clustering.distance_queries import DistanceQueries
from tests.clustering.matrices import block_distances


@pytest.mark.parametrize("metric", ["distance", "profile"])
@pytest.mark.parametrize("labels", [[i % 4 for i in range(600)], [0] * 420 + [1] * 120 + [2] * 60])
def test_many_vertices_are_clustered_from_few_distances(metric: Metric, labels: list[int]) -> None:
    queries = DistanceQueries(block_distances(labels, 1.0, 3.0, 0.2))
    partition, choice = cluster_from_few_distances(queries, 600, "auto", 2, metric=metric)
    assert choice.metric == metric
    assert partition == Partition(labels)
    per_vertex = NUM_LANDMARKS if metric == "profile" else 4 + 16
    assert queries.count <= NUM_LANDMARKS**2 + 600 * per_vertex


def test_profiles_of_landmarks_place_the_other_vertices() -> None:
    labels = [i % 2 for i in range(500)]
    queries = DistanceQueries(block_distances(labels, 9.39, 9.63, 0.2))
    partition, choice = cluster_from_few_distances(queries, 500, "auto", min_size=2)
    assert choice.metric == "profile"
    assert partition is not None
    assert partition.misclustering(Partition(labels)) <= 0.01


def test_a_single_group_has_no_threshold() -> None:
    queries = DistanceQueries(block_distances([0] * 400, 10.0, 10.0, 1.0))
    partition, choice = cluster_from_few_distances(queries, 400, "auto", 2)
    assert partition is None
    assert choice.threshold is None


@pytest.mark.parametrize("threshold", [2.0, "40%"])
def test_numbers_and_quantiles_are_thresholds(threshold: float | str) -> None:
    labels = [i % 3 for i in range(400)]
    queries = DistanceQueries(block_distances(labels, 1.0, 3.0, 0.1))
    partition, _ = cluster_from_few_distances(queries, 400, threshold, 2)
    assert partition == Partition(labels)


@pytest.mark.parametrize("threshold", ["auto", 2.0])
def test_vertices_with_missing_distances_are_unclustered(threshold: float | str) -> None:
    labels = np.arange(300) % 3
    rng = np.random.default_rng(0)
    distances = np.where(labels[:, None] == labels, 1.0, 3.0) + 0.1 * rng.random((300, 300))
    distances[[5, 17]] = np.nan
    distances[:, [5, 17]] = np.nan
    partition, _ = cluster_from_few_distances(DistanceQueries(distances), 300, threshold, 2)
    expected = labels.copy()
    expected[[5, 17]] = -1
    assert partition == Partition(expected)


@given(st.lists(st.integers(-1, 3), min_size=3, max_size=14), st.integers(0, 50))
def test_sampled_moves_are_exact_if_the_sample_is_the_whole_cluster(
    labels: list[int], seed: int
) -> None:
    partition = Partition(labels)
    m = len(labels)
    rng = np.random.default_rng(seed)
    edges = np.triu(rng.random((m, m)) < 0.5, 1)
    edges = edges | edges.T
    moved = sampled_moves(lambda a, b: edges[np.ix_(a, b)], partition, rng)
    if partition.num_clusters == 0:
        assert moved == partition
        return
    expected = partition.labels.copy()
    for vertex in range(m):
        fraction = {}
        for cluster, members in enumerate(partition):
            peers = [j for j in members if j != vertex]
            fraction[cluster] = sum(bool(edges[vertex, j]) for j in peers) / max(len(peers), 1)
        current = int(partition.labels[vertex])
        if current < 0 or fraction[current] < 0.5:
            gain = {c: (2 * fraction[c] - 1) * partition.sizes[c] for c in fraction}
            best = max(gain, key=lambda c: gain[c])
            expected[vertex] = best if gain[best] > 0 else -1
    assert moved == Partition(expected)
