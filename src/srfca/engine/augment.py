"""Augmentation: training images changed at random, as CIFAR-10 is trained.

An augmentation takes images ``[c, b, channels, h, w]`` and a random stream ``[c]`` of each client.
What it draws for an image depends on the client's stream and the image's place in the batch alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from srfca.errors import require, unknown
from srfca.random import bits, integers

Augmentation = Callable[[Tensor, Tensor], Tensor]
"""From images ``[c, b, channels, h, w]`` and streams ``[c]`` to images of the same shape."""

_REACH = 4
_HOLE = 8


def none(x: Tensor, streams: Tensor) -> Tensor:
    """The images as they are."""
    return x


def flip(x: Tensor, streams: Tensor) -> Tensor:
    """Half of the images, mirrored left to right."""
    mirrored = bits(streams, x.shape[1]) % 2 == 1
    return torch.where(mirrored[:, :, None, None, None], x.flip(-1), x)


def shift(x: Tensor, streams: Tensor) -> Tensor:
    """Each image moved by up to 4 pixels down and across; its reflection fills the border.

    This is a random crop of the image with a reflected border of 4.
    """
    h, w = x.shape[-2:]
    require(min(h, w) > _REACH, f"shift needs images larger than {_REACH}x{_REACH}, not {h}x{w}")
    of_rows, of_columns = bits(streams, 2).unbind(-1)
    rows = _moved(h, _below(2 * _REACH + 1, x, of_rows) - _REACH)
    columns = _moved(w, _below(2 * _REACH + 1, x, of_columns) - _REACH)
    x = x.gather(-2, rows[:, :, None, :, None].expand(x.shape))
    return x.gather(-1, columns[:, :, None, None, :].expand(x.shape))


def cutout(x: Tensor, streams: Tensor) -> Tensor:
    """Each image with a square of 8x8 pixels set to zero, somewhere inside it."""
    h, w = x.shape[-2:]
    require(min(h, w) >= _HOLE, f"cutout needs images of at least {_HOLE}x{_HOLE}, not {h}x{w}")
    of_rows, of_columns = bits(streams, 2).unbind(-1)
    rows = _hole(h, _below(h - _HOLE + 1, x, of_rows))
    columns = _hole(w, _below(w - _HOLE + 1, x, of_columns))
    hole = rows.unsqueeze(-1) & columns.unsqueeze(-2)  # [c, b, h, w]
    return x.masked_fill(hole.unsqueeze(2), 0)


def cifar(x: Tensor, streams: Tensor) -> Tensor:
    """Flip, shift and cutout, each with a stream of its own."""
    for part, own in zip((flip, shift, cutout), bits(streams, 3).unbind(-1), strict=True):
        x = part(x, own)
    return x


AUGMENTATIONS: dict[str, Augmentation] = {"none": none, "cifar": cifar}
"""Augmentations by the names that experiments use."""


def augmentation_named(augment: str | Augmentation, x: Tensor) -> Augmentation:
    """An augmentation by name, tried on the first of the samples ``[n, ...]``."""
    if isinstance(augment, str):
        if augment not in AUGMENTATIONS:
            raise unknown("augment", augment, AUGMENTATIONS)
        augment = AUGMENTATIONS[augment]
    if augment is none:
        return none
    shape = tuple(x.shape[1:])
    require(
        len(shape) == 3, f"augment needs images of shape [channels, h, w], not samples of {shape}"
    )
    tried = x[:2].unsqueeze(0)
    found = augment(tried, torch.zeros(1, dtype=torch.int64, device=x.device))
    require(
        found.shape == tried.shape and found.dtype == tried.dtype,
        f"augment must return images of shape {tuple(tried.shape)} and type {tried.dtype}, "
        f"not {tuple(found.shape)} and {found.dtype}",
    )
    return augment


def _below(limit: int, x: Tensor, streams: Tensor) -> Tensor:
    """A whole number in ``[0, limit)`` for each image: ``[c, b]``."""
    return integers(streams, x.shape[1], torch.full((), limit, device=x.device))


def _moved(size: int, by: Tensor) -> Tensor:
    """Where each of ``size`` places takes its pixels from: ``[c, b, size]``.

    A place beyond an edge is mirrored at it; the edge itself is not repeated.
    """
    places = (torch.arange(size, device=by.device) - by.unsqueeze(-1)).abs()
    return size - 1 - (size - 1 - places).abs()


def _hole(size: int, start: Tensor) -> Tensor:
    """Which of ``size`` places lie in the hole that begins at ``start``: ``[c, b, size]``."""
    after = torch.arange(size, device=start.device) - start.unsqueeze(-1)
    return (after >= 0) & (after < _HOLE)
