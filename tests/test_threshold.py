from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from srfca import cluster
from srfca.clustering import Partition, choose, profile
from srfca.errors import InputError

Matrix = NDArray[np.float64]


def blocks(labels: list[int], within: float, across: float, noise: float, seed: int = 0) -> Matrix:
    """Distances of groups with symmetric noise."""
    truth = np.array(labels)
    wobble = noise * np.random.default_rng(seed).standard_normal((len(truth), len(truth)))
    d = np.where(truth[:, None] == truth, within, across) + (wobble + wobble.T) / np.sqrt(2)
    np.fill_diagonal(d, 0.0)
    return np.asarray(d)


EVEN = [i % 4 for i in range(40)]
UNEQUAL = [0] * 28 + [1] * 8 + [2] * 4


@pytest.mark.parametrize("labels", [EVEN, UNEQUAL, [i % 8 for i in range(64)], [0, 1] * 4])
def test_clear_groups_are_found_without_a_threshold(labels: list[int]) -> None:
    for seed in range(5):
        assert cluster(blocks(labels, 1.0, 3.0, 0.2, seed)) == Partition(labels)


@pytest.mark.parametrize("seed", range(5))
def test_profiles_see_groups_where_single_distances_overlap(seed: int) -> None:
    labels = [i % 2 for i in range(100)]
    client = 0.3 * np.random.default_rng(100 + seed).standard_normal(100)
    d = blocks(labels, 9.39, 9.63, 0.2, seed) + client[:, None] + client
    pairs = np.triu_indices(100, 1)
    same = (np.array(labels)[:, None] == np.array(labels))[pairs]
    assert np.quantile(d[pairs][same], 0.9) > np.quantile(d[pairs][~same], 0.5), "they overlap"
    choice = choose(d, "auto", min_size=2)
    assert choice.metric == "profile"
    assert cluster(d, min_size=2).misclustering(Partition(labels)) == 0


@pytest.mark.parametrize("m", [2, 3, 5, 10, 30, 100])
@pytest.mark.parametrize("seed", range(4))
def test_noise_is_one_cluster(m: int, seed: int) -> None:
    d = blocks([0] * m, 10.0, 10.0, 1.0, seed)
    choice = choose(d, "auto", min_size=2)
    assert choice.graph is None
    assert "no groups" in choice.why
    assert cluster(d) == Partition([0] * m)


def test_equal_distances_are_one_cluster() -> None:
    for value in (0.0, 1.0):
        d = np.full((6, 6), value)
        np.fill_diagonal(d, 0.0)
        assert cluster(d) == Partition([0] * 6)


def test_points_of_a_cloud_are_one_cluster() -> None:
    for seed in range(5):
        points = np.random.default_rng(seed).standard_normal((60, 50))
        d = np.linalg.norm(points[:, None] - points, axis=2)
        assert choose(d, "auto", 2).graph is None


@given(st.permutations(list(range(12))), st.floats(0.1, 100))
def test_order_and_unit_do_not_matter(order: list[int], unit: float) -> None:
    d = blocks([i % 3 for i in range(12)], 1.0, 3.0, 0.1)
    found = cluster(unit * d[np.ix_(order, order)])
    assert found == Partition([order[i] % 3 for i in range(12)])


def test_quantiles_and_numbers() -> None:
    labels = [0, 0, 0, 1, 1, 1]
    d = blocks(labels, 1.0, 3.0, 0.01)
    assert cluster(d, threshold=2) == Partition(labels)
    assert cluster(d, threshold="40%") == Partition(labels)
    assert cluster(d, threshold=0) == Partition(range(6))
    assert cluster(d, threshold=0, min_size=2).num_clusters == 0
    assert choose(d, "0%", 1).threshold == pytest.approx(d[d > 0].min())


def test_matrices_of_all_kinds() -> None:
    d = blocks([0, 0, 1, 1], 1.0, 3.0, 0.0)
    expected = Partition([0, 0, 1, 1])
    near = sparse.csr_array(np.where(d < 2, d, 0))
    for matrix in (
        d,
        d.tolist(),
        torch.tensor(d),
        near,
        *map(near.asformat, ("coo", "lil", "dok")),
    ):
        assert cluster(matrix, threshold=2) == expected
    assert cluster(np.where(d < 2, d, np.inf), threshold=2) == expected


def test_small_groups_are_left_out() -> None:
    d = blocks([0, 0, 0, 1, 1, 2], 1.0, 3.0, 0.0)
    assert cluster(d, threshold=2, min_size=2) == Partition([0, 0, 0, 1, 1, -1])
    assert cluster(d, threshold=2, min_size=3) == Partition([0, 0, 0, -1, -1, -1])
    assert cluster(blocks(EVEN, 1.0, 3.0, 0.1), min_size=len(EVEN)).num_clusters == 0


def test_candidates_are_reported() -> None:
    choice = choose(blocks(EVEN, 1.0, 3.0, 0.2), "auto", 2)
    assert choice.threshold is not None
    assert {c.metric for c in choice.candidates} == {"distance", "profile"}
    assert any(c.threshold == choice.threshold and c.clusters == 4 for c in choice.candidates)


def test_profiles_need_structure() -> None:
    assert profile(np.ones((3, 3))) is None
    assert profile(blocks([0] * 50, 10, 10, 1.0)) is None
    found = profile(blocks(EVEN, 1.0, 3.0, 0.2))
    assert found is not None
    distances = found.distances
    same = np.array(EVEN)[:, None] == np.array(EVEN)
    assert distances[same].max() < distances[~same].min()
    assert found.noise < distances[~same].min()


def test_bad_input() -> None:
    d = np.ones((3, 3))
    for threshold in (-1, -0.5, "often", "101%", "-3%", True):
        with pytest.raises(InputError, match="threshold must"):
            cluster(d, threshold=threshold)
    with pytest.raises(InputError, match="min_size"):
        cluster(d, min_size=0)
    with pytest.raises(InputError, match="square"):
        cluster(np.ones((2, 3)))
    with pytest.raises(InputError, match="from 0 to 1"):
        cluster([[0, np.nan], [1, 0]])
    for threshold in ("auto", "50%"):
        with pytest.raises(InputError, match=f"threshold='{threshold}' needs finite distances"):
            cluster([[0, np.inf], [1, 0]], threshold=threshold)
    with pytest.raises(InputError, match=r"from 0 to 1 is -2 \(of a loss"):
        cluster([[0, -2], [1, 0]], threshold=1)
    with pytest.raises(InputError, match="sparse"):
        cluster(sparse.eye_array(3))
