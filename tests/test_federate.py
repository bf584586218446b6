from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from srfca import data
from srfca.data.federate import federate
from srfca.data.transforms import (
    Transform,
    invert,
    only_classes,
    permute_labels,
    rotate,
    shift_features,
    unchanged,
)
from srfca.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (120, 5, 5)).astype(np.uint8)
Y = np.arange(120) % 4


def test_rotations_are_counter_clockwise_and_exact() -> None:
    for quarter in range(4):
        turned, labels = rotate(90 * quarter)(X, Y)
        assert np.array_equal(turned, np.stack([np.rot90(image, quarter) for image in X]))
        assert labels is Y
    colours = np.stack([X, X, X], axis=1)
    assert np.array_equal(rotate(180)(colours, Y)[0], colours[:, :, ::-1, ::-1])
    slanted = rotate(45)(X.astype(np.float32), Y)[0]
    assert slanted.shape == X.shape
    centre = np.zeros((1, 5, 5), np.float32)
    centre[0, 2, 2] = 1
    np.testing.assert_allclose(rotate(30)(centre, Y[:1])[0][0, 2, 2], 1, atol=1e-5)


def test_inversion_undoes_itself() -> None:
    assert np.array_equal(invert(*invert(X, Y))[0], X)
    assert int(invert(X, Y)[0].max()) == 255 - int(X.min())
    assert invert(X, Y)[0].dtype == np.uint8
    fractions = X / np.float32(255)
    np.testing.assert_allclose(invert(fractions, Y)[0], 1 - fractions)


def test_labels_and_features() -> None:
    assert permute_labels([1, 2, 3, 0])(X, Y)[1].tolist() == ((Y + 1) % 4).tolist()
    kept, labels = only_classes([1, 3])(X, Y)
    assert set(labels.tolist()) == {1, 3}
    assert np.array_equal(kept, X[np.isin(Y, [1, 3])])
    np.testing.assert_allclose(shift_features(2.5)(X, Y)[0], X + 2.5)
    with pytest.raises(InputError, match="each class from 0 to 2 once"):
        permute_labels([0, 0, 2])
    for wrong, match in ((Y, "from 0 to 3"), (Y - 1, "from -1 to 2")):
        with pytest.raises(InputError, match=f"order names classes 0 to 2, but labels are {match}"):
            permute_labels([0, 1, 2])(X, wrong)
    with pytest.raises(InputError, match="rotate needs images"):
        rotate(90)(X[:, 0, 0], Y)


def tagged(tag: int) -> Transform:
    return lambda x, y: (x, y + 1000 * tag)


@settings(max_examples=60)
@given(
    clients=st.integers(1, 12),
    clusters=st.integers(1, 4),
    sizes=st.sampled_from(["balanced", "lognormal", 5]),
    reuse=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_sample_goes_to_at_most_one_client(
    clients: int, clusters: int, sizes: str | int, reuse: bool, seed: int
) -> None:
    if clusters > clients:
        return
    x, y = np.arange(120, dtype=np.float32).reshape(120, 1), np.arange(120)
    transforms = [tagged(c) for c in range(clusters)]
    made = federate(
        x, y, clients=clients, clusters=transforms, sizes=sizes, reuse=reuse, test=(x, y),
        standardise="no", seed=seed,
    )  # fmt: skip
    assert made.truth is not None
    assert made.test is not None
    assert made.truth.labels.tolist() == [i % clusters for i in range(clients)]
    for part, full in ((made.train, sizes == "balanced"), (made.test, True)):
        seen: Counter[int] = Counter()
        for client in range(clients):
            inputs, labels = part.of(client)
            assert torch.equal(inputs[:, 0].long(), labels % 1000), "samples keep their labels"
            assert set((labels // 1000).tolist()) == {client % clusters}
            seen.update(labels.tolist() if reuse else (labels % 1000).tolist())
        assert max(seen.values()) == 1
        if full:
            assert len(seen) == 120 * (clusters if reuse else 1)
    if sizes == 5:
        assert made.train.sizes.tolist() == [5] * clients
    if sizes == "balanced" and reuse:
        per_cluster = made.train.sizes[made.truth.members(0)]
        assert int(per_cluster.max() - per_cluster.min()) <= 1


def test_unequal_clusters_and_clients() -> None:
    three = [unchanged, rotate(90), rotate(180)]
    made = federate(X, Y, clients=10, clusters=three, shares=[0.7, 0.2, 0.1], sizes="lognormal")
    assert made.truth is not None
    assert sorted(made.truth.sizes.tolist()) == [1, 2, 7]
    assert int(made.train.sizes.max()) > 2 * int(made.train.sizes.min())
    for clients, expected in ((7, [1, 2, 2, 2]), (4, [1] * 4), (9, [2, 2, 2, 3])):
        four = federate(X, Y, clients=clients, clusters=[*three, invert], shares=[0.25] * 4)
        assert four.truth is not None
        assert sorted(four.truth.sizes.tolist()) == expected
    few = federate(X, Y, clients=3, clusters=three, shares=[0.9, 0.05, 0.05])
    assert few.truth is not None
    assert few.truth.sizes.tolist() == [1, 1, 1]
    listed = federate(X, Y, clients=4, clusters=three[:2], sizes=[2, 3, 40, 50])
    assert listed.train.sizes.tolist() == [2, 3, 40, 50]
    alike = federate(X, Y, clients=4, clusters=three[:2], sizes=np.int64(5))  # type: ignore[arg-type]
    assert alike.train.sizes.tolist() == [5] * 4


def test_standardised_inputs_have_moments_0_and_1() -> None:
    made = federate(X, Y, clients=6, clusters=[unchanged, invert], test=(X[:30], Y[:30]))
    assert made.train.x.mean().item() == pytest.approx(0, abs=1e-5)
    assert made.train.x.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    colours = np.stack([X, X // 2, 0 * X], axis=1)
    made = federate(colours, Y, clients=3, clusters=[unchanged])
    torch.testing.assert_close(made.train.x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    deviations = made.train.x.std((0, 2, 3), correction=0)
    torch.testing.assert_close(deviations, torch.tensor([1.0, 1.0, 0.0]), atol=1e-5, rtol=0)
    alone = federate(X, Y, clients=6, clusters=[unchanged, invert], standardise="client")
    for client in range(6):
        x = alone.train.of(client)[0]
        assert x.mean().item() == pytest.approx(0, abs=1e-5)
        assert x.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    plain = federate(X, Y, clients=3, clusters=[unchanged], standardise="no")
    assert (plain.train.x.min().item(), plain.train.x.max().item()) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clients": 1}, "clients must be at least 2"),
        ({"clients": 100}, "too few"),
        ({"shares": [0.5, 0.4]}, "shares must be 2 positive numbers that sum to 1"),
        ({"sizes": "even"}, "sizes must be 'balanced'"),
        ({"sizes": [3, 3]}, "2 sizes for 4 clients"),
        ({"sizes": 1}, "at least 2 samples"),
        ({"sizes": 50}, "ask for 100 samples of a cluster that has 60"),
        ({"standardise": "clients"}, "did you mean 'client'"),
        ({"clusters": []}, "at least one cluster"),
        ({"y": Y[:-1]}, "120 samples but 119 labels"),
    ],
)
def test_federate_refuses(settings: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"x": X, "y": Y, "clients": 4, "clusters": [unchanged, invert]}
    given |= settings
    with pytest.raises(InputError, match=message):
        federate(given.pop("x"), given.pop("y"), **given)  # type: ignore[arg-type]


def test_the_papers_federations(real_data: object) -> None:
    folder = str(real_data("mnist"))  # type: ignore[operator]
    made = data.rotated_mnist(folder=folder, seed=1)
    assert len(made) == 100
    assert set(made.train.sizes.tolist()) == {600}
    assert made.truth is not None
    assert made.truth.sizes.tolist() == [25] * 4
    plain = data.rotated_mnist(folder=folder, rotations=1, clients=4)
    turned = data.rotated_mnist(folder=folder, rotations=4, clients=4)
    assert plain.train.x.shape == turned.train.x.shape
    inverted = data.inverted_mnist(folder=folder, clients=10, standardise="federation")
    light, dark = (inverted.train.of(client)[0].mean().item() for client in (1, 0))
    assert light > 0.5
    assert dark < -0.5
    with pytest.raises(InputError, match="rotations must be"):
        data.rotated_mnist(folder=folder, rotations=3)


def test_federations_of_users(real_data: object) -> None:
    folder = str(real_data("femnist"))  # type: ignore[operator]
    writers = data.femnist(folder=folder, clients=20, seed=3)
    assert len(writers) == 20
    assert writers.test is not None
    assert int((writers.train.sizes + writers.test.sizes).min()) >= 100
    assert int(writers.train.y.max()) < 62
    assert writers.truth is None
    others = data.femnist(folder=folder, clients=20, seed=4)
    assert set(writers.clients) != set(others.clients)
    with pytest.raises(InputError, match="at most the 272 users"):
        data.femnist(folder=folder, clients=1000)
    folder = str(real_data("shakespeare"))  # type: ignore[operator]
    roles = data.shakespeare(folder=folder, clients=5, max_samples=100)
    assert set(roles.train.sizes.tolist()) == {100}
    assert roles.train.x.shape[1:] == (80,)
    assert int(roles.train.x.max()) < 80
