"""Heterogeneity: what makes the clients of one cluster see the world differently.

A transform takes images ``[n, ...]`` and labels ``[n]`` and returns what a cluster sees of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from srfca.errors import require

Array = NDArray[Any]
Transform = Callable[[Array, Array], tuple[Array, Array]]


def unchanged(x: Array, y: Array) -> tuple[Array, Array]:
    """Leave everything as it is."""
    return x, y


def rotate(degrees: float) -> Transform:
    """Turn images ``[n, ..., h, w]`` counter-clockwise; quarters of a turn are exact.

    >>> x, _ = rotate(90)(np.array([[[1, 2], [3, 4]]]), np.zeros(1))
    >>> x.tolist()
    [[[2, 4], [1, 3]]]
    """

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        require(x.ndim >= 3, f"rotate needs images [n, ..., h, w], not of shape {x.shape}")
        if degrees % 90 == 0:
            return np.rot90(x, int(degrees // 90), axes=(-2, -1)), y
        from scipy.ndimage import rotate as turn

        return turn(x, degrees, axes=(-1, -2), reshape=False, order=1, mode="nearest"), y

    return transform


def invert(x: Array, y: Array) -> tuple[Array, Array]:
    """Dark for light: 255 - x for integers, 1 - x for fractions."""
    return (255 if np.issubdtype(x.dtype, np.integer) else 1) - x, y


def permute_labels(order: Sequence[int]) -> Transform:
    """Call class c by the name ``order[c]``."""
    names = np.asarray(order)
    require(
        sorted(names.tolist()) == list(range(len(names))),
        f"order must name each class from 0 to {len(names) - 1} once, not {list(order)}",
    )

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        require(
            bool(((y >= 0) & (y < len(names))).all()),
            f"order names classes 0 to {len(names) - 1}, but labels are from "
            f"{int(y.min(initial=0))} to {int(y.max(initial=0))}",
        )
        return x, names[y]

    return transform


def only_classes(classes: Sequence[int]) -> Transform:
    """Keep the samples of these classes alone."""

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        kept = np.isin(y, list(classes))
        return x[kept], y[kept]

    return transform


def shift_features(by: ArrayLike) -> Transform:
    """Add a number, or an array of a sample's shape, to every sample."""

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        return x + np.asarray(by, dtype=np.float32), y

    return transform
