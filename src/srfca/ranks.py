"""The mean of some ranks of every coordinate: trimmed means and medians are no more than that.

On a CPU a block of coordinates is transposed, so that the J values of one lie side by side, and
sorted in the cache by numpy, whose sort of short runs is vectorised: for J = 100 a full sort is
faster there than a selection (``benchmarks/ranks.py``). Blocks go to as many threads as
torch uses. On a GPU a kernel reads the rows once where few ranks are left out and triton is there;
else torch sorts, block by block. No coordinate sees another, so the answer has the
same bits whatever the blocks.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from srfca.threads import over_threads

_CPU_BLOCK = 2**16
"""Values that are sorted at once on a CPU: they stay in the cache of a core."""
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
        return _in_cache(rows.detach(), low, high, block or max(_FEWEST, _CPU_BLOCK // len(rows)))
    if block is None and _for_kernel(rows) and low + len(rows) - high <= _KERNEL_RANKS:
        from srfca import ranks_triton

        return ranks_triton.rank_mean(rows.detach(), low, high)
    return _by_torch(rows, low, high, block or max(_FEWEST, _DEVICE_BLOCK // len(rows)))


def _for_kernel(rows: Tensor) -> bool:
    there = rows.device.type == "cuda" and find_spec("triton") is not None
    return there and rows.dtype == torch.float32


def _in_cache(rows: Tensor, low: int, high: int, block: int) -> Tensor:
    wide = torch.float64 if rows.dtype == torch.float64 else torch.float32
    means = torch.empty(rows.shape[1], dtype=wide)

    def work(thread: int, start: int) -> None:
        part = rows[:, start : start + block].to(wide).numpy()
        ranked = np.array(part.T, order="C")
        ranked.sort(axis=1)
        total = np.einsum("ij->i", ranked[:, low:high])  # for short runs faster than sum
        np.divide(total, high - low, out=means[start : start + block].numpy())

    if len(means) <= block:
        work(0, 0)
    else:
        over_threads(work, range(0, len(means), block), torch.get_num_threads())
    return means.to(rows.dtype)


def _by_torch(rows: Tensor, low: int, high: int, block: int) -> Tensor:
    parts = (part.sort(0).values[low:high] for part in rows.split(block, dim=1))
    return torch.cat([_sum(part) / (high - low) for part in parts])


def _sum(rows: Tensor) -> Tensor:
    """The sum of rows ``[n, p]``, which it overwrites, in an order that p does not change."""
    while len(rows) > 1:
        half = len(rows) // 2
        rows[:half] += rows[len(rows) - half :]
        rows = rows[: len(rows) - half]
    return rows[0]
