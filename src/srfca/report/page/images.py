"""Mean inputs of clusters as small pictures, for federations of images."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srfca.report.view import RunView

MAX_IMAGES = 24
"""Most clusters whose mean input is shown."""


@dataclass(frozen=True)
class Image:
    """The mean input of a cluster.

    Args:
        cluster: Its label.
        source: A PNG as an address that holds its data.
    """

    cluster: int
    source: str


def mean_images(view: RunView) -> list[Image]:
    """Return the mean input of each cluster, if inputs are images; all on one scale."""
    differences = None if view.analysis is None else view.analysis.differences
    if differences is None or differences.input_shape is None:
        return []
    images = {
        part.cluster: pixels
        for part in differences.by_cluster[:MAX_IMAGES]
        if (pixels := _pixels(part.mean_input, differences.input_shape)) is not None
    }
    if not images:
        return []
    every = np.concatenate([pixels.ravel() for pixels in images.values()])
    low, high = float(every.min()), float(every.max())
    return [
        Image(cluster, as_png((pixels - low) / ((high - low) or 1.0)))
        for cluster, pixels in images.items()
    ]


def _pixels(mean: tuple[float, ...] | None, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    """Return a mean input as an image ``[h, w]`` or ``[h, w, 3]``, None if it is no image."""
    if mean is None or len(mean) != int(np.prod(shape)):
        return None
    pixels = np.asarray(mean, dtype=np.float64).reshape(shape)
    if pixels.ndim == 1:
        side = round(len(mean) ** 0.5)
        return pixels.reshape(side, side) if side > 3 and side * side == len(mean) else None
    if pixels.ndim == 3:
        if shape[0] not in (1, 3):
            return None
        pixels = pixels[0] if shape[0] == 1 else np.moveaxis(pixels, 0, 2)
    return pixels if pixels.ndim in (2, 3) and min(pixels.shape[:2]) > 1 else None


def as_png(pixels: NDArray[np.float64]) -> str:
    """Return an image of fractions ``[h, w]`` or ``[h, w, 3]`` as a PNG in an address.

    >>> as_png(np.zeros((2, 2)))[:22]
    'data:image/png;base64,'
    """
    values = np.clip(np.round(255 * pixels), 0, 255).astype(np.uint8)
    height, width = values.shape[:2]
    lines = b"".join(b"\0" + row.tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if values.ndim == 2 else 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    packed = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
    return f"data:image/png;base64,{base64.b64encode(packed).decode()}"
