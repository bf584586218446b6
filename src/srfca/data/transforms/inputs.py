"""Transforms of inputs: rotated, transposed, inverted or shifted."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from srfca.data.transforms.base import Array, Transform
from srfca.errors import require, unknown
from srfca.parameters import choices

Color = Literal["gray", "red", "green", "blue"]


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


def transpose(x: Array, y: Array) -> tuple[Array, Array]:
    """Exchange rows and columns of images ``[n, ..., h, w]``.

    Args:
        x: Images, ``[n, ..., h, w]``.
        y: Labels, ``[n]``.

    Returns:
        Images ``[n, ..., w, h]``, and the labels ``[n]``.

    Raises:
        InputError: For other shapes.

    Examples:
        >>> transpose(np.array([[[1, 2], [3, 4]]]), np.zeros(1))[0].tolist()
        [[[1, 3], [2, 4]]]
    """
    require(x.ndim >= 3, f"transpose needs images [n, ..., h, w], not of shape {x.shape}")
    return np.swapaxes(x, -2, -1), y


def color_cast(color: Color) -> Transform:
    """Return a transform that makes images of three channels, and fills one of them.

    Args:
        color: The channel to fill with the brightest value: "red", "green" or "blue"; "gray" fills
            none.

    Returns:
        A transform of gray images ``[n, h, w]`` or color images ``[n, 3, h, w]``; it raises
        ``InputError`` for other shapes.

    Raises:
        InputError: If the color is unknown.

    Examples:
        >>> color_cast("green")(np.zeros((1, 1, 1)), np.zeros(1))[0].tolist()
        [[[[0.0]], [[1.0]], [[0.0]]]]
    """
    if color not in choices(Color):
        raise unknown("color", color, choices(Color))

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        require(
            x.ndim == 3 or (x.ndim == 4 and x.shape[1] == 3),
            f"color_cast needs images [n, h, w] or [n, 3, h, w], not of shape {x.shape}",
        )
        colored = np.repeat(x[:, None], 3, axis=1) if x.ndim == 3 else x.copy()
        if color != "gray":
            brightest = 255 if np.issubdtype(x.dtype, np.integer) else 1
            colored[:, ("red", "green", "blue").index(color)] = brightest
        return colored, y

    return transform


def invert(x: Array, y: Array) -> tuple[Array, Array]:
    """Invert the brightness: ``255 - x`` for integers, ``1 - x`` for floats.

    Args:
        x: Inputs, ``[n, ...]``.
        y: Labels, ``[n]``.

    Returns:
        The inverted inputs ``[n, ...]``, and the labels ``[n]``.

    Examples:
        >>> invert(np.array([0, 255]), np.zeros(2))[0].tolist()
        [255, 0]
    """
    return (255 if np.issubdtype(x.dtype, np.integer) else 1) - x, y


def shift_features(offset: ArrayLike) -> Transform:
    """Return a transform that adds a constant to every sample.

    Args:
        offset: A number, or an array of a sample's shape.

    Returns:
        The transform; its inputs are float32.

    Examples:
        >>> shift_features([1.0, -1.0])(np.zeros((1, 2)), np.zeros(1))[0].tolist()
        [[1.0, -1.0]]
    """

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        return x + np.asarray(offset, dtype=np.float32), y

    return transform
