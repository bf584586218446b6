from __future__ import annotations

import numpy as np
import pytest

from srfca.clustering import Partition, choose_threshold, cluster_graph, denoised_profiles
from srfca.clustering.matrix import comparable_subset
from srfca.clustering.scalable import cluster_from_few_distances
from srfca.errors import InputError
from tests.clustering.distance_queries import DistanceQueries
from tests.clustering.matrices import Matrix, block_distances

EVEN = [i % 4 for i in range(40)]


def test_profiles_need_structure_and_enough_clients() -> None:
    assert denoised_profiles(np.ones((3, 3))) is None
    assert denoised_profiles(block_distances([0] * 50, 10, 10, 1.0)) is None


def test_profiles_separate_groups_beyond_the_noise() -> None:
    profile = denoised_profiles(block_distances(EVEN, 1.0, 3.0, 0.2))
    assert profile is not None
    distances = profile.distances
    same = np.array(EVEN)[:, None] == np.array(EVEN)
    assert distances[same].max() < distances[~same].min()
    assert profile.noise < distances[~same].min()


def test_other_clients_lie_near_the_landmarks_of_their_group() -> None:
    labels = np.array([i % 2 for i in range(60)])
    d = block_distances(labels.tolist(), 1.0, 3.0, 0.1)
    profile = denoised_profiles(d[:40, :40])
    assert profile is not None
    placed = profile.coordinates(d[40:, :40])
    away = np.linalg.norm(placed[:, None] - profile.landmarks, axis=2)
    assert np.array_equal(labels[:40][away.argmin(1)], labels[40:])


def with_unknown(distances: Matrix, share: float, seed: int = 0) -> Matrix:
    """Make a share of the pairs unknown; some clients have many more unknown pairs than others."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0, 2, len(distances))
    drawn = np.triu(rng.random(distances.shape) < share * weights[:, None] * weights, 1)
    return np.where(drawn | drawn.T, np.nan, distances)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.05, 0.2, 0.35])
def test_groups_are_found_with_unknown_pairs(share: float, seed: int) -> None:
    labels = np.arange(60) % 3
    client = 0.2 * np.random.default_rng(100 + seed).standard_normal(60)
    full = block_distances(labels.tolist(), 2.0, 3.0, 0.4, seed) * np.exp(client[:, None] + client)
    distances = with_unknown(np.maximum(full, 0.1), share, seed)
    subset = comparable_subset(distances)
    assert len(subset) >= 50
    distances = distances[np.ix_(subset, subset)]
    choice = choose_threshold(distances, "auto", min_size=2, seed=seed)
    assert choice.metric == "profile"
    assert {candidate.metric for candidate in choice.candidates} == {"profile"}
    assert choice.graph is not None
    assert cluster_graph(choice.graph).misclustering(Partition(labels[subset])) <= 0.02
    assert choice.profile is not None
    assert choice.profile.directions.shape[1] == 2


@pytest.mark.parametrize("seed", range(10))
def test_unknown_pairs_do_not_look_like_groups(seed: int) -> None:
    client = 0.3 * np.random.default_rng(100 + seed).standard_normal(80)
    full = block_distances([0] * 80, 10.0, 10.0, 1.0, seed) * np.exp(client[:, None] + client)
    distances = with_unknown(full, 0.25, seed)
    subset = comparable_subset(distances)
    assert choose_threshold(distances[np.ix_(subset, subset)], "auto", 2).graph is None


def test_few_unknown_pairs_change_profiles_little() -> None:
    full = block_distances(EVEN, 1.0, 3.0, 0.1)
    one_unknown = full.copy()
    one_unknown[3, 8] = one_unknown[8, 3] = np.nan
    first, second = denoised_profiles(full), denoised_profiles(one_unknown)
    assert first is not None
    assert second is not None
    assert np.abs(first.distances - second.distances).max() < 0.05 * first.distances.max()
    assert second.noise == pytest.approx(first.noise, rel=0.05)
    others = block_distances(EVEN, 1.0, 3.0, 0.1, seed=1)[:5]
    others[0, :4] = np.nan
    others[1, :31] = np.nan
    placed, exact = second.coordinates(others), first.coordinates(others[2:])
    assert bool(np.isnan(placed[1]).all()), "it has too few known distances"
    away = np.linalg.norm(placed[[0, 2, 3, 4], None] - second.landmarks, axis=2)
    assert np.array(EVEN)[away.argmin(1)].tolist() == [0, 2, 3, 0]
    assert exact.shape == (3, 3)


def test_thresholds_with_unknown_pairs() -> None:
    distances = with_unknown(block_distances(EVEN, 1.0, 3.0, 0.1), 0.1)
    number = choose_threshold(distances, 2.0, 2)
    assert number.graph is not None
    edges = number.graph.toarray() > 0
    assert not edges[np.isnan(distances)].any(), "an unknown pair has no edge"
    assert choose_threshold(distances, "50%", 2).threshold == pytest.approx(3.0, abs=0.2)
    with pytest.raises(InputError, match="are unknown: set metric to 'auto' or 'profile'"):
        choose_threshold(distances, "auto", 2, metric="distance")


def test_many_clients_with_unknown_pairs() -> None:
    labels = np.arange(500) % 3
    distances = with_unknown(block_distances(labels.tolist(), 1.0, 3.0, 0.2), 0.15)
    queries = DistanceQueries(distances)
    partition, choice = cluster_from_few_distances(queries, 500, "auto", 2, allow_unknown=True)
    assert choice.metric == "profile"
    assert partition is not None
    clustered = np.flatnonzero(partition.labels >= 0)
    assert len(clustered) >= 450
    part = Partition(partition.labels[clustered])
    assert part.misclustering(Partition(labels[clustered])) <= 0.02
