"""Mean and single inputs of clusters as small pictures, for federations of images."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srfca.analysis.differences import SampleInput
from srfca.report.view import RunView

MAX_IMAGES = 24
"""Most clusters whose mean input is shown."""


@dataclass(frozen=True)
class Image:
    """An input as a picture.

    Args:
        source: A PNG as an address that holds its data.
        text: What it is, for readers of the page that cannot see it.
        title: What is below it.
    """

    source: str
    text: str
    title: str


@dataclass(frozen=True)
class ClusterImages:
    """The pictures of a cluster.

    Args:
        cluster: Its label.
        mean: Its mean input.
        samples: Single inputs of its clients, if there are some.
    """

    cluster: int
    mean: Image
    samples: tuple[Image, ...] = ()


@dataclass(frozen=True)
class Gallery:
    """The pictures of all clusters that are shown.

    Args:
        clusters: Their pictures; none if inputs are no images.
        remark: What is shown.
    """

    clusters: tuple[ClusterImages, ...] = ()
    remark: str = ""

    @property
    def has_samples(self) -> bool:
        """Whether there are single inputs."""
        return any(part.samples for part in self.clusters)


def gallery(view: RunView) -> Gallery:
    """Return the mean input of each cluster, and single ones, if inputs are images."""
    differences = None if view.analysis is None else view.analysis.differences
    if differences is None or differences.input_shape is None:
        return Gallery()
    shape = differences.input_shape
    shown = differences.by_cluster[:MAX_IMAGES]
    means = _on_one_scale([_pixels(part.mean_input, shape) for part in shown])
    singles = [(part, sample) for part in shown for sample in part.sample_inputs]
    pictures = iter(_on_one_scale([_pixels(sample.values, shape) for _, sample in singles]))
    clusters = []
    for part, mean in zip(shown, means, strict=True):
        samples = [(sample, next(pictures)) for sample in part.sample_inputs]
        if mean is not None:
            title = Image(mean, f"Mean input of cluster {part.cluster}", "mean")
            made = (_sample_image(*pair, part.class_names) for pair in samples)
            images = tuple(image for image in made if image is not None)
            clusters.append(ClusterImages(part.cluster, title, images))
    if not clusters:
        return Gallery()
    return Gallery(tuple(clusters), _remark(len(clusters), len(differences.by_cluster), singles))


def _sample_image(
    sample: SampleInput, source: str | None, class_names: tuple[str, ...]
) -> Image | None:
    if source is None:
        return None
    target = "" if sample.target is None else f"class {class_names[sample.target]}"
    text = ", ".join(part for part in (f"Sample of client {sample.client}", target) if part)
    return Image(source, text, target or sample.client)


def _remark(shown: int, total: int, singles: Sequence[object]) -> str:
    what = "The mean input of each cluster, on a common scale"
    if singles:
        what += ", and single training samples of its clients"
    left_out = f" The first {shown} of {total:,} clusters are shown." if shown < total else ""
    return f"{what}.{left_out}"


def _on_one_scale(images: Sequence[NDArray[np.float64] | None]) -> list[str | None]:
    """Return images as addresses of PNGs: the least of all numbers is black, the largest white."""
    numbers = [pixels.ravel() for pixels in images if pixels is not None]
    if not numbers:
        return [None] * len(images)
    every = np.concatenate(numbers)
    low, high = float(every.min()), float(every.max())
    width = (high - low) or 1.0
    return [None if pixels is None else as_png((pixels - low) / width) for pixels in images]


def _pixels(values: tuple[float, ...] | None, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    """Return an input as an image ``[h, w]`` or ``[h, w, 3]``, None if it is no image."""
    if values is None or len(values) != int(np.prod(shape)):
        return None
    pixels = np.asarray(values, dtype=np.float64).reshape(shape)
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
