"""Augmentation: random changes of training images, as is usual for photographs and handwriting.

An augmentation takes images ``[c, b, channels, h, w]`` and a random stream ``[c]`` of each client.
Its draws depend on the client's stream and on the position of an image in the batch alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from srfca.errors import InputError, describe, require, unknown
from srfca.random import bits, integers, uniform

AugmentationName = Literal["none", "cifar", "handwriting"]
"""An augmentation by name."""
Augmentation = Callable[[Tensor, Tensor], Tensor]
"""From images ``[c, b, channels, h, w]`` and streams ``[c]`` to images of the same shape."""

_MAX_SHIFT = 4
_CUTOUT = 8
_LIMITS = (0.2, 0.15, 0.2, 0.1, 0.1)
"""Of rotation (radians), scale, shear, and shifts (of half the image), each in both directions."""


def none(x: Tensor, streams: Tensor) -> Tensor:
    """Return the images unchanged."""
    return x


def flip(x: Tensor, streams: Tensor) -> Tensor:
    """Mirror half of the images left to right."""
    mirrored = bits(streams, x.shape[1]) % 2 == 1
    return torch.where(mirrored[:, :, None, None, None], x.flip(-1), x)


def shift(x: Tensor, streams: Tensor) -> Tensor:
    """Shift each image by up to 4 pixels in both directions, filling the border by reflection.

    This is a random crop of the image padded by 4 reflected pixels.
    """
    h, w = x.shape[-2:]
    require(
        min(h, w) > _MAX_SHIFT,
        f"shift needs images larger than {_MAX_SHIFT}x{_MAX_SHIFT}, not {h}x{w}",
    )
    row_streams, column_streams = bits(streams, 2).unbind(-1)
    rows = _moved(h, _below(2 * _MAX_SHIFT + 1, x, row_streams) - _MAX_SHIFT)
    columns = _moved(w, _below(2 * _MAX_SHIFT + 1, x, column_streams) - _MAX_SHIFT)
    x = x.gather(-2, rows[:, :, None, :, None].expand(x.shape))
    return x.gather(-1, columns[:, :, None, None, :].expand(x.shape))


def cutout(x: Tensor, streams: Tensor) -> Tensor:
    """Set a random square of 8x8 pixels of each image to zero."""
    h, w = x.shape[-2:]
    require(
        min(h, w) >= _CUTOUT, f"cutout needs images of at least {_CUTOUT}x{_CUTOUT}, not {h}x{w}"
    )
    row_streams, column_streams = bits(streams, 2).unbind(-1)
    rows = _hole(h, _below(h - _CUTOUT + 1, x, row_streams))
    columns = _hole(w, _below(w - _CUTOUT + 1, x, column_streams))
    hole = rows.unsqueeze(-1) & columns.unsqueeze(-2)  # [c, b, h, w]
    return x.masked_fill(hole.unsqueeze(2), 0)


def cifar(x: Tensor, streams: Tensor) -> Tensor:
    """Flip, shift and cut out, each with its own random stream."""
    for change, stream in zip((flip, shift, cutout), bits(streams, 3).unbind(-1), strict=True):
        x = change(x, stream)
    return x


def handwriting(x: Tensor, streams: Tensor) -> Tensor:
    """Rotate, scale, shear and shift each image a little, as handwriting varies.

    Pixels are interpolated, and the border of an image is continued beyond it.
    """
    parts = bits(streams, len(_LIMITS)).unbind(-1)
    draws = [uniform(part, x.shape[1]).view(x.shape[:2]) for part in parts]
    angle, scale, shear, down, right = (
        limit * (2 * draw - 1) for limit, draw in zip(_LIMITS, draws, strict=True)
    )
    cos, sin, zoom = angle.cos(), angle.sin(), 1 + scale
    top = torch.stack([zoom * cos, zoom * (shear * cos - sin), right], -1)
    bottom = torch.stack([zoom * sin, zoom * (shear * sin + cos), down], -1)
    images = x.flatten(0, 1)
    maps = torch.stack([top, bottom], -2).flatten(0, 1).to(x.dtype)
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
    moved = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
    return moved.view(x.shape)


AUGMENTATIONS: dict[str, Augmentation] = {
    "none": none,
    "cifar": cifar,
    "handwriting": handwriting,
}
"""Augmentations by name."""


def augmentation_named(augment: AugmentationName | Augmentation, x: Tensor) -> Augmentation:
    """Return an augmentation by name, after a trial on two of the samples ``[n, ...]``."""
    if isinstance(augment, str):
        if augment not in AUGMENTATIONS:
            raise unknown("augment", augment, AUGMENTATIONS)
        augment = AUGMENTATIONS[augment]
    require(callable(augment), f"augment must be a name or a function, not {augment!r}")
    if augment is none:
        return none
    shape = tuple(x.shape[1:])
    if len(shape) == 2:
        augment, shape = _of_gray(augment), (1, *shape)
    require(
        len(shape) == 3,
        f"augment needs images of shape [h, w] or [channels, h, w], not samples of {shape}",
    )
    images = x[:2].unsqueeze(0)
    try:
        changed = augment(images, torch.zeros(1, dtype=torch.int64, device=x.device))
    except InputError:
        raise
    except Exception as error:  # of a user's function
        raise InputError(
            f"augment failed on two images, with {describe(error)}: it must be a function of "
            "images [c, b, channels, h, w] and of random streams [c] that returns images"
        ) from error
    require(
        isinstance(changed, Tensor)
        and changed.shape == images.shape
        and changed.dtype == images.dtype,
        f"augment must return images of shape {tuple(images.shape)} and type {images.dtype}, "
        f"not {_description(changed)}",
    )
    return augment


def _description(value: object) -> str:
    """Return what kind of tensor or other value something is."""
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} and {value.dtype}"
    return repr(value)


def _of_gray(augment: Augmentation) -> Augmentation:
    """Return the augmentation for images without an axis of channels."""
    return lambda x, streams: augment(x.unsqueeze(2), streams).squeeze(2)


def _below(limit: int, x: Tensor, streams: Tensor) -> Tensor:
    """Draw an integer in ``[0, limit)`` for each image: ``[c, b]``."""
    return integers(streams, x.shape[1], torch.full((), limit, device=x.device))


def _moved(size: int, by: Tensor) -> Tensor:
    """Return the position that each pixel of a shifted axis is taken from: ``[c, b, size]``.

    Positions beyond an edge are reflected; the edge itself is not repeated.
    """
    places = (torch.arange(size, device=by.device) - by.unsqueeze(-1)).abs()
    return size - 1 - (size - 1 - places).abs()


def _hole(size: int, start: Tensor) -> Tensor:
    """Return which positions of an axis lie in the cutout from ``start`` on: ``[c, b, size]``."""
    after = torch.arange(size, device=start.device) - start.unsqueeze(-1)
    return (after >= 0) & (after < _CUTOUT)
