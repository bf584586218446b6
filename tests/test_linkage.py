from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from srfca import InputError, Partition
from srfca.clustering.linkage import agglomerate, check_cut, groups_seen

JOIN: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "single": np.min,
    "complete": np.max,
    "average": np.mean,
}


@st.composite
def matrices(draw: st.DrawFn, least: int = 2) -> NDArray[np.float64]:
    """Symmetric distances of up to 8, all different."""
    count = draw(st.integers(least, 8))
    pairs = count * (count - 1) // 2
    values = draw(st.lists(st.integers(1, 10**6), min_size=pairs, max_size=pairs, unique=True))
    matrix = np.zeros((count, count))
    matrix[np.triu_indices(count, 1)] = values
    return matrix + matrix.T


def slowly(distances: NDArray[np.float64], linkage: str, stop: float, least: int) -> list[set[int]]:
    """Join the two nearest clusters while they are within ``stop`` and more than ``least``."""
    clusters = [{i} for i in range(len(distances))]
    while len(clusters) > least:
        apart = {
            (a, b): JOIN[linkage](distances[np.ix_(sorted(clusters[a]), sorted(clusters[b]))])
            for a, b in combinations(range(len(clusters)), 2)
        }
        a, b = min(apart, key=lambda pair: apart[pair])
        if apart[a, b] > stop * (1 + 1e-12):
            break
        clusters[a] |= clusters.pop(b)
    return clusters


def labels_of(clusters: list[set[int]]) -> Partition:
    where = {member: c for c, members in enumerate(clusters) for member in members}
    return Partition([where[i] for i in range(len(where))])


@given(matrices(), st.sampled_from(sorted(JOIN)), st.integers(0, 10**6))
def test_a_threshold_stops_joining(
    distances: NDArray[np.float64], linkage: str, threshold: int
) -> None:
    found = agglomerate(distances, threshold=threshold, linkage=linkage)
    assert found.partition == labels_of(slowly(distances, linkage, threshold, 1))
    assert len(found.heights) == len(distances) - 1


@given(matrices(), st.sampled_from(sorted(JOIN)), st.data())
def test_k_stops_joining(distances: NDArray[np.float64], linkage: str, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(distances)))
    found = agglomerate(distances, k=k, linkage=linkage).partition
    assert found == labels_of(slowly(distances, linkage, np.inf, k))


def test_a_join_at_the_threshold_is_made_and_ties_still_give_k() -> None:
    equal = np.ones((5, 5)) - np.eye(5)
    assert agglomerate(equal, threshold=1.0).partition.num_clusters == 1
    assert agglomerate(equal, threshold=0.999).partition.num_clusters == 5
    assert [agglomerate(equal, k=k).partition.num_clusters for k in range(1, 6)] == [1, 2, 3, 4, 5]
    assert agglomerate(np.zeros((1, 1))).partition == Partition([0])


def test_ward_joins_what_adds_least_to_the_squares() -> None:
    points = np.array([0.0, 1.0, 10.0, 12.0])
    distances = np.abs(points[:, None] - points)
    found = agglomerate(distances, k=2, linkage="ward")
    assert found.partition == Partition([0, 0, 1, 1])
    last = np.sqrt(2 * (2 * 2) / (2 + 2)) * (11 - 0.5)
    assert found.heights == pytest.approx([1.0, 2.0, last])


@pytest.mark.parametrize("linkage", ["single", "complete", "average", "ward"])
def test_auto_sees_groups_and_their_absence(linkage: str) -> None:
    draws = np.random.default_rng(0)
    centres = 6 * draws.normal(size=(3, 20))
    truth = np.arange(30) % 3
    for points, expected in (
        (centres[truth] + draws.normal(size=(30, 20)), Partition(truth)),
        (draws.normal(size=(30, 20)), Partition(np.zeros(30, dtype=int))),
    ):
        distances = np.linalg.norm(points[:, None] - points, axis=-1)
        assert agglomerate(distances, linkage=linkage).partition == expected
        assert groups_seen(distances)[0] == expected


@pytest.mark.parametrize(
    ("threshold", "k", "linkage", "named"),
    [
        (-1.0, None, "single", "threshold"),
        ("30%", None, "single", "threshold"),
        (float("nan"), None, "single", "threshold"),
        (1.0, 2, "single", "k and threshold"),
        ("auto", 0, "single", "k must"),
        ("auto", None, "centroid", "linkage"),
    ],
)
def test_bad_cuts_are_refused(
    threshold: float | str, k: int | None, linkage: str, named: str
) -> None:
    with pytest.raises(InputError, match=named):
        check_cut(threshold, k, linkage)


def test_bad_matrices_are_refused() -> None:
    with pytest.raises(InputError, match="k must be at most the 2"):
        agglomerate(np.zeros((2, 2)), k=3)
    with pytest.raises(InputError, match="square"):
        agglomerate(np.zeros((2, 3)), k=1)
    with pytest.raises(InputError, match="NaN"):
        agglomerate(np.full((2, 2), np.nan), k=1)
