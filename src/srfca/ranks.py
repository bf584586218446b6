"""The mean of some ranks of every coordinate: trimmed means and medians are no more than that.

On a CPU blocks of coordinates go to as many threads as torch uses, and stay in the cache. Where few
ranks are left out at the ends, these are selected, by comparisons of whole rows. Else a block is
transposed, so that the J values of a coordinate lie side by side, and sorted by numpy, whose sort
of short runs is vectorised and faster than its selection (``benchmarks/ranks.py``). On a GPU a
kernel reads the rows once where few ranks are left out and triton is there;
else torch sorts, block by block. No coordinate sees another, so the answer has the
same bits whatever the blocks.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.threads import over_threads

Block = NDArray[Any]
"""``[J, p]`` rows, or ``[p]``"""
_Rows = TypeVar("_Rows", Tensor, Block)

_SELECTED = 3
"""Ranks at each end that are selected on a CPU; where more are left out, a sort is faster."""
_SELECTED_BLOCK = 2**19
"""Values that are selected from at once."""
_SORTED_BLOCK = 2**16
"""Values that are sorted at once on a CPU."""
_FEWEST = 16
"""Coordinates of a block at the least: a line of the cache."""
_KERNEL_RANKS = 64
"""Ranks that the kernel may leave out: they stay in registers."""
_DEVICE_BLOCK = 2**27
"""Values that are sorted at once elsewhere: it takes five times their memory."""


def rank_mean(rows: Tensor, low: int, high: int, block: int | None = None) -> Tensor:
    """The mean of ranks ``low`` to ``high - 1`` of every coordinate of rows ``[J, P]``: ``[P]``.

    NaN ranks above all numbers. ``block`` is how many coordinates are worked on at once.

    >>> rank_mean(torch.tensor([[3.0, 1.0], [1.0, float("nan")], [2.0, 5.0]]), 0, 2)
    tensor([1.5000, 3.0000])
    """
    if rows.device.type == "cpu":
        return _in_cache(rows.detach(), low, high, block)
    if block is None and _for_kernel(rows) and low + len(rows) - high <= _KERNEL_RANKS:
        from srfca import ranks_triton

        return ranks_triton.rank_mean(rows.detach(), low, high)
    return _by_torch(rows, low, high, block or max(_FEWEST, _DEVICE_BLOCK // len(rows)))


def _for_kernel(rows: Tensor) -> bool:
    there = rows.device.type == "cuda" and find_spec("triton") is not None
    return there and rows.dtype == torch.float32


def _in_cache(rows: Tensor, low: int, high: int, block: int | None) -> Tensor:
    wide = torch.float64 if rows.dtype == torch.float64 else torch.float32
    means = torch.empty(rows.shape[1], dtype=wide)
    selects = max(low, len(rows) - high) <= _SELECTED
    total, values = (_selected, _SELECTED_BLOCK) if selects else (_sorted, _SORTED_BLOCK)
    size = block or max(_FEWEST, values // len(rows))

    def work(thread: int, start: int) -> None:
        part = rows[:, start : start + size].to(wide).numpy()
        np.divide(total(part, low, high), high - low, out=means[start : start + size].numpy())

    if len(means) <= size:
        work(0, 0)
    else:
        over_threads(work, range(0, len(means), size), torch.get_num_threads())
    return means.to(rows.dtype)


def _sorted(rows: Block, low: int, high: int) -> Block:
    """The sum of ranks ``low`` to ``high - 1``."""
    ranked = np.array(rows.T, order="C")
    ranked.sort(axis=1)
    return np.asarray(np.einsum("ij->i", ranked[:, low:high]))  # for short runs faster than sum


def _selected(rows: Block, low: int, high: int) -> Block:
    """The same; the ends are put in order, and what lies between them is not.

    Halves are compared, the lesser values with each other, and so on, until the first row has the
    least; likewise the last row the largest. Then what lies between the two.
    """
    rows, count = np.array(rows), len(rows)
    spare = np.empty_like(rows[: count // 2])

    def order(lesser: Block, larger: Block) -> None:
        least = np.fmin(lesser, larger, out=spare[: len(lesser)])
        np.maximum(lesser, larger, out=larger)  # NaN, unlike fmin
        lesser[...] = least

    for end in range(max(low, count - high)):
        first, last, left = end, count - end, count - 2 * end
        while left > 1:
            half = left // 2
            order(rows[first : first + half], rows[first + left - half : first + left])
            if left < last - first:
                order(rows[last - left : last - left + half], rows[last - half : last])
            left -= half
    return np.asarray(_sum(rows[low:high]) + 0.0)  # no zero is negative


def _by_torch(rows: Tensor, low: int, high: int, block: int) -> Tensor:
    parts = (part.sort(0).values[low:high] for part in rows.split(block, dim=1))
    return torch.cat([_sum(part) / (high - low) for part in parts])


def _sum(rows: _Rows) -> _Rows:
    """The sum of rows ``[n, p]``, which it overwrites, in an order that p does not change."""
    while len(rows) > 1:
        half = len(rows) // 2
        rows[:half] += rows[len(rows) - half :]
        rows = rows[: len(rows) - half]
    total: _Rows = rows[0]
    return total
