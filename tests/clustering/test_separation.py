"""Separation of clusters, and the clustering of largest separation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srfca import Partition
from srfca.clustering.separation import (
    MIN_SEPARATION,
    drop_scattered,
    least_separation,
    mean_distances,
    separated,
    separations,
)

Matrix = np.ndarray


def groups(sizes: list[int], apart: float, noise: float, seed: int = 0) -> tuple[Matrix, Partition]:
    """Return noisy distances of 1 within groups, and of ``apart`` across."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    labels = rng.permutation(labels)
    base = np.where(labels[:, None] == labels, 1.0, apart)
    noisy = base * np.exp(noise * rng.standard_normal(base.shape))
    distances = (noisy + noisy.T) / 2
    np.fill_diagonal(distances, 0.0)
    return distances, Partition(labels)


@given(st.integers(0, 1000), st.integers(2, 5), st.floats(0, 0.5))
def test_mean_distances_are_those_of_a_loop(seed: int, count: int, unknown: float) -> None:
    rng = np.random.default_rng(seed)
    distances = rng.random((12, 12))
    distances = distances + distances.T
    distances[rng.random((12, 12)) < unknown] = np.nan
    partition = Partition(rng.integers(-1, count, 12))
    means = mean_distances(distances, partition)
    for a, first in enumerate(partition):
        for b, second in enumerate(partition):
            values = [
                distances[i, j]
                for i in first
                for j in second
                if i != j and np.isfinite(distances[i, j])
            ] + [
                distances[j, i]
                for i in first
                for j in second
                if i != j and np.isfinite(distances[j, i])
            ]
            if values:
                assert means[a, b] == pytest.approx(np.mean(values))
            else:
                assert np.isnan(means[a, b])


def test_single_clients_have_no_separation_and_do_not_count() -> None:
    distances, _ = groups([3, 3], 4.0, 0.0)
    labels = Partition(groups([3, 3], 4.0, 0.0)[1].labels)
    assert least_separation(distances, labels) == pytest.approx(4.0)
    alone = labels.labels.copy()
    alone[np.flatnonzero(alone == 1)[1:]] = -1
    values = separations(distances, Partition(alone))
    assert np.isnan(values).all()
    assert least_separation(distances, Partition(alone)) == 0.0


@pytest.mark.parametrize("sizes", [[15, 15], [10, 10, 10], [21, 6, 3], [8, 8, 8, 8]])
@pytest.mark.parametrize("seed", range(3))
def test_groups_are_found_and_their_number(sizes: list[int], seed: int) -> None:
    distances, truth = groups(sizes, 3.0, 0.3, seed)
    found = separated(distances)[0]
    assert found.partition == truth
    assert found.separation > 2


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_found_with_many_unknown_pairs(seed: int) -> None:
    distances, truth = groups([12, 12, 12], 5.0, 0.3, seed)
    unknown = np.random.default_rng(seed).random(distances.shape) < 0.3
    distances[unknown | unknown.T] = np.nan
    found = separated(distances)[0]
    assert found.partition == truth


@pytest.mark.parametrize("seed", range(5))
def test_noise_has_no_separated_clusters(seed: int) -> None:
    distances, _ = groups([40], 1.0, 0.3, seed)
    assert all(found.separation < MIN_SEPARATION for found in separated(distances))


def test_few_clients_have_no_clusters() -> None:
    assert separated(np.ones((3, 3))) == []
    assert separated(np.full((6, 6), np.nan)) == []


def test_scattered_clusters_are_dissolved_if_they_are_small() -> None:
    distances, _ = groups([10, 10, 1, 1], 6.0, 0.1)
    labels = groups([10, 10, 1, 1], 6.0, 0.1)[1].labels
    sizes = np.bincount(labels)
    single = np.flatnonzero(sizes[labels] == 1)
    paired = labels.copy()
    paired[single] = 9
    assert drop_scattered(distances, Partition(paired), 2).unclustered.tolist() == single.tolist()
    assert drop_scattered(distances, Partition(paired), 1) == Partition(paired), "not small"
    tight = distances.copy()
    tight[np.ix_(single, single)] = 1.0
    assert drop_scattered(tight, Partition(paired), 2) == Partition(paired), "a real pair"
    one = Partition(np.zeros(22, dtype=int))
    assert drop_scattered(distances, one, 30) == one


def test_the_best_clusters_come_first_and_none_twice() -> None:
    distances, truth = groups([10, 10, 10], 3.0, 0.3, 0)
    found = separated(distances)
    assert found[0].partition == truth
    values = [clusters.separation for clusters in found[1:]]
    assert values == sorted(values, reverse=True)
    partitions = [clusters.partition.labels.tolist() for clusters in found]
    assert all(partitions.count(labels) == 1 for labels in partitions)
