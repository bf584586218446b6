"""Reuse of the memory of results that are no longer referenced.

The operating system zeroes the memory that it hands out. torch caches memory on a GPU; on a CPU
large tensors are returned to the system at once, and each round of many clients would wait for as
much memory to be zeroed as all of their models take.
"""

from __future__ import annotations

import weakref
from math import prod

import torch
from torch import Tensor

_MAX_BYTES = 2**30
"""Largest buffer that is kept."""


class BufferPool:
    """Makes tensors on a CPU; the memory of the last one that was dropped is reused."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return an uninitialized tensor.

        >>> pool = BufferPool()
        >>> first = pool.empty((2, 3), torch.float32)
        >>> address = first.data_ptr()
        >>> del first
        >>> pool.empty((3, 2), torch.float32).data_ptr() == address
        True
        """
        size = prod(shape) * dtype.itemsize
        if size == 0:
            return torch.empty(shape, dtype=dtype)
        buffer = self._take(size)
        lent = buffer.numpy()
        weakref.finalize(lent, self._give_back, buffer).atexit = False
        return torch.from_numpy(lent).view(dtype).view(shape)

    def _take(self, size: int) -> Tensor:
        """Return ``[size]`` bytes: the free buffer if it has this size, else a new one."""
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = torch.empty(0, dtype=torch.uint8)
        return buffer if len(buffer) == size else torch.empty(size, dtype=torch.uint8)

    def _give_back(self, buffer: Tensor) -> None:
        self._free = [buffer] if len(buffer) <= _MAX_BYTES else []
