"""Memory of results, used again once nobody holds them: a system clears what it gives anew.

torch does so on a GPU. On a CPU large tensors are the system's again as soon as they are dropped,
and a round of many clients would wait for as much of it to be cleared as all of their models take.
"""

from __future__ import annotations

import weakref
from math import prod

import torch
from torch import Tensor

_LARGEST = 2**30
"""Bytes that are kept, at the most: others may need them."""


class Memory:
    """Makes tensors on a CPU; the memory of the last one that was dropped is kept."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor with nothing particular in it.

        >>> memory = Memory()
        >>> first = memory.empty((2, 3), torch.float32)
        >>> place = first.data_ptr()
        >>> del first
        >>> memory.empty((3, 2), torch.float32).data_ptr() == place
        True
        """
        size = prod(shape) * dtype.itemsize
        if size == 0:
            return torch.empty(shape, dtype=dtype)
        owner = self._taken(size)
        lent = owner.numpy()
        weakref.finalize(lent, self._give_back, owner).atexit = False
        return torch.from_numpy(lent).view(dtype).view(shape)

    def _taken(self, size: int) -> Tensor:
        """``[size]`` bytes: the kept ones if they are as many, and else new ones."""
        try:
            kept = self._free.pop()
        except IndexError:
            kept = torch.empty(0, dtype=torch.uint8)
        return kept if len(kept) == size else torch.empty(size, dtype=torch.uint8)

    def _give_back(self, owner: Tensor) -> None:
        self._free = [owner] if len(owner) <= _LARGEST else []
