"""``rank_mean`` as one kernel that reads every row once. Needs a CUDA device and triton.

A program takes the J values of a few coordinates into registers, sorts them by a bitonic network
and adds up the ranks that are wanted. Values are sorted as integers of the same order, so that NaN
ranks above all numbers, as in a sort by torch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from srfca.errors import require

MOST = 1024
"""Rows at the most: beyond, the values of a coordinate do not stay in registers."""
_TILE = 4096
"""Values of a program."""


@triton.jit
def _kernel(rows, means, J, P, stride, low, high, J2: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = tl.arange(0, J2)
    inside = (row[None, :] < J) & (column[:, None] < P)
    x = tl.load(rows + row[None, :].to(tl.int64) * stride + column[:, None], mask=inside, other=0.0)
    key = x.to(tl.int32, bitcast=True)
    key = tl.where(x == x, key ^ ((key >> 31) & 0x7FFFFFFF), 0x7FC00000)
    key = tl.sort(tl.where(row[None, :] < J, key, 0x7FFFFFFF), dim=1)
    ranked = (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    wanted = (row[None, :] >= low) & (row[None, :] < high)
    total = tl.sum(tl.where(wanted, ranked, 0.0), axis=1)
    tl.store(means + column, total / (high - low), mask=column < P)


def rank_mean(rows: Tensor, low: int, high: int) -> Tensor:
    """The mean of ranks ``low`` to ``high - 1`` of every coordinate of rows ``[J, P]``: ``[P]``."""
    J, P = rows.shape
    require(
        rows.dtype == torch.float32 and J <= MOST,
        f"the kernel takes at most {MOST} rows of float32, not {J} of {rows.dtype}",
    )
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    means = torch.empty(P, device=rows.device)
    width = triton.next_power_of_2(J)
    block = max(1, _TILE // width)
    _kernel[(triton.cdiv(P, block),)](
        rows, means, J, P, rows.stride(0), low, high, J2=width, BLOCK=block
    )
    return means
