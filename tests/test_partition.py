from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srfca.clustering import Partition
from srfca.errors import InputError

labels = st.lists(st.integers(-1, 4), min_size=1, max_size=12)
placed = st.lists(st.integers(0, 3), min_size=1, max_size=8)


@given(labels, st.randoms(use_true_random=False))
def test_numbering_does_not_matter(given_labels: list[int], random: object) -> None:
    names = list(range(10, 15))
    random.shuffle(names)  # type: ignore[attr-defined]
    renamed = [names[label] if label >= 0 else -1 for label in given_labels]
    a, b = Partition(given_labels), Partition(renamed)
    assert a == b
    assert hash(a) == hash(b)
    for i, first in enumerate(given_labels):
        for j, second in enumerate(given_labels):
            assert (a.labels[i] == a.labels[j]) == (first == second)
        assert (a.labels[i] == -1) == (first == -1)
    assert a.labels[a.labels >= 0].tolist()[:1] in ([], [0])


@given(placed, st.data())
def test_misclustering_is_the_best_one_to_one_matching(
    truth: list[int], data: st.DataObject
) -> None:
    found = data.draw(st.lists(st.integers(-1, 3), min_size=len(truth), max_size=len(truth)))
    best = max(
        sum(f >= 0 and order[f] == t for f, t in zip(found, truth, strict=True))
        for order in permutations(range(4))
    )
    expected = 1 - best / len(truth)
    assert Partition(found).misclustering(Partition(truth)) == pytest.approx(expected)


@given(placed, st.data())
def test_impurity_counts_clients_off_their_clusters_majority(
    truth: list[int], data: st.DataObject
) -> None:
    found = data.draw(st.lists(st.integers(-1, 3), min_size=len(truth), max_size=len(truth)))
    right = 0
    for cluster in set(found) - {-1}:
        inside = [t for f, t in zip(found, truth, strict=True) if f == cluster]
        right += max(inside.count(t) for t in inside)
    expected = 1 - right / len(truth)
    partition = Partition(found)
    assert partition.impurity(Partition(truth)) == pytest.approx(expected)
    assert partition.purity(Partition(truth)) == pytest.approx(1 - expected)


def test_scores_of_equal_partitions() -> None:
    a, b = Partition([0, 0, 1, 1, 2]), Partition([2, 2, 0, 0, 1])
    assert [a.misclustering(b), a.impurity(b), a.ari(b)] == [0, 0, 1]
    assert a.nmi(b) == pytest.approx(1)


def test_left_out_clients_are_wrong() -> None:
    truth = Partition([0, 0, 1, 1])
    found = Partition([0, 0, -1, -1])
    assert found.misclustering(truth) == 0.5
    assert found.impurity(truth) == 0.5
    assert found.ari(truth) < 1
    assert found.left_out.tolist() == [2, 3]


def test_keep_drops_clusters_below_the_size_and_not_at_it() -> None:
    partition = Partition([0, 0, 0, 1, 1, 2])
    assert partition.keep(2) == Partition([0, 0, 0, 1, 1, -1])
    assert partition.keep(3) == Partition([0, 0, 0, -1, -1, -1])
    assert partition.keep(4).num_clusters == 0


def test_it_cannot_be_changed() -> None:
    partition = Partition(np.array([0, 1]))
    with pytest.raises(ValueError, match="read-only"):
        partition.labels[0] = 1


def test_bad_labels() -> None:
    for bad in ([0.5], [-2], [[0, 1]]):
        with pytest.raises(InputError, match="labels must be"):
            Partition(bad)
    with pytest.raises(InputError, match="2 and 3 clients"):
        Partition([0, 1]).impurity(Partition([0, 1, 2]))
