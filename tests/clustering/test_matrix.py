from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srfca.clustering.matrix import (
    check_distances,
    comparable_subset,
    complete_subset,
    isolated,
    known_pairs,
    off_diagonal,
)
from srfca.errors import InputError


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_complete_subset_has_no_missing_distances_and_cannot_grow_to_everyone(
    seed: int, m: int
) -> None:
    rng = np.random.default_rng(seed)
    distances = np.where(rng.random((m, m)) < 0.2, np.nan, rng.random((m, m)))
    subset = complete_subset(distances)
    among = distances[np.ix_(subset, subset)]
    assert not np.isnan(among[~np.eye(len(subset), dtype=bool)]).any()
    for vertex in set(range(m)) - set(subset.tolist()):
        larger = np.append(subset, vertex)
        missing = np.isnan(distances[np.ix_(larger, larger)])
        np.fill_diagonal(missing, False)
        assert missing.any() or len(larger) < m
    assert complete_subset(np.zeros((m, m))).tolist() == list(range(m))


def test_off_diagonal_is_row_by_row() -> None:
    assert off_diagonal(np.arange(9.0).reshape(3, 3)).tolist() == [1, 2, 3, 5, 6, 7]


def test_rounding_errors_below_zero_are_accepted() -> None:
    check_distances(np.array([[0.0, -1e-7], [1.0, 0.0]]))
    with pytest.raises(InputError, match=r"from 0 to 1 is -0\.001: .*add a constant"):
        check_distances(np.array([[0.0, -1e-3], [1.0, 0.0]]))


@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0, 1))
def test_comparable_vertices_know_a_quarter_of_each_other(
    seed: int, m: int, unknown: float
) -> None:
    rng = np.random.default_rng(seed)
    distances = np.where(rng.random((m, m)) < unknown, np.nan, rng.random((m, m)))
    subset = comparable_subset(distances)
    assert len(subset) >= 1
    assert np.array_equal(subset, np.unique(subset))
    among = distances[np.ix_(subset, subset)]
    assert bool((known_pairs(among).sum(1) >= (len(subset) - 1) / 4).all())
    assert np.array_equal(comparable_subset(among), np.arange(len(subset)))
    embedded = np.full((m + 2, m + 2), np.nan)
    embedded[2:, 2:] = distances
    if len(subset) > 1:
        assert np.array_equal(comparable_subset(embedded), subset + 2), "nobody knows the others"
    assert comparable_subset(np.zeros((m, m))).tolist() == list(range(m))


def test_unknown_distances_are_accepted_where_they_are_allowed() -> None:
    distances = np.array([[0.0, np.nan], [1.0, 0.0]])
    check_distances(distances, allow_unknown=True)
    with pytest.raises(InputError, match="NaN, but the one from 0 to 1"):
        check_distances(distances)
    with pytest.raises(InputError, match="not be negative"):
        check_distances(-distances, allow_unknown=True)


def test_isolated_vertices_are_few_and_far_from_everyone() -> None:
    at = np.array([0.0, 1.0, 2.0, 50.0, 51.0, 1e9, -1e9])
    distances = np.abs(at[:, None] - at)
    assert np.flatnonzero(isolated(distances, 2)).tolist() == [5, 6]
    assert not isolated(distances, 0).any()
    assert not isolated(distances[:5, :5], 1).any(), "51 is near 50"
    distances[0, 5] = distances[5, 0] = np.nan
    assert np.flatnonzero(isolated(distances, 2)).tolist() == [5, 6]
