from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from srfca import cluster
from srfca.clustering import Partition
from srfca.errors import InputError
from tests.clustering.matrices import block_distances

EVEN = [i % 4 for i in range(40)]
UNEQUAL = [0] * 28 + [1] * 8 + [2] * 4


@pytest.mark.parametrize("labels", [EVEN, UNEQUAL, [i % 8 for i in range(64)], [0, 1] * 4])
def test_clear_groups_are_found_without_a_threshold(labels: list[int]) -> None:
    for seed in range(5):
        assert cluster(block_distances(labels, 1.0, 3.0, 0.2, seed)) == Partition(labels)


def test_equal_distances_are_one_cluster() -> None:
    for value in (0.0, 1.0):
        d = np.full((6, 6), value)
        np.fill_diagonal(d, 0.0)
        assert cluster(d) == Partition([0] * 6)


@given(st.permutations(list(range(12))), st.floats(0.1, 100))
def test_order_and_unit_do_not_matter(order: list[int], unit: float) -> None:
    d = block_distances([i % 3 for i in range(12)], 1.0, 3.0, 0.1)
    partition = cluster(unit * d[np.ix_(order, order)])
    assert partition == Partition([order[i] % 3 for i in range(12)])


def test_numbers_and_quantiles_are_thresholds() -> None:
    labels = [0, 0, 0, 1, 1, 1]
    d = block_distances(labels, 1.0, 3.0, 0.01)
    assert cluster(d, threshold=2) == Partition(labels)
    assert cluster(d, threshold="40%") == Partition(labels)
    assert cluster(d, threshold=0) == Partition(range(6))
    assert cluster(d, threshold=0, min_size=2).num_clusters == 0


def test_all_kinds_of_matrices_are_accepted() -> None:
    d = block_distances([0, 0, 1, 1], 1.0, 3.0, 0.0)
    expected = Partition([0, 0, 1, 1])
    stored = sparse.csr_array(np.where(d < 2, d, 0))
    for matrix in (
        d,
        d.tolist(),
        torch.tensor(d),
        stored,
        *map(stored.asformat, ("coo", "lil", "dok")),
    ):
        assert cluster(matrix, threshold=2) == expected
    assert cluster(np.where(d < 2, d, np.inf), threshold=2) == expected


def test_small_groups_are_unclustered() -> None:
    d = block_distances([0, 0, 0, 1, 1, 2], 1.0, 3.0, 0.0)
    assert cluster(d, threshold=2, min_size=2) == Partition([0, 0, 0, 1, 1, -1])
    assert cluster(d, threshold=2, min_size=3) == Partition([0, 0, 0, -1, -1, -1])
    assert cluster(block_distances(EVEN, 1.0, 3.0, 0.1), min_size=len(EVEN)).num_clusters == 0


def test_invalid_input_is_refused() -> None:
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
    with pytest.raises(InputError, match=r"from 0 to 1 is -2: .*losses"):
        cluster([[0, -2], [1, 0]], threshold=1)
    with pytest.raises(InputError, match="sparse"):
        cluster(sparse.eye_array(3))


@pytest.mark.parametrize("num_points", [4, 10, 20])
@pytest.mark.parametrize("threshold", ["auto", "30%", 0.5])
def test_an_entry_near_the_largest_number_is_a_distance(
    num_points: int, threshold: float | str
) -> None:
    draws = np.random.default_rng(0).random((num_points, num_points))
    distances = draws + draws.T
    np.fill_diagonal(distances, 0)
    distances[1, 2] = distances[2, 1] = 1e308
    labels = cluster(distances, threshold=threshold, graph="cliques").labels
    assert len(labels) == num_points
