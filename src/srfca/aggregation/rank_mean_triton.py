"""``rank_mean`` as one kernel that reads every row once. Needs a CUDA device and Triton.

For every coordinate, registers hold the smallest values seen so far and, among the values that
these displace, the largest. Values displaced from both are neither, and are summed. Values are
compared as integers that have the same order, so NaN ranks above all numbers, as in torch's sort.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256
"""Coordinates per program."""


@triton.jit
def _insert_smallest(smallest, value):
    """Insert a value into an ascending list of the smallest; return the list and what it drops."""
    updated = ()
    for i in tl.static_range(len(smallest)):
        updated = updated + (tl.minimum(smallest[i], value),)
        value = tl.maximum(smallest[i], value)
    return updated, value


@triton.jit
def _insert_largest(largest, value):
    """Insert a value into a descending list of the largest; return the list and what it drops."""
    updated = ()
    for i in tl.static_range(len(largest)):
        updated = updated + (tl.maximum(largest[i], value),)
        value = tl.minimum(largest[i], value)
    return updated, value


@triton.jit
def _load(pointers, inside):
    """Load floats as integers of the same order, with NaN above all numbers."""
    x = tl.load(pointers, mask=inside, other=0.0)
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(x == x, bits ^ ((bits >> 31) & 0x7FFFFFFF), 0x7FC00000)


@triton.jit
def _kernel(rows, means, J, P, stride, LOW: tl.constexpr, HIGH: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < P
    pointers = rows + column
    smallest = ()
    for _ in tl.static_range(LOW):
        smallest = smallest + (tl.full([BLOCK], 0x7FFFFFFF, tl.int32),)
    largest = ()
    for _ in tl.static_range(HIGH):
        largest = largest + (tl.full([BLOCK], -0x80000000, tl.int32),)
    for _ in range(LOW):
        smallest, _unused = _insert_smallest(smallest, _load(pointers, inside))
        pointers += stride
    for _ in range(HIGH):
        smallest, value = _insert_smallest(smallest, _load(pointers, inside))
        largest, _unused = _insert_largest(largest, value)
        pointers += stride
    total = tl.zeros([BLOCK], tl.float32)
    for _ in range(LOW + HIGH, J):
        smallest, value = _insert_smallest(smallest, _load(pointers, inside))
        largest, value = _insert_largest(largest, value)
        total += (value ^ ((value >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        pointers += stride
    tl.store(means + column, total / (J - LOW - HIGH), mask=inside)


def rank_mean(rows: Tensor, low: int, high: int) -> Tensor:
    """Return the mean of ranks ``low`` to ``high - 1`` of every coordinate.

    Args:
        rows: ``[J, P]``, float32, on a CUDA device.
        low: First rank. It should be small: the ranks below are held in registers.
        high: Rank after the last one, close to J for the same reason.

    Returns:
        ``[P]``.
    """
    J, P = rows.shape
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    means = torch.empty(P, device=rows.device)
    _kernel[(triton.cdiv(P, _BLOCK),)](
        rows, means, J, P, rows.stride(0), LOW=low, HIGH=J - high, BLOCK=_BLOCK
    )
    return means
