from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import data
from srfca.data.datasets.rotated_digits import read_digits
from srfca.errors import InputError


def test_every_image_goes_to_one_client() -> None:
    from sklearn.datasets import load_digits

    rotated = data.rotated_digits(seed=5)
    assert rotated.test is not None
    assert rotated.truth is not None
    assert rotated.truth.sizes.tolist() == [10, 10, 10, 10]
    images = []
    for client in range(40):
        turns = client % 4
        for part in (rotated.train, rotated.test):
            x, y = part.of(client)
            upright = np.rot90(x.numpy(), -turns, axes=(1, 2)).reshape(-1, 64) * 16
            images += [
                (*image, label) for image, label in zip(upright.tolist(), y.tolist(), strict=True)
            ]
    digits = load_digits()
    expected = [(*x, y) for x, y in zip(digits.data.tolist(), digits.target.tolist(), strict=True)]
    assert sorted(images) == sorted(expected)


def test_clusters_see_rotated_images() -> None:
    rotated = data.rotated_digits(num_clients=2, rotations=2, seed=0)
    plain = data.rotated_digits(num_clients=2, rotations=1, seed=0)
    torch.testing.assert_close(rotated.train.of(0)[0], plain.train.of(0)[0])
    torch.testing.assert_close(rotated.train.of(1)[0], plain.train.of(1)[0].flip(1, 2))


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="rotations must be"):
        data.rotated_digits(rotations=3)
    with pytest.raises(InputError, match="num_clients must be"):
        data.rotated_digits(num_clients=3)


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    expected = load_digits()
    images, digits = read_digits()
    assert np.array_equal(images, expected.images)
    assert np.array_equal(digits, expected.target)
