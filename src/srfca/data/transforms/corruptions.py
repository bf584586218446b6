"""Corruptions of images, in five severities: the distribution of the inputs changes.

The constants are those of CIFAR-10-C (Hendrycks, Dietterich: Benchmarking Neural Network Robustness
to Common Corruptions and Perturbations, ICLR 2019). Pixels are integers from 0 to 255, or floats
from 0 to 1, and stay in that range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from srfca.data.transforms.base import Array, RandomTransform, Transform
from srfca.errors import require

Pixels = NDArray[np.float32]
"""Pixels from 0 to 1."""
_BRIGHTNESS = (0.05, 0.1, 0.15, 0.2, 0.3)
_CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
_NOISE = (0.04, 0.06, 0.08, 0.09, 0.10)
_BLUR = (0.4, 0.6, 0.7, 0.8, 1.0)


def brightness(severity: int) -> Transform:
    """Return a transform that makes images brighter.

    It adds a constant to the value of a pixel, which is the largest of its colors.

    Args:
        severity: From 1 to 5.

    Returns:
        A transform of images, floats in [0, 1] or integers to 255.

    Raises:
        InputError: If the severity is out of range.

    Examples:
        >>> int(brightness(4)(np.full((1, 2, 2), 100, np.uint8), np.zeros(1))[0].max())
        151
    """
    amount = _level(_BRIGHTNESS, severity)

    def brighten(x: Pixels) -> Pixels:
        if x.ndim < 4:
            return x + np.float32(amount)
        value = x.max(axis=1, keepdims=True)
        factor = np.minimum(value + amount, 1) / np.maximum(value, 1e-6)
        return np.asarray(np.where(value > 0, x * factor, amount), np.float32)

    return _on_pixels("brightness", brighten)


def contrast(severity: int) -> Transform:
    """Return a transform that brings pixels closer to the mean of their image and color.

    Args:
        severity: From 1 to 5.

    Returns:
        A transform of images, floats in [0, 1] or integers to 255.

    Raises:
        InputError: If the severity is out of range.

    Examples:
        >>> x = np.array([[[0.0, 1.0]]])
        >>> contrast(2)(x, np.zeros(1))[0].tolist()
        [[[0.25, 0.75]]]
    """
    factor = _level(_CONTRAST, severity)

    def flatten(x: Pixels) -> Pixels:
        mean = x.mean(axis=(-2, -1), keepdims=True)
        return np.asarray((x - mean) * factor + mean)

    return _on_pixels("contrast", flatten)


def blur(severity: int) -> Transform:
    """Return a transform that blurs images with a Gaussian kernel.

    Args:
        severity: From 1 to 5.

    Returns:
        A transform of images, floats in [0, 1] or integers to 255.

    Raises:
        InputError: If the severity is out of range.

    Examples:
        >>> x = np.zeros((1, 9, 9))
        >>> x[0, 4, 4] = 1
        >>> blurred = blur(5)(x, np.zeros(1))[0]
        >>> bool(blurred[0, 4, 4] < 0.2), float(blurred.sum().round(2))
        (True, 1.0)
    """
    sigma = _level(_BLUR, severity)

    def smooth(x: Pixels) -> Pixels:
        from scipy.ndimage import gaussian_filter

        widths = (0.0,) * (x.ndim - 2) + (sigma, sigma)
        return np.asarray(gaussian_filter(x, widths, mode="nearest"))

    return _on_pixels("blur", smooth)


def gaussian_noise(severity: int) -> RandomTransform:
    """Return a transform that adds Gaussian noise to all pixels, of training and test samples.

    Args:
        severity: From 1 to 5.

    Returns:
        A transform of images, floats in [0, 1] or integers to 255.

    Raises:
        InputError: If the severity is out of range.

    Examples:
        >>> x, _ = gaussian_noise(5)(np.full((1, 20, 20), 0.5), np.zeros(1))
        >>> round(float(x.std()), 2)
        0.1
    """
    deviation = _level(_NOISE, severity)

    def draw(x: Array, y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        def add_noise(pixels: Pixels) -> Pixels:
            return pixels + deviation * rng.standard_normal(pixels.shape, dtype=np.float32)

        return _on_pixels("gaussian_noise", add_noise)(x, y)

    return RandomTransform(draw)


CORRUPTIONS: Mapping[str, Callable[[int], Transform]] = MappingProxyType(
    {
        "brightness": brightness,
        "contrast": contrast,
        "gaussian_noise": gaussian_noise,
        "blur": blur,
    }
)
"""Corruptions by name; each takes a severity from 1 to 5."""


def _level(constants: tuple[float, ...], severity: int) -> float:
    """Return the constant of a severity."""
    require(
        severity in range(1, len(constants) + 1),
        f"severity must be a whole number from 1 to {len(constants)}, not {severity}",
    )
    return constants[severity - 1]


def _on_pixels(name: str, change: Callable[[Pixels], Pixels]) -> Transform:
    """Return a transform that changes pixels from 0 to 1, and keeps their type and range."""

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        require(x.ndim >= 3, f"{name} needs images [n, ..., h, w], not of shape {x.shape}")
        is_integer = np.issubdtype(x.dtype, np.integer)
        scale = np.float32(255 if is_integer else 1)
        changed = np.clip(change(x.astype(np.float32) / scale), 0, 1) * scale
        return (np.rint(changed) if is_integer else changed).astype(x.dtype), y

    return transform
