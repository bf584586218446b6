from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from srfca import InputError, Partition
from srfca.clustering import LINKAGES, Linkage
from srfca.clustering.linkage import agglomerate, check_cut, find_groups

MERGE_DISTANCES: dict[Linkage, Callable[[NDArray[np.float64]], float]] = {
    "single": np.min,
    "complete": np.max,
    "average": np.mean,
}
linkages = st.sampled_from(sorted(MERGE_DISTANCES))


@st.composite
def matrices(draw: st.DrawFn) -> NDArray[np.float64]:
    """Symmetric distances among 2 to 8 points, all different."""
    count = draw(st.integers(2, 8))
    pairs = count * (count - 1) // 2
    values = draw(st.lists(st.integers(1, 10**6), min_size=pairs, max_size=pairs, unique=True))
    matrix = np.zeros((count, count))
    matrix[np.triu_indices(count, 1)] = values
    return matrix + matrix.T


def plain_agglomerate(
    distances: NDArray[np.float64], linkage: Linkage, threshold: float, k: int
) -> Partition:
    """Merge the two nearest clusters while they are within the threshold and more than k."""
    clusters = [{i} for i in range(len(distances))]
    while len(clusters) > k:
        between = {
            (a, b): MERGE_DISTANCES[linkage](
                distances[np.ix_(sorted(clusters[a]), sorted(clusters[b]))]
            )
            for a, b in combinations(range(len(clusters)), 2)
        }
        a, b = min(between, key=lambda pair: between[pair])
        if between[a, b] > threshold * (1 + 1e-12):
            break
        clusters[a] |= clusters.pop(b)
    cluster_of = {member: c for c, members in enumerate(clusters) for member in members}
    return Partition([cluster_of[i] for i in range(len(cluster_of))])


@given(matrices(), linkages, st.integers(0, 10**6))
def test_a_threshold_stops_merging(
    distances: NDArray[np.float64], linkage: Linkage, threshold: int
) -> None:
    cut = agglomerate(distances, threshold=threshold, linkage=linkage)
    assert cut.partition == plain_agglomerate(distances, linkage, threshold, 1)
    assert len(cut.heights) == len(distances) - 1
    assert cut.reason == "given"


@given(matrices(), linkages, st.data())
def test_k_stops_merging(
    distances: NDArray[np.float64], linkage: Linkage, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(distances)))
    partition = agglomerate(distances, k=k, linkage=linkage).partition
    assert partition == plain_agglomerate(distances, linkage, np.inf, k)


def test_a_merge_at_the_threshold_is_made_and_ties_still_give_k() -> None:
    equal = np.ones((5, 5)) - np.eye(5)
    assert agglomerate(equal, threshold=1.0).partition.num_clusters == 1
    assert agglomerate(equal, threshold=0.999).partition.num_clusters == 5
    assert [agglomerate(equal, k=k).partition.num_clusters for k in range(1, 6)] == [1, 2, 3, 4, 5]
    assert agglomerate(np.zeros((1, 1))).partition == Partition([0])


def test_ward_merges_what_adds_least_to_the_squares() -> None:
    points = np.array([0.0, 1.0, 10.0, 12.0])
    distances = np.abs(points[:, None] - points)
    cut = agglomerate(distances, k=2, linkage="ward")
    assert cut.partition == Partition([0, 0, 1, 1])
    last = np.sqrt(2 * (2 * 2) / (2 + 2)) * (11 - 0.5)
    assert cut.heights == pytest.approx([1.0, 2.0, last])


@pytest.mark.parametrize("linkage", LINKAGES)
def test_auto_finds_groups_and_their_absence(linkage: Linkage) -> None:
    draws = np.random.default_rng(0)
    centers = 6 * draws.normal(size=(3, 20))
    truth = np.arange(30) % 3
    for points, expected in (
        (centers[truth] + draws.normal(size=(30, 20)), Partition(truth)),
        (draws.normal(size=(30, 20)), Partition(np.zeros(30, dtype=int))),
    ):
        distances = np.linalg.norm(points[:, None] - points, axis=-1)
        assert agglomerate(distances, linkage=linkage).partition == expected
        assert find_groups(distances)[0] == expected


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
def test_invalid_cuts_are_refused(
    threshold: float | str, k: int | None, linkage: str, named: str
) -> None:
    with pytest.raises(InputError, match=named):
        check_cut(threshold, k, linkage)


def test_invalid_matrices_are_refused() -> None:
    with pytest.raises(InputError, match="k must be at most 2"):
        agglomerate(np.zeros((2, 2)), k=3)
    with pytest.raises(InputError, match="square"):
        agglomerate(np.zeros((2, 3)), k=1)
    with pytest.raises(InputError, match="NaN"):
        agglomerate(np.full((2, 2), np.nan), k=1)
