"""eps1, eps2, lambda, cluster labels and impurities against plain definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srfca import InputError, Partition
from srfca.theory import (
    Separations,
    best_threshold,
    cluster_impurities,
    cluster_labels,
    separations,
)
from srfca.theory.quantities import l2_distances

labelings = st.lists(st.integers(-1, 2), min_size=2, max_size=7)


@given(labelings, st.integers(0, 99))
def test_separations_are_the_largest_inside_and_the_smallest_across(
    labels: list[int], seed: int
) -> None:
    models = np.random.default_rng(seed).normal(size=(len(labels), 3))
    pairs = [(i, j) for i in range(len(labels)) for j in range(i) if min(labels[i], labels[j]) >= 0]
    gaps = {(i, j): float(np.linalg.norm(models[i] - models[j])) for i, j in pairs}
    inside = [gap for (i, j), gap in gaps.items() if labels[i] == labels[j]]
    across = [gap for (i, j), gap in gaps.items() if labels[i] != labels[j]]
    found = separations(l2_distances(models), Partition(labels))
    assert found.eps1 == pytest.approx(max(inside, default=0.0))
    assert found.eps2 == pytest.approx(min(across, default=np.inf))


def test_lambda_is_in_the_middle() -> None:
    assert best_threshold(Separations(0.5, 1.5)) == 1.0


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2)), min_size=1, max_size=9))
def test_impurities_count_clients_from_elsewhere(both: list[tuple[int, int]]) -> None:
    partition = Partition([cluster for cluster, _ in both])
    truth = Partition([true for _, true in both])
    labels, impurities = cluster_labels(partition, truth), cluster_impurities(partition, truth)
    assert len(labels) == len(impurities) == partition.num_clusters
    for label, impurity, members in zip(labels, impurities, partition, strict=True):
        shares = [float(np.mean(truth.labels[members] == true)) for true in range(3)]
        assert shares[label] == max(shares)
        assert impurity == pytest.approx(1 - max(shares))
    if not len(partition.unclustered):
        total = float((impurities * partition.sizes).sum()) / len(partition)
        assert total == pytest.approx(partition.impurity(truth))


def test_distances_must_be_of_all_clients() -> None:
    with pytest.raises(InputError, match=r"distances must be \[3, 3\] for 3 clients"):
        separations(np.zeros((2, 2)), Partition([0, 0, 1]))
