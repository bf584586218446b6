from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srfca.data.partitioners import (
    DirichletPartitioner,
    IidPartitioner,
    Partitioner,
    PathologicalPartitioner,
    matching_partition,
)
from srfca.errors import InputError

TRAIN = np.random.default_rng(0).integers(0, 10, 6000)
TEST = np.random.default_rng(1).integers(0, 10, 1000)


@pytest.mark.parametrize(
    "partitioner",
    [IidPartitioner(), DirichletPartitioner(0.3), PathologicalPartitioner(2)],
    ids=str,
)
@given(num_clients=st.integers(1, 40), seed=st.integers(0, 999))
def test_test_samples_have_the_labels_of_the_training_samples(
    partitioner: Partitioner, num_clients: int, seed: int
) -> None:
    parts = partitioner.partition(TRAIN, num_clients, seed)
    held = [TRAIN[part] for part in parts]
    matched = matching_partition(held, TEST, seed)
    dealt = np.concatenate(matched)
    assert len(np.unique(dealt)) == len(dealt), "every sample at most once"
    [size] = {len(part) for part in matched}
    if not isinstance(partitioner, PathologicalPartitioner):
        assert size >= 1000 / num_clients / 4, "most of the samples are used"
    for labels, part in zip(held, matched, strict=True):
        expected = np.bincount(labels, minlength=10) / len(labels) * size
        counts = np.bincount(TEST[part], minlength=10)
        assert abs(counts - expected).max() < 1
    again = matching_partition(held, TEST, seed)
    assert all(np.array_equal(a, b) for a, b in zip(matched, again, strict=True))


def test_equal_shares_use_nearly_all_samples_however_few_there_are() -> None:
    """Rounding must not give all clients the same classes."""
    alike = [np.arange(10)] * 100
    labels = np.arange(500) % 10
    parts = matching_partition(alike, labels)
    assert {len(part) for part in parts} == {5}
    assert np.bincount(labels[np.concatenate(parts)]).tolist() == [50] * 10


def test_other_targets_are_one_class() -> None:
    targets = np.random.default_rng(0).normal(size=30)
    parts = matching_partition([targets, targets[:5]], targets)
    assert [len(part) for part in parts] == [15, 15]


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(InputError, match="0 of class 1, 4 in all"):
        matching_partition([[0, 1], [0, 0]], [0, 0, 0, 0])
    with pytest.raises(InputError, match="1 test samples for 2 clients"):
        matching_partition([[0, 1], [0, 0]], [0])
