"""Transforms that make the samples of one cluster differ from those of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from srfca.errors import require

Array = NDArray[Any]
Transform = Callable[[Array, Array], tuple[Array, Array]]
"""From inputs ``[n, ...]`` and labels ``[n]`` to the inputs and labels of a cluster."""


def unchanged(x: Array, y: Array) -> tuple[Array, Array]:
    """Return inputs and labels unchanged."""
    return x, y


def rotate(degrees: float) -> Transform:
    """Return a transform that rotates images counter-clockwise.

    Multiples of 90 degrees are exact; other angles interpolate linearly.

    Args:
        degrees: The angle.

    Returns:
        A transform of images ``[n, ..., h, w]``; it raises ``InputError`` for other shapes.

    Examples:
        >>> x, _ = rotate(90)(np.array([[[1, 2], [3, 4]]]), np.zeros(1))
        >>> x.tolist()
        [[[2, 4], [1, 3]]]
    """

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        require(x.ndim >= 3, f"rotate needs images [n, ..., h, w], not of shape {x.shape}")
        if degrees % 90 == 0:
            return np.rot90(x, int(degrees // 90), axes=(-2, -1)), y
        from scipy.ndimage import rotate as interpolate

        return interpolate(x, degrees, axes=(-1, -2), reshape=False, order=1, mode="nearest"), y

    return transform


def invert(x: Array, y: Array) -> tuple[Array, Array]:
    """Invert the brightness: ``255 - x`` for integers, ``1 - x`` for floats.

    Examples:
        >>> invert(np.array([0, 255]), np.zeros(2))[0].tolist()
        [255, 0]
    """
    return (255 if np.issubdtype(x.dtype, np.integer) else 1) - x, y


def permute_labels(order: Sequence[int]) -> Transform:
    """Return a transform that renames class c to ``order[c]``.

    Args:
        order: A permutation of the classes 0 to C - 1.

    Returns:
        The transform; it raises ``InputError`` for labels outside of 0 to C - 1.

    Raises:
        InputError: If ``order`` is not a permutation.

    Examples:
        >>> permute_labels([1, 2, 0])(np.zeros(3), np.array([0, 1, 2]))[1].tolist()
        [1, 2, 0]
    """
    new_labels = np.asarray(order)
    num_classes = len(new_labels)
    require(
        sorted(new_labels.tolist()) == list(range(num_classes)),
        f"order must name each class from 0 to {num_classes - 1} once, not {list(order)}",
    )

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        require(
            bool(((y >= 0) & (y < num_classes)).all()),
            f"order names classes 0 to {num_classes - 1}, but labels are from "
            f"{int(y.min(initial=0))} to {int(y.max(initial=0))}",
        )
        return x, new_labels[y]

    return transform


def only_classes(classes: Sequence[int]) -> Transform:
    """Return a transform that drops the samples of all other classes.

    Args:
        classes: The classes to keep.

    Examples:
        >>> only_classes([0, 2])(np.array([10, 11, 12]), np.array([0, 1, 2]))[0].tolist()
        [10, 12]
    """

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        selected = np.isin(y, list(classes))
        return x[selected], y[selected]

    return transform


def shift_features(offset: ArrayLike) -> Transform:
    """Return a transform that adds a constant to every sample.

    Args:
        offset: A number, or an array of a sample's shape.

    Examples:
        >>> shift_features([1.0, -1.0])(np.zeros((1, 2)), np.zeros(1))[0].tolist()
        [[1.0, -1.0]]
    """

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        return x + np.asarray(offset, dtype=np.float32), y

    return transform
