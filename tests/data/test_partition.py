from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from srfca.data.partition import SizeRule, federate
from srfca.data.partitioners import DirichletPartitioner, PathologicalPartitioner
from srfca.data.transforms import (
    Transform,
    gaussian_noise,
    invert,
    label_noise,
    rotate,
    unchanged,
)
from srfca.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (120, 5, 5)).astype(np.uint8)
Y = np.arange(120) % 4


def tagged(tag: int) -> Transform:
    return lambda x, y: (x, y + 1000 * tag)


@settings(max_examples=60)
@given(
    num_clients=st.integers(1, 12),
    clusters=st.integers(1, 4),
    sizes=st.sampled_from(["balanced", "lognormal", 5]),
    reuse=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_sample_goes_to_at_most_one_client(
    num_clients: int, clusters: int, sizes: SizeRule | int, reuse: bool, seed: int
) -> None:
    if clusters > num_clients:
        return
    x, y = np.arange(120, dtype=np.float32).reshape(120, 1), np.arange(120)
    transforms = [tagged(c) for c in range(clusters)]
    dealt = federate(
        x, y, num_clients=num_clients, clusters=transforms, sizes=sizes, reuse=reuse, test=(x, y),
        standardize="no", seed=seed,
    )  # fmt: skip
    assert dealt.truth is not None
    assert dealt.test is not None
    assert dealt.truth.labels.tolist() == [i % clusters for i in range(num_clients)]
    for part, full in ((dealt.train, sizes == "balanced"), (dealt.test, True)):
        seen: Counter[int] = Counter()
        for client in range(num_clients):
            inputs, labels = part.of(client)
            assert torch.equal(inputs[:, 0].long(), labels % 1000), "samples keep their labels"
            assert set((labels // 1000).tolist()) == {client % clusters}
            seen.update(labels.tolist() if reuse else (labels % 1000).tolist())
        assert max(seen.values()) == 1
        if full:
            assert len(seen) == 120 * (clusters if reuse else 1)
    if sizes == 5:
        assert dealt.train.sizes.tolist() == [5] * num_clients
    if sizes == "balanced" and reuse:
        per_cluster = dealt.train.sizes[dealt.truth.members(0)]
        assert int(per_cluster.max() - per_cluster.min()) <= 1


def test_clusters_and_clients_of_unequal_sizes() -> None:
    three = [unchanged, rotate(90), rotate(180)]
    dealt = federate(
        X, Y, num_clients=10, clusters=three, shares=[0.7, 0.2, 0.1], sizes="lognormal"
    )
    assert dealt.truth is not None
    assert sorted(dealt.truth.sizes.tolist()) == [1, 2, 7]
    assert int(dealt.train.sizes.max()) > 2 * int(dealt.train.sizes.min())
    for num_clients, expected in ((7, [1, 2, 2, 2]), (4, [1] * 4), (9, [2, 2, 2, 3])):
        four = federate(X, Y, num_clients=num_clients, clusters=[*three, invert], shares=[0.25] * 4)
        assert four.truth is not None
        assert sorted(four.truth.sizes.tolist()) == expected
    few = federate(X, Y, num_clients=3, clusters=three, shares=[0.9, 0.05, 0.05])
    assert few.truth is not None
    assert few.truth.sizes.tolist() == [1, 1, 1]
    for sizes in ([2, 3, 40, 50], np.array([2, 3, 40, 50])):
        listed = federate(X, Y, num_clients=4, clusters=three[:2], sizes=sizes)
        assert listed.train.sizes.tolist() == [2, 3, 40, 50]
    with pytest.raises(InputError, match="there are 0 sizes for 4 clients"):
        federate(X, Y, num_clients=4, clusters=three, sizes=np.array([], dtype=np.int64))
    alike = federate(X, Y, num_clients=4, clusters=three[:2], sizes=np.int64(5))  # type: ignore[arg-type]
    assert alike.train.sizes.tolist() == [5] * 4


def test_standardized_inputs_have_mean_0_and_deviation_1() -> None:
    dealt = federate(X, Y, num_clients=6, clusters=[unchanged, invert], test=(X[:30], Y[:30]))
    assert dealt.train.x.mean().item() == pytest.approx(0, abs=1e-5)
    assert dealt.train.x.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    colors = np.stack([X, X // 2, 0 * X], axis=1)
    dealt = federate(colors, Y, num_clients=3, clusters=[unchanged])
    torch.testing.assert_close(dealt.train.x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    deviations = dealt.train.x.std((0, 2, 3), correction=0)
    torch.testing.assert_close(deviations, torch.tensor([1.0, 1.0, 0.0]), atol=1e-5, rtol=0)
    alone = federate(X, Y, num_clients=6, clusters=[unchanged, invert], standardize="client")
    for client in range(6):
        x = alone.train.of(client)[0]
        assert x.mean().item() == pytest.approx(0, abs=1e-5)
        assert x.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    plain = federate(X, Y, num_clients=3, clusters=[unchanged], standardize="no")
    assert (plain.train.x.min().item(), plain.train.x.max().item()) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_clients": 1}, "num_clients must be at least 2"),
        ({"num_clients": 100}, "too few"),
        ({"shares": [0.5, 0.4]}, "shares must be 2 positive numbers that sum to 1"),
        ({"sizes": "even"}, "sizes must be 'balanced'"),
        ({"sizes": [3, 3]}, "2 sizes for 4 clients"),
        ({"sizes": 1}, "at least 2 samples"),
        ({"sizes": 50}, "ask for 100 samples of a cluster that has 60"),
        ({"standardize": "clients"}, "did you mean 'client'"),
        ({"clusters": []}, "at least one cluster"),
        ({"y": Y[:-1]}, "120 samples but 119 labels"),
    ],
)
def test_invalid_arguments_are_refused(settings: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "x": X,
        "y": Y,
        "num_clients": 4,
        "clusters": [unchanged, invert],
    }
    arguments |= settings
    with pytest.raises(InputError, match=message):
        federate(arguments.pop("x"), arguments.pop("y"), **arguments)  # type: ignore[arg-type]


def test_a_partitioner_deals_inside_each_cluster() -> None:
    x, y = np.arange(1200, dtype=np.float32).reshape(1200, 1), np.arange(1200) % 10
    two = PathologicalPartitioner(2)
    dealt = federate(
        x, y, num_clients=12, clusters=[tagged(0), tagged(1)], partitioner=two, test=(x, y),
        standardize="no", seed=3,
    )  # fmt: skip
    assert dealt.test is not None
    seen: set[float] = set()
    for client in range(12):
        inputs, labels = dealt.train.of(client)
        assert len(labels.unique()) == 2
        assert set((labels // 1000).tolist()) == {client % 2}
        assert torch.equal(inputs[:, 0].long() % 10, labels % 1000), "samples keep their labels"
        test_labels = dealt.test.of(client)[1]
        assert set(test_labels.tolist()) == set(labels.tolist())
        assert not seen & set(inputs[:, 0].tolist())
        seen |= set(inputs[:, 0].tolist())
    assert dealt.test.sizes[::2].unique().numel() == 1
    again = federate(
        x, y, num_clients=12, clusters=[tagged(0), tagged(1)], partitioner=two, test=(x, y),
        standardize="no", seed=3,
    )  # fmt: skip
    assert again.fingerprint() == dealt.fingerprint()


def test_with_a_partitioner_a_number_of_samples_is_the_mean() -> None:
    x, y = np.zeros((2000, 1), np.float32), np.arange(2000) % 10
    skewed = DirichletPartitioner(0.5, min_partition_size=5)
    dealt = federate(
        x, y, num_clients=10, clusters=[unchanged, unchanged], sizes=80, partitioner=skewed
    )
    assert int(dealt.train.sizes.sum()) == 800
    assert dealt.train.sizes.unique().numel() > 1
    for sizes, message in (("lognormal", "use SizePartitioner"), (1000, "ask for 5000 samples")):
        with pytest.raises(InputError, match=message):
            federate(
                x, y, num_clients=10, clusters=[unchanged, unchanged], sizes=sizes,  # type: ignore[arg-type]
                partitioner=skewed,
            )  # fmt: skip


def test_random_transforms_draw_for_each_client_separately() -> None:
    noisy = gaussian_noise(5)
    gray = np.full((80, 6, 6), 0.5, np.float32)
    arguments = {"num_clients": 4, "clusters": [unchanged, noisy], "standardize": "no"}
    dealt = federate(gray, np.arange(80) % 4, test=(gray, np.arange(80) % 4), **arguments)  # type: ignore[arg-type]
    assert dealt.test is not None
    deviations = [float(dealt.train.of(client)[0].std()) for client in range(4)]
    assert deviations[0] == deviations[2] == 0
    assert min(deviations[1], deviations[3]) > 0.05
    images = torch.cat([dealt.train.of(1)[0], dealt.train.of(3)[0], dealt.test.of(1)[0]])
    assert len(images.unique(dim=0)) == len(images), "no noise occurs twice"
    again = federate(gray, np.arange(80) % 4, test=(gray, np.arange(80) % 4), **arguments)  # type: ignore[arg-type]
    assert again.fingerprint() == dealt.fingerprint()


def test_transforms_of_single_clients_do_not_change_the_truth() -> None:
    noise = label_noise(1.0, 4, splits="train")
    arguments = {"num_clients": 6, "clusters": [unchanged, invert], "test": (X, Y), "seed": 2}
    plain = federate(X, Y, **arguments)  # type: ignore[arg-type]
    noisy = federate(X, Y, client_transforms={1: noise, 4: rotate(90)}, **arguments)  # type: ignore[arg-type]
    assert plain.test is not None
    assert noisy.test is not None
    assert plain.truth is not None
    assert noisy.truth == plain.truth
    assert (noisy.train.of(1)[1] != plain.train.of(1)[1]).all()
    assert torch.equal(noisy.test.of(1)[1], plain.test.of(1)[1]), "test labels are right"
    assert torch.equal(noisy.train.of(0)[1], plain.train.of(0)[1])
    torch.testing.assert_close(noisy.train.of(4)[0], plain.train.of(4)[0].rot90(1, (1, 2)))
    with pytest.raises(InputError, match="has a client 6, but there are 6 clients"):
        federate(X, Y, num_clients=6, clusters=[unchanged], client_transforms={6: noise})


def test_label_noise_does_not_change_which_test_samples_a_client_gets() -> None:
    """Test samples follow the right labels, not the noisy ones."""
    noise = label_noise(0.9, 4, splits="train")
    tests = [
        federate(
            X, Y, num_clients=4, clusters=[transform], test=(X, Y),
            partitioner=PathologicalPartitioner(1, "deterministic"),
        ).test
        for transform in (unchanged, noise)
    ]  # fmt: skip
    assert tests[0] is not None
    assert tests[1] is not None
    assert torch.equal(tests[0].y, tests[1].y)


def test_outliers_are_clusters_of_one_client_each() -> None:
    x, y = np.arange(120, dtype=np.float32).reshape(120, 1), np.arange(120)
    for reuse in (False, True):
        dealt = federate(
            x, y, num_clients=10, clusters=[tagged(0), tagged(1)], outliers=[tagged(2), tagged(3)],
            test=(x, y), reuse=reuse, standardize="no",
        )  # fmt: skip
        assert dealt.truth is not None
        assert dealt.test is not None
        assert dealt.truth.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 2, 3]
        tags = [int(dealt.train.of(client)[1][0] // 1000) for client in range(10)]
        assert tags == dealt.truth.labels.tolist()
        assert dealt.train.sizes.tolist() == [30 if reuse else 12] * 10
        assert dealt.test.sizes.tolist() == [30 if reuse else 12] * 10
    uneven = federate(
        x, y, num_clients=12, clusters=[tagged(0), tagged(1)], shares=[0.8, 0.2],
        outliers=[tagged(2), tagged(3)], sizes=4,
    )  # fmt: skip
    assert uneven.truth is not None
    assert uneven.truth.sizes.tolist() == [8, 2, 1, 1]
    with pytest.raises(InputError, match=r"at least 3 .clusters and outliers., not 2"):
        federate(x, y, num_clients=2, clusters=[tagged(0)], outliers=[tagged(1), tagged(2)])


@pytest.mark.parametrize("number", [2**31, 10**20, 0, 4.0, True, None, torch.tensor(4), "4"])
def test_impossible_numbers_of_clients_are_refused_at_once(number: object) -> None:
    with pytest.raises(InputError, match="num_clients"):
        federate(X, Y, num_clients=number, clusters=[unchanged])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"seed": 0.5}, {"seed": -1}, {"sizes": [2.5] * 4}, {"shares": 1.0}, {"sizes": b"x"}]
)
def test_arguments_of_wrong_types_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        federate(X, Y, num_clients=4, clusters=[unchanged], **wrong)
