from __future__ import annotations

import numpy as np
import pytest

from srfca.data.transforms import (
    color_cast,
    invert,
    only_classes,
    permute_labels,
    rotate,
    shift_features,
    transpose,
)
from srfca.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (120, 5, 5)).astype(np.uint8)
Y = np.arange(120) % 4


def test_rotations_are_counterclockwise_and_exact() -> None:
    for quarter in range(4):
        turned, labels = rotate(90 * quarter)(X, Y)
        assert np.array_equal(turned, np.stack([np.rot90(image, quarter) for image in X]))
        assert labels is Y
    colors = np.stack([X, X, X], axis=1)
    assert np.array_equal(rotate(180)(colors, Y)[0], colors[:, :, ::-1, ::-1])
    slanted = rotate(45)(X.astype(np.float32), Y)[0]
    assert slanted.shape == X.shape
    center = np.zeros((1, 5, 5), np.float32)
    center[0, 2, 2] = 1
    np.testing.assert_allclose(rotate(30)(center, Y[:1])[0][0, 2, 2], 1, atol=1e-5)


def test_inverting_twice_changes_nothing() -> None:
    assert np.array_equal(invert(*invert(X, Y))[0], X)
    assert int(invert(X, Y)[0].max()) == 255 - int(X.min())
    assert invert(X, Y)[0].dtype == np.uint8
    fractions = X / np.float32(255)
    np.testing.assert_allclose(invert(fractions, Y)[0], 1 - fractions)


def test_transforms_of_labels_and_features() -> None:
    assert permute_labels([1, 2, 3, 0])(X, Y)[1].tolist() == ((Y + 1) % 4).tolist()
    selected, labels = only_classes([1, 3])(X, Y)
    assert set(labels.tolist()) == {1, 3}
    assert np.array_equal(selected, X[np.isin(Y, [1, 3])])
    np.testing.assert_allclose(shift_features(2.5)(X, Y)[0], X + 2.5)
    with pytest.raises(InputError, match="each class from 0 to 2 once"):
        permute_labels([0, 0, 2])
    for wrong, match in ((Y, "from 0 to 3"), (Y - 1, "from -1 to 2")):
        with pytest.raises(InputError, match=f"order names classes 0 to 2, but labels are {match}"):
            permute_labels([0, 1, 2])(X, wrong)
    with pytest.raises(InputError, match="rotate needs images"):
        rotate(90)(X[:, 0, 0], Y)


def test_color_casts() -> None:
    x, _ = color_cast("red")(X, Y)
    assert x.shape == (120, 3, 5, 5)
    assert x.dtype == np.uint8
    assert (x[:, 0] == 255).all()
    assert np.array_equal(x[:, 1], X)
    again, _ = color_cast("blue")(x, Y)
    assert (again[:, 2] == 255).all()
    assert np.array_equal(x[:, 2], X), "the input is not changed"
    assert np.array_equal(color_cast("gray")(X, Y)[0][:, 2], X)
    with pytest.raises(InputError, match="unknown color 'pink'"):
        color_cast("pink")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="color_cast needs images"):
        color_cast("red")(X[:, 0, 0], Y)


def test_transposing_twice_changes_nothing() -> None:
    assert np.array_equal(transpose(X, Y)[0][:, 0, 1], X[:, 1, 0])
    assert np.array_equal(transpose(*transpose(X, Y))[0], X)
    with pytest.raises(InputError, match="transpose needs images"):
        transpose(X[:, 0, 0], Y)
