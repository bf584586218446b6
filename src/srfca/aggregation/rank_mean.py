"""The mean of a range of ranks of every coordinate, which trimmed means and medians reduce to.

On a CPU, blocks of coordinates that fit into the cache are distributed among as many threads as
torch uses. If few ranks are dropped, those are selected by comparing entire rows. Otherwise a
block is transposed, so that the J values of a coordinate are contiguous, and sorted by numpy, whose
sort of short arrays is vectorized and faster than its selection (``benchmarks/ranks.py``). On a
GPU with Triton, a kernel reads the rows once if few ranks are dropped; otherwise torch sorts block
by block. Coordinates are independent, so the size of the blocks does not change any bit of the
result.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.threads import run_in_threads

Array = NDArray[Any]
_Rows = TypeVar("_Rows", Tensor, Array)

_SELECTED_RANKS = 3
"""Most ranks per side that are selected on a CPU; if more are dropped, sorting is faster."""
_SELECTION_BLOCK = 2**19
"""Values per block of a selection."""
_SORT_BLOCK = 2**16
"""Values per block of a sort on a CPU."""
_MIN_COORDINATES = 16
"""Minimum coordinates per block (one cache line)."""
_KERNEL_RANKS = 64
"""Most ranks that the kernel can drop: it holds them in registers."""
_DEVICE_BLOCK = 2**27
"""Values per block of a sort on another device, which needs five times their memory."""


def rank_mean(rows: Tensor, low: int, high: int, block: int | None = None) -> Tensor:
    """Return the mean of ranks ``low`` to ``high - 1`` of every coordinate.

    Args:
        rows: ``[J, P]``. NaN ranks above all numbers.
        low: First rank, counting from 0.
        high: Rank after the last one, at most J.
        block: Coordinates that are processed at once; None chooses.

    Returns:
        ``[P]``.

    Examples:
        >>> rank_mean(torch.tensor([[3.0, 1.0], [1.0, float("nan")], [2.0, 5.0]]), 0, 2)
        tensor([1.5000, 3.0000])
    """
    if rows.device.type == "cpu":
        return _on_cpu(rows.detach(), low, high, block)
    dropped = low + len(rows) - high
    if block is None and _kernel_supports(rows) and dropped <= _KERNEL_RANKS:
        from srfca.aggregation import rank_mean_triton

        return rank_mean_triton.rank_mean(rows.detach(), low, high)
    return _by_torch(rows, low, high, block or max(_MIN_COORDINATES, _DEVICE_BLOCK // len(rows)))


def _kernel_supports(rows: Tensor) -> bool:
    """Return whether the Triton kernel can process these rows."""
    available = rows.device.type == "cuda" and find_spec("triton") is not None
    return available and rows.dtype == torch.float32


def _on_cpu(rows: Tensor, low: int, high: int, block: int | None) -> Tensor:
    """Select or sort with numpy, in parallel blocks."""
    dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
    means = torch.empty(rows.shape[1], dtype=dtype)
    selects = max(low, len(rows) - high) <= _SELECTED_RANKS
    rank_sum, values = (
        (_sum_by_selection, _SELECTION_BLOCK) if selects else (_sum_by_sort, _SORT_BLOCK)
    )
    size = block or max(_MIN_COORDINATES, values // len(rows))

    def work(thread: int, start: int) -> None:
        part = rows[:, start : start + size].to(dtype).numpy()
        np.divide(rank_sum(part, low, high), high - low, out=means[start : start + size].numpy())

    if len(means) <= size:
        work(0, 0)
    else:
        run_in_threads(work, range(0, len(means), size), torch.get_num_threads())
    return means.to(rows.dtype)


def _sum_by_sort(rows: Array, low: int, high: int) -> Array:
    """Sum ranks ``low`` to ``high - 1`` of rows ``[J, p]`` after sorting every coordinate."""
    ranked = np.array(rows.T, order="C")
    ranked.sort(axis=1)
    return np.asarray(np.einsum("ij->i", ranked[:, low:high]))  # faster than sum for short rows


def _sum_by_selection(rows: Array, low: int, high: int) -> Array:
    """Sum ranks ``low`` to ``high - 1`` of rows ``[J, p]``, ordering only the ends.

    Halves of the rows are compared, then the smaller values among each other, and so on, until the
    first row holds the minimum; the last row gets the maximum in the same way. Then the rows
    between these two are treated likewise, as often as ranks are dropped.
    """
    rows, count = np.array(rows), len(rows)
    buffer = np.empty_like(rows[: count // 2])

    def order(smaller: Array, larger: Array) -> None:
        minimum = np.fmin(smaller, larger, out=buffer[: len(smaller)])
        np.maximum(smaller, larger, out=larger)  # propagates NaN, unlike fmin
        smaller[...] = minimum

    for end in range(max(low, count - high)):
        first, last, remaining = end, count - end, count - 2 * end
        while remaining > 1:
            half = remaining // 2
            order(rows[first : first + half], rows[first + remaining - half : first + remaining])
            if remaining < last - first:
                order(rows[last - remaining : last - remaining + half], rows[last - half : last])
            remaining -= half
    return np.asarray(_pairwise_sum(rows[low:high]) + 0.0)  # turns -0.0 into 0.0


def _by_torch(rows: Tensor, low: int, high: int, block: int) -> Tensor:
    """Sort with torch, block by block."""
    parts = (part.sort(0).values[low:high] for part in rows.split(block, dim=1))
    return torch.cat([_pairwise_sum(part) / (high - low) for part in parts])


def _pairwise_sum(rows: _Rows) -> _Rows:
    """Sum rows ``[n, p]``, overwriting them, in an order that does not depend on p."""
    while len(rows) > 1:
        half = len(rows) // 2
        rows[:half] += rows[len(rows) - half :]
        rows = rows[: len(rows) - half]
    total: _Rows = rows[0]
    return total
