from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srfca.clustering import Partition
from srfca.errors import InputError

label_lists = st.lists(st.integers(-1, 4), min_size=1, max_size=12)
clustered_lists = st.lists(st.integers(0, 3), min_size=1, max_size=8)


@given(label_lists, st.randoms(use_true_random=False))
def test_numbering_does_not_matter(labels: list[int], random: object) -> None:
    numbers = list(range(10, 15))
    random.shuffle(numbers)  # type: ignore[attr-defined]
    renumbered = [numbers[label] if label >= 0 else -1 for label in labels]
    a, b = Partition(labels), Partition(renumbered)
    assert a == b
    assert hash(a) == hash(b)
    for i, first in enumerate(labels):
        for j, second in enumerate(labels):
            assert (a.labels[i] == a.labels[j]) == (first == second)
        assert (a.labels[i] == -1) == (first == -1)
    assert a.labels[a.labels >= 0].tolist()[:1] in ([], [0])


@given(label_lists)
def test_clusters_are_iterated_in_order(labels: list[int]) -> None:
    partition = Partition(labels)
    clusters = list(partition)
    assert len(clusters) == partition.num_clusters
    for cluster, members in enumerate(clusters):
        assert members.tolist() == partition.members(cluster).tolist()
        assert np.flatnonzero(partition.membership()[cluster]).tolist() == members.tolist()
    assert [len(members) for members in clusters] == partition.sizes.tolist()
    assert sum(map(len, clusters)) + len(partition.unclustered) == len(partition) == len(labels)


@given(clustered_lists, st.data())
def test_misclustering_is_the_best_one_to_one_matching(
    truth: list[int], data: st.DataObject
) -> None:
    labels = data.draw(st.lists(st.integers(-1, 3), min_size=len(truth), max_size=len(truth)))
    best = max(
        sum(label >= 0 and order[label] == t for label, t in zip(labels, truth, strict=True))
        for order in permutations(range(4))
    )
    expected = 1 - best / len(truth)
    assert Partition(labels).misclustering(Partition(truth)) == pytest.approx(expected)


@given(clustered_lists, st.data())
def test_impurity_counts_clients_outside_their_clusters_majority(
    truth: list[int], data: st.DataObject
) -> None:
    labels = data.draw(st.lists(st.integers(-1, 3), min_size=len(truth), max_size=len(truth)))
    correct = 0
    for cluster in set(labels) - {-1}:
        inside = [t for label, t in zip(labels, truth, strict=True) if label == cluster]
        correct += max(inside.count(t) for t in inside)
    expected = 1 - correct / len(truth)
    partition = Partition(labels)
    assert partition.impurity(Partition(truth)) == pytest.approx(expected)
    assert partition.purity(Partition(truth)) == pytest.approx(1 - expected)


def test_scores_of_equal_partitions() -> None:
    a, b = Partition([0, 0, 1, 1, 2]), Partition([2, 2, 0, 0, 1])
    assert [a.misclustering(b), a.impurity(b), a.ari(b)] == [0, 0, 1]
    assert a.nmi(b) == pytest.approx(1)


def test_unclustered_clients_are_wrong() -> None:
    truth = Partition([0, 0, 1, 1])
    partition = Partition([0, 0, -1, -1])
    assert partition.misclustering(truth) == 0.5
    assert partition.impurity(truth) == 0.5
    assert partition.ari(truth) < 1
    assert partition.unclustered.tolist() == [2, 3]
    assert repr(partition) == "Partition(2 in cluster 0, 2 unclustered)"


def test_drop_smaller_than_keeps_clusters_of_exactly_the_size() -> None:
    partition = Partition([0, 0, 0, 1, 1, 2])
    assert partition.drop_smaller_than(2) == Partition([0, 0, 0, 1, 1, -1])
    assert partition.drop_smaller_than(3) == Partition([0, 0, 0, -1, -1, -1])
    assert partition.drop_smaller_than(4).num_clusters == 0


@given(label_lists, st.data())
def test_embed_keeps_labels_and_leaves_other_clients_unclustered(
    labels: list[int], data: st.DataObject
) -> None:
    num_clients = data.draw(st.integers(len(labels), 20))
    order = data.draw(st.permutations(range(num_clients)))
    clients = np.array(order[: len(labels)])
    embedded = Partition(labels).embed(clients, num_clients)
    assert len(embedded) == num_clients
    assert Partition(embedded.labels[clients]) == Partition(labels)
    assert set(embedded.unclustered.tolist()) >= set(order[len(labels) :])


def test_labels_are_read_only() -> None:
    partition = Partition(np.array([0, 1]))
    with pytest.raises(ValueError, match="read-only"):
        partition.labels[0] = 1


def test_invalid_labels_are_refused() -> None:
    for invalid in ([0.5], [-2], [[0, 1]]):
        with pytest.raises(InputError, match="labels must be"):
            Partition(invalid)
    with pytest.raises(InputError, match="2 and 3 clients"):
        Partition([0, 1]).impurity(Partition([0, 1, 2]))


def test_scores_of_no_clients() -> None:
    nobody = Partition([])
    assert nobody.misclustering(nobody) == nobody.impurity(nobody) == 0
    assert nobody.purity(nobody) == 1
