"""Room for the rows of many clients: in memory, or on disk where they are too many for it."""

from __future__ import annotations

import os
import tempfile

import torch
from torch import Tensor

SHARE = 0.25
"""The part of the machine's memory, or of the device's, that one set of rows may take."""
BLOCK = 2**28
"""Bytes of rows that are worked on at once when they lie on disk."""


def fits(count: int, like: Tensor) -> bool:
    """Whether ``count`` rows like this one ``[P]`` may lie where it lies."""
    if like.is_cuda:
        whole = torch.cuda.mem_get_info(like.device)[1]
    else:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return count * like.numel() * like.element_size() <= SHARE * whole


def on_disk(count: int, like: Tensor) -> Tensor:
    """Zeros ``[count, P]`` in a file that goes when nobody holds them any more."""
    length = like.numel()
    with tempfile.NamedTemporaryFile(prefix="srfca-rows-") as file:
        os.truncate(file.name, count * length * like.element_size())
        rows = torch.from_file(file.name, shared=True, size=count * length, dtype=like.dtype)
    return rows.view(count, length)


def block_length(like: Tensor) -> int:
    """How many rows on disk are worked on at once."""
    return max(1, BLOCK // (like.numel() * like.element_size()))
