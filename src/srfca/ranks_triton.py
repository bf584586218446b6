"""``rank_mean`` as one kernel that reads every row once. Needs a CUDA device and triton.

Row by row, every coordinate keeps its smallest values so far and, among those that these push out,
its largest, in registers. What the largest push out is neither, and is added up. Values are
compared as integers of the same order, so that NaN ranks above all numbers, as in a sort by torch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256
"""Coordinates of a program."""


@triton.jit
def _smallest(kept, value):
    """Keep the smaller values, in ascending order; the largest comes out."""
    after = ()
    for i in tl.static_range(len(kept)):
        after = after + (tl.minimum(kept[i], value),)
        value = tl.maximum(kept[i], value)
    return after, value


@triton.jit
def _largest(kept, value):
    """Keep the larger values, in descending order; the smallest comes out."""
    after = ()
    for i in tl.static_range(len(kept)):
        after = after + (tl.maximum(kept[i], value),)
        value = tl.minimum(kept[i], value)
    return after, value


@triton.jit
def _load(at, inside):
    x = tl.load(at, mask=inside, other=0.0)
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(x == x, bits ^ ((bits >> 31) & 0x7FFFFFFF), 0x7FC00000)


@triton.jit
def _kernel(rows, means, J, P, stride, LOW: tl.constexpr, HIGH: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < P
    at = rows + column
    low = ()
    for _ in tl.static_range(LOW):
        low = low + (tl.full([BLOCK], 0x7FFFFFFF, tl.int32),)
    high = ()
    for _ in tl.static_range(HIGH):
        high = high + (tl.full([BLOCK], -0x80000000, tl.int32),)
    for _ in range(LOW):
        low, _empty = _smallest(low, _load(at, inside))
        at += stride
    for _ in range(HIGH):
        low, value = _smallest(low, _load(at, inside))
        high, _empty = _largest(high, value)
        at += stride
    total = tl.zeros([BLOCK], tl.float32)
    for _ in range(LOW + HIGH, J):
        low, value = _smallest(low, _load(at, inside))
        high, value = _largest(high, value)
        total += (value ^ ((value >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        at += stride
    tl.store(means + column, total / (J - LOW - HIGH), mask=inside)


def rank_mean(rows: Tensor, low: int, high: int) -> Tensor:
    """The mean of ranks ``low`` to ``high - 1`` of every coordinate of rows ``[J, P]``: ``[P]``.

    Rows are float32, and few ranks are left out.
    """
    J, P = rows.shape
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    means = torch.empty(P, device=rows.device)
    _kernel[(triton.cdiv(P, _BLOCK),)](
        rows, means, J, P, rows.stride(0), LOW=low, HIGH=J - high, BLOCK=_BLOCK
    )
    return means
