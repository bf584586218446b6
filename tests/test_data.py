from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import ClientData, data
from srfca.data.clients import hold_out
from srfca.data.digits import read_digits
from srfca.errors import InputError


def test_synthetic_is_as_the_paper_has_it() -> None:
    made = data.synthetic(clients=10, samples=400, dimension=50, seed=3)
    assert made.optima is not None
    assert made.test is not None
    assert set(made.optima.flatten().tolist()) == {0.0, 1.0}
    assert made.truth is not None
    assert made.truth.sizes.tolist() == [5, 5]
    for client in range(10):
        w = made.optima[made.truth.labels[client]].double()
        for x, y in (made.train.of(client), made.test.of(client)):
            residual = y.double() - x.double() @ w
            assert residual.std().item() == pytest.approx(0.001, rel=0.2)
            assert x.mean().item() == pytest.approx(0, abs=0.05)
            assert x.std().item() == pytest.approx(1, abs=0.05)


def test_synthetic_depends_on_its_seed_alone() -> None:
    a, b = (data.synthetic(clients=4, dimension=5, seed=1) for _ in range(2))
    assert torch.equal(a.train.x, b.train.x)
    assert not torch.equal(a.train.x, data.synthetic(clients=4, dimension=5, seed=2).train.x)


def test_rotated_digits_deal_every_image_once() -> None:
    from sklearn.datasets import load_digits

    made = data.rotated_digits(seed=5)
    assert made.test is not None
    assert made.truth is not None
    assert made.truth.sizes.tolist() == [10, 10, 10, 10]
    images = []
    for client in range(40):
        turns = client % 4
        for part in (made.train, made.test):
            x, y = part.of(client)
            back = np.rot90(x.numpy(), -turns, axes=(1, 2)).reshape(-1, 64) * 16
            images += [
                (*image, label) for image, label in zip(back.tolist(), y.tolist(), strict=True)
            ]
    digits = load_digits()
    expected = [(*x, y) for x, y in zip(digits.data.tolist(), digits.target.tolist(), strict=True)]
    assert sorted(images) == sorted(expected)


def test_rotations_turn_the_image() -> None:
    made = data.rotated_digits(clients=2, rotations=2, seed=0)
    plain = data.rotated_digits(clients=2, rotations=1, seed=0)
    torch.testing.assert_close(made.train.of(0)[0], plain.train.of(0)[0])
    torch.testing.assert_close(made.train.of(1)[0], plain.train.of(1)[0].flip(1, 2))


def test_arrays_lists_and_names() -> None:
    made = ClientData.of(
        {"ann": ([[1.0], [2.0]], [0, 1]), "bob": (np.ones((3, 1)), np.ones(3, int))}
    )
    assert made.clients == ("ann", "bob")
    assert made.train.sizes.tolist() == [2, 3]
    assert made.train.of(1)[1].dtype == torch.int64
    assert "2 to 3 training samples of shape (1,)" in repr(made)


X, Y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({}, "at least one client"),
        (
            {"ann": (X, Y), "bob": (X[:0], Y[:0])},
            "client 'bob', training data: there are no samples",
        ),
        ({"ann": (X, Y[:3])}, "client 'ann', training data: 4 inputs but 3 targets"),
        (
            {"ann": (X, Y), "bob": (X[:, :2], Y)},
            r"client 'bob'.*\(2,\), but client 'ann' has \(3,\)",
        ),
        ({"ann": (X, Y), "bob": (X, Y.float())}, "client 'bob', training data: y is of type"),
        (
            {"ann": (X.clone().fill_(np.nan), Y)},
            "client 'ann', training data: x has a NaN.*sample 0",
        ),
        ({"ann": (X, torch.tensor([0, 1, np.inf, 1]))}, "y has a NaN or an infinity in sample 2"),
    ],
)
def test_bad_clients_are_named(
    train: dict[str, tuple[torch.Tensor, torch.Tensor]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ClientData.of(train)


def test_names_become_strings() -> None:
    pair = (torch.zeros(2, 3), torch.zeros(2))
    assert ClientData.of({0: pair, 7: pair}).clients == ("0", "7")  # type: ignore[dict-item]
    with pytest.raises(InputError, match="two clients have the same name"):
        ClientData.of({1: pair, "1": pair})  # type: ignore[dict-item]


def test_bad_test_data_and_truth() -> None:
    with pytest.raises(InputError, match=r"client 'bob', test data.*the training data has \(3,\)"):
        ClientData.of({"bob": (X, Y)}, {"bob": (X[:, :2], Y)})
    with pytest.raises(InputError, match="client 'bob' has training or test data, but not both"):
        ClientData.of({"ann": (X, Y), "bob": (X, Y)}, {"ann": (X, Y)})
    with pytest.raises(InputError, match="3 labels for 1 clients"):
        ClientData.of([(X, Y)], truth=[0, 1, 2])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clients": 0}, "clients must be"), ({"samples": 0}, "samples must be"),
        ({"clusters": 5, "clients": 4}, "clusters must be"), ({"noise": -1.0}, "noise must"),
    ],
)  # fmt: skip
def test_synthetic_refuses(settings: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        data.synthetic(**settings)


def test_digits_refuse() -> None:
    with pytest.raises(InputError, match="rotations must be"):
        data.rotated_digits(rotations=3)
    with pytest.raises(InputError, match="clients must be"):
        data.rotated_digits(clients=3)


def test_what_is_held_out_depends_on_the_client_not_on_its_place() -> None:
    pairs = {name: (torch.arange(20.0).unsqueeze(1), torch.arange(20)) for name in "abc"}
    forward = hold_out(ClientData.of(pairs), 0.25, seed=1)[1]
    backward = hold_out(ClientData.of(dict(reversed(pairs.items()))), 0.25, seed=1)[1]
    assert forward.sizes.tolist() == [5, 5, 5]
    assert torch.equal(forward.of(0)[1], backward.of(2)[1])
    assert not torch.equal(forward.of(0)[1], forward.of(1)[1])


def test_digits_are_scikit_learn_s() -> None:
    from sklearn.datasets import load_digits

    expected = load_digits()
    images, digits = read_digits()
    assert np.array_equal(images, expected.images)
    assert np.array_equal(digits, expected.target)
