"""Storage of the rows of many clients: in memory, or on disk if they are too many."""

from __future__ import annotations

import os
import tempfile

import torch
from torch import Tensor

MEMORY_FRACTION = 0.25
"""The part of the memory of the machine, or the device, that one set of rows may take."""
BLOCK_BYTES = 2**28
"""Bytes of rows on disk that are processed at once."""


def fits(count: int, like: Tensor) -> bool:
    """Return whether ``count`` rows like this one ``[P]`` fit into the memory of its device."""
    if like.is_cuda:
        total = torch.cuda.mem_get_info(like.device)[1]
    else:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return count * like.numel() * like.element_size() <= MEMORY_FRACTION * total


def on_disk(count: int, like: Tensor) -> Tensor:
    """Return zeros ``[count, P]`` in a file that is deleted with the last reference to them."""
    length = like.numel()
    with tempfile.NamedTemporaryFile(prefix="srfca-rows-") as file:
        os.truncate(file.name, count * length * like.element_size())
        rows = torch.from_file(file.name, shared=True, size=count * length, dtype=like.dtype)
    return rows.view(count, length)


def block_length(like: Tensor) -> int:
    """Return how many rows on disk are processed at once."""
    return max(1, BLOCK_BYTES // (like.numel() * like.element_size()))
