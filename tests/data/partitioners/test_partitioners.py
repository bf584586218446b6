"""What all partitioners promise: disjoint parts, enough samples, and the same parts by the seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from srfca.data.partitioners import (
    MIN_SAMPLES,
    DirichletPartitioner,
    ExponentialPartitioner,
    ExtendedDirichletPartitioner,
    IidPartitioner,
    InnerDirichletPartitioner,
    LinearPartitioner,
    Partitioner,
    PathologicalPartitioner,
    ShardPartitioner,
    SizePartitioner,
    SquarePartitioner,
)
from srfca.errors import InputError

LABELS = np.random.default_rng(0).integers(0, 10, 2000)
PARTITIONERS: list[Partitioner] = [
    IidPartitioner(),
    SizePartitioner((20, 2, 100, 30, 7, 7)),
    LinearPartitioner(),
    SquarePartitioner(),
    ExponentialPartitioner(),
    DirichletPartitioner(0.3),
    DirichletPartitioner(0.5, self_balancing=True),
    DirichletPartitioner(100.0, min_partition_size=50),
    ExtendedDirichletPartitioner(3, alpha=1.0),
    ExtendedDirichletPartitioner(2, alpha=5.0, self_balancing=False),
    InnerDirichletPartitioner(0.3),
    InnerDirichletPartitioner(1.0, partition_sizes=40, relative=True),
    InnerDirichletPartitioner(0.1, partition_sizes=(50, 2, 3, 500, 900, 500)),
    PathologicalPartitioner(2),
    PathologicalPartitioner(3, "deterministic"),
    PathologicalPartitioner(3, "first-deterministic"),
    ShardPartitioner(num_shards_per_partition=2),
    ShardPartitioner(shard_size=70),
    ShardPartitioner(shard_size=70, keep_incomplete_shard=True),
    ShardPartitioner(num_shards_per_partition=3, shard_size=20),
]
COMPLETE = (
    IidPartitioner,
    LinearPartitioner,
    SquarePartitioner,
    ExponentialPartitioner,
    DirichletPartitioner,
    ExtendedDirichletPartitioner,
)
"""Partitioners that deal all samples."""


def class_shares(labels: NDArray[np.int64], part: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(np.bincount(labels[part], minlength=10) / len(part))


def skew(partitioner: Partitioner, num_partitions: int = 20) -> float:
    """The mean distance in total variation between a client's class shares and all clients'."""
    parts = partitioner.partition(LABELS, num_partitions, 1)
    overall = class_shares(LABELS, np.arange(len(LABELS)))
    return float(np.mean([abs(class_shares(LABELS, part) - overall).sum() / 2 for part in parts]))


@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=str)
@given(seed=st.integers(0, 10**6))
def test_parts_are_disjoint_large_enough_and_reproducible(
    partitioner: Partitioner, seed: int
) -> None:
    parts = partitioner.partition(LABELS, 6, seed)
    dealt = np.concatenate(parts)
    assert len(parts) == 6
    assert len(np.unique(dealt)) == len(dealt), "every sample at most once"
    assert dealt.min() >= 0
    assert dealt.max() < len(LABELS)
    assert min(len(part) for part in parts) >= MIN_SAMPLES
    if isinstance(partitioner, COMPLETE):
        assert len(dealt) == len(LABELS)
    again = partitioner.partition(LABELS, 6, np.random.default_rng(seed))
    assert all(np.array_equal(part, other) for part, other in zip(parts, again, strict=True))


@given(
    num_classes=st.integers(1, 12),
    num_partitions=st.integers(1, 15),
    size=st.integers(30, 60),
    alpha=st.floats(0.05, 50),
    each=st.integers(1, 3),
    seed=st.integers(0, 999),
)
def test_any_labels_are_dealt_or_refused_with_a_reason(
    num_classes: int, num_partitions: int, size: int, alpha: float, each: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).integers(5, 5 + num_classes, size)
    for partitioner in (
        IidPartitioner(),
        LinearPartitioner(),
        ExponentialPartitioner(),
        DirichletPartitioner(alpha, min_partition_size=2),
        DirichletPartitioner(alpha, min_partition_size=2, self_balancing=True),
        ExtendedDirichletPartitioner(each, alpha, min_partition_size=2),
        InnerDirichletPartitioner(alpha),
        InnerDirichletPartitioner(alpha, partition_sizes=2, relative=True),
        PathologicalPartitioner(each),
        ShardPartitioner(each),
    ):
        try:
            parts = partitioner.partition(labels, num_partitions, seed)
        except InputError:
            continue
        dealt = np.concatenate(parts)
        assert len(parts) == num_partitions
        assert len(np.unique(dealt)) == len(dealt)
        assert min(len(part) for part in parts) >= MIN_SAMPLES


def test_seeds_give_different_parts() -> None:
    for partitioner in PARTITIONERS:
        one, other = (partitioner.partition(LABELS, 6, seed) for seed in (1, 2))
        assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "family",
    [
        DirichletPartitioner,
        InnerDirichletPartitioner,
        lambda alpha: InnerDirichletPartitioner(10 * alpha, relative=True),
    ],
)
def test_small_alpha_is_skewed_and_large_alpha_nearly_iid(
    family: Callable[[float], Partitioner],
) -> None:
    iid = skew(IidPartitioner())
    skews = [skew(family(alpha)) for alpha in (0.1, 0.3, 1.0, 1000.0)]
    assert skews[0] > 0.6
    assert skews[0] > skews[1] > skews[2] > skews[3]
    assert skews[2] > 2 * iid
    assert skews[3] < 1.5 * iid


def test_sizes_by_position() -> None:
    sizes = {
        name: [len(part) for part in partitioner.partition(LABELS, 8)]
        for name, partitioner in {
            "iid": IidPartitioner(),
            "linear": LinearPartitioner(),
            "square": SquarePartitioner(),
            "exponential": ExponentialPartitioner(),
        }.items()
    }
    assert sizes["iid"] == [250] * 8
    for name in ("linear", "square", "exponential"):
        assert sizes[name] == sorted(sizes[name])
        assert sum(sizes[name]) == 2000
    assert sizes["linear"][7] / sizes["linear"][3] == pytest.approx(2, rel=0.05)
    assert sizes["square"][7] / sizes["square"][3] == pytest.approx(4, rel=0.05)
    assert sizes["exponential"][7] / sizes["exponential"][6] == pytest.approx(np.e, rel=0.05)
    assert [len(p) for p in ExponentialPartitioner().partition(LABELS, 900)][:500] == [2] * 500


def test_self_balancing_makes_sizes_more_equal() -> None:
    plain, balanced = (
        DirichletPartitioner(0.3, 2, balancing).partition(LABELS, 10, 3)
        for balancing in (False, True)
    )
    assert np.std([len(part) for part in balanced]) < np.std([len(part) for part in plain])


def test_clients_have_their_number_of_classes() -> None:
    for partitioner in (
        PathologicalPartitioner(2),
        PathologicalPartitioner(2, "first-deterministic"),
    ):
        for part in partitioner.partition(LABELS, 12, 5):
            assert len(np.unique(LABELS[part])) == 2
    first = PathologicalPartitioner(3, "first-deterministic").partition(LABELS, 12, 5)
    assert all(client % 10 in LABELS[part] for client, part in enumerate(first))
    exact = PathologicalPartitioner(3, "deterministic").partition(LABELS, 12)
    for client, part in enumerate(exact):
        assert set(LABELS[part].tolist()) == {(client + step) % 10 for step in range(3)}
    extended = ExtendedDirichletPartitioner(4, 100.0).partition(LABELS, 12, 5)
    assert {len(np.unique(LABELS[part])) for part in extended} == {4}
    assert set(LABELS[np.concatenate(extended)].tolist()) == set(range(10))


@given(num_clients=st.integers(1, 20), each=st.integers(1, 10), seed=st.integers(0, 99))
def test_extended_dirichlet_leaves_no_class_out(num_clients: int, each: int, seed: int) -> None:
    """If there are enough clients, every class is dealt, also where random draws rarely do."""
    partitioner = ExtendedDirichletPartitioner(each, 10.0, min_partition_size=2)
    parts = partitioner.partition(LABELS, num_clients, seed)
    classes = len(np.unique(LABELS[np.concatenate(parts)]))
    assert classes == 10 if each * num_clients >= 10 else classes <= each * num_clients
    assert max(len(np.unique(LABELS[part])) for part in parts) <= each


def test_shards_hold_few_classes() -> None:
    parts = ShardPartitioner(2).partition(LABELS, 20, 2)
    assert {len(part) for part in parts} == {50 * 2}
    assert max(len(np.unique(LABELS[part])) for part in parts) <= 4
    uneven = ShardPartitioner(shard_size=300).partition(LABELS, 4)
    assert sorted(len(part) for part in uneven) == [300, 300, 600, 600]
    complete = ShardPartitioner(shard_size=300, keep_incomplete_shard=True).partition(LABELS, 4)
    assert sum(len(part) for part in complete) == 2000


def test_size_partitioners_accept_targets_of_any_type() -> None:
    targets = np.random.default_rng(0).normal(size=50)
    assert [len(part) for part in IidPartitioner().partition(targets, 5)] == [10] * 5
    with pytest.raises(InputError, match="labels must be classes"):
        DirichletPartitioner(1.0).partition(targets, 5)


@pytest.mark.parametrize(
    ("partitioner", "num_partitions", "message"),
    [
        (IidPartitioner(), 0, "num_partitions must be at least 1, not 0"),
        (IidPartitioner(), 1001, "2000 samples are too few for 1001 clients"),
        (SizePartitioner((10, 10)), 3, "2 partition_sizes for 3 clients"),
        (SizePartitioner((1000, 1001)), 2, "ask for 2001 samples, but there are 2000"),
        (InnerDirichletPartitioner(1.0, 100), 21, "ask for 2100 samples"),
        (PathologicalPartitioner(11), 3, "at most the 10 classes there are, not 11"),
        (ExtendedDirichletPartitioner(11, 1.0), 3, "at most the 10 classes there are, not 11"),
        (PathologicalPartitioner(1), 900, "every client needs 2"),
        (
            DirichletPartitioner(0.01, 100),
            20,
            r"alpha=0.01 leaves one of 20 clients .* raise alpha",
        ),
        (ShardPartitioner(30), 100, "too few for 30 shards"),
        (ShardPartitioner(3, 700), 2, "2 shards of 700, but 6 are needed"),
        (ShardPartitioner(shard_size=700), 3, "2 shards of 700, but 3 are needed"),
    ],
    ids=str,
)
def test_what_cannot_be_dealt_is_refused(
    partitioner: Partitioner, num_partitions: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        partitioner.partition(LABELS, num_partitions)


def test_invalid_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="alpha must be positive, not 0"):
        DirichletPartitioner(0.0)
    with pytest.raises(InputError, match="min_partition_size must be at least 2, not 1"):
        DirichletPartitioner(1.0, min_partition_size=1)
    with pytest.raises(InputError, match="did you mean 'first-deterministic'"):
        PathologicalPartitioner(2, "first_deterministic")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="num_classes_per_partition must be at least 1, not 0"):
        PathologicalPartitioner(0)
    with pytest.raises(InputError, match="at least 2 each, but one is 1"):
        SizePartitioner((4, 1))
    with pytest.raises(InputError, match="at least 2 each, but one is 0"):
        InnerDirichletPartitioner(1.0, 0)
    with pytest.raises(InputError, match="needs num_shards_per_partition or shard_size"):
        ShardPartitioner()
    with pytest.raises(InputError, match="shard_size must be at least 1"):
        ShardPartitioner(shard_size=0)
    assert SizePartitioner([3, 4]).partition_sizes == (3, 4)  # type: ignore[arg-type]
