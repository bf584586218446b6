"""Batch norm, ReLU and a max pool as one operation. Needs a CUDA device and triton.

The forward pass reads the images twice, for the statistics and for the norm. Where they are pooled,
only the largest value of a window passes a gradient on, so that the sums of the backward pass need
nothing but the pooled images; then each image is read once more, and its gradient is written. Sums
are taken in a fixed order: the same input gives the same bits.

Images are channels last, rows ``[n h w, channels]`` in memory, and a window is of POOL x POOL.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_PARTS = 256
"""Sums over the rows are taken in so many parts."""
_BLOCK: dict[str, Any] = {"ROWS": 16, "CHANNELS": 64}
"""What a program works on at once."""
_FEW = 8
"""Channels at once where the parts are added up."""


@triton.jit
def _statistics(x, parts, rows, C, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Sums of x and of its square, less each channel's first value, of one part of the rows."""
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    first = tl.load(x + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    square = tl.zeros([ROWS, CHANNELS], tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        r = start + tl.arange(0, ROWS)
        inside = (r < rows)[:, None] & (c < C)[None, :]
        value = tl.load(x + r.to(tl.int64)[:, None] * C + c[None, :], mask=inside, other=0.0)
        value = tl.where(inside, value.to(tl.float32) - first, 0.0)
        total += value
        square += value * value
    _store(parts + tl.program_id(0) * 2 * C, c, C, tl.sum(total, 0), tl.sum(square, 0))


@triton.jit
def _store(to, c, C, one, other):
    tl.store(to + c, one, mask=c < C)
    tl.store(to + C + c, other, mask=c < C)


@triton.jit
def _load(at, c, C):
    return tl.load(at + c, mask=c < C, other=0.0), tl.load(at + C + c, mask=c < C, other=0.0)


@triton.jit
def _summed(parts, c, C, PARTS: tl.constexpr):
    """Both sums of all parts."""
    one, other = _load(parts + (tl.arange(0, PARTS) * 2)[:, None] * C, c[None, :], C)
    return tl.sum(one, 0), tl.sum(other, 0)


@triton.jit
def _scales(
    x, parts, weight, bias, moments, scales, rows, eps, C,
    PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Mean and variance of each channel, and the norm as ``scale * x + shift``."""
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    total, square = _summed(parts, c, C, PARTS)
    away = total / rows
    mean = tl.load(x + c, mask=c < C, other=0.0).to(tl.float32) + away
    variance = tl.maximum(square / rows - away * away, 0.0)
    scale = tl.load(weight + c, mask=c < C, other=0.0) / tl.sqrt(variance + eps)
    shift = tl.load(bias + c, mask=c < C, other=0.0) - mean * scale
    _store(moments, c, C, mean, variance)
    _store(scales, c, C, scale, shift)


@triton.jit
def _windows(r, W, POOL: tl.constexpr):
    """The rows where windows begin; of windows side by side and below each other."""
    wide = W // POOL
    return (r // wide).to(tl.int64) * POOL * W + (r % wide) * POOL


@triton.jit
def _normed(value, scale, shift, x):
    """The normed value, rounded as it would be stored."""
    return (scale * value + shift).to(x.dtype.element_ty).to(tl.float32)


@triton.jit
def _forward(
    x, scales, pooled, largest, rows, C, W,
    POOL: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """What is put out, and the value of x that each comes from."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS))[None, :]
    inside = (r < rows)[:, None] & (c < C)
    scale, shift = _load(scales, c, C)
    at = x + _windows(r, W, POOL)[:, None] * C + c
    best = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    most = _normed(best, scale, shift, x)
    for k in tl.static_range(1, POOL * POOL):
        value = tl.load(at + (k // POOL * W + k % POOL) * C, mask=inside, other=0.0).to(tl.float32)
        normed = _normed(value, scale, shift, x)
        best = tl.where(normed > most, value, best)
        most = tl.where(normed > most, normed, most)
    to = r.to(tl.int64)[:, None] * C + c
    tl.store(pooled + to, tl.where(most < 0, 0.0, most), mask=inside)
    if POOL > 1:
        tl.store(largest + to, best, mask=inside)


@triton.jit
def _slopes(
    dy, largest, scales, moments, parts, rows, eps, C,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Sums of the gradient that passes the ReLU, and of it times the normed value, of one part."""
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    scale, shift = _load(scales, c[None, :], C)
    mean, variance = _load(moments, c[None, :], C)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    turned = tl.zeros([ROWS, CHANNELS], tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        r = start + tl.arange(0, ROWS)
        inside = (r < rows)[:, None] & (c < C)[None, :]
        at = r.to(tl.int64)[:, None] * C + c[None, :]
        value = tl.load(largest + at, mask=inside, other=0.0).to(tl.float32)
        slope = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        slope = tl.where(_normed(value, scale, shift, largest) > 0, slope, 0.0)
        total += slope
        turned += slope * (value - mean)
    spread = tl.reshape(tl.sqrt(variance + eps), [CHANNELS])
    _store(parts + tl.program_id(0) * 2 * C, c, C, tl.sum(total, 0), tl.sum(turned, 0) / spread)


@triton.jit
def _sums(parts, sums, C, PARTS: tl.constexpr, CHANNELS: tl.constexpr):
    """Both sums of each channel."""
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    total, turned = _summed(parts, c, C, PARTS)
    _store(sums, c, C, total, turned)


@triton.jit
def _backward(
    dy, x, scales, moments, sums, dx, rows, eps, C, W,
    POOL: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The gradient of x: ``scale * (slope - mean slope - normed * mean of slope * normed)``."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS))[None, :]
    inside = (r < rows)[:, None] & (c < C)
    scale, shift = _load(scales, c, C)
    mean, variance = _load(moments, c, C)
    level, tilt = _load(sums, c, C)
    samples = rows * POOL * POOL
    level, tilt = level / samples, tilt / samples / tl.sqrt(variance + eps)
    at = _windows(r, W, POOL)[:, None] * C + c
    slope = tl.load(dy + r.to(tl.int64)[:, None] * C + c, mask=inside, other=0.0)
    values = ()
    for k in tl.static_range(POOL * POOL):
        value = tl.load(x + at + (k // POOL * W + k % POOL) * C, mask=inside, other=0.0)
        values = values + (value.to(tl.float32),)
    most = _normed(values[0], scale, shift, x)
    winner = tl.zeros([ROWS, CHANNELS], tl.int32)
    for k in tl.static_range(1, POOL * POOL):
        normed = _normed(values[k], scale, shift, x)
        winner = tl.where(normed > most, k, winner)
        most = tl.where(normed > most, normed, most)
    slope = tl.where(most > 0, slope.to(tl.float32), 0.0)
    for k in tl.static_range(POOL * POOL):
        own = tl.where(winner == k, slope, 0.0)
        step = scale * (own - level - (values[k] - mean) * tilt)
        tl.store(dx + at + (k // POOL * W + k % POOL) * C, step, mask=inside)


def _over(rows: int, channels: int) -> tuple[int, int]:
    """The programs that go over all blocks."""
    return triton.cdiv(rows, _BLOCK["ROWS"]), triton.cdiv(channels, _BLOCK["CHANNELS"])


@torch.library.custom_op("srfca::norm_relu", mutates_args=())
def norm_relu(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images ``[n, c, h / pool, w / pool]`` of ``[n, c, h, w]``, and what their gradient needs.

    That is the values of x that they come from (empty if nothing is pooled), mean and variance of
    each channel, and scale and shift: ``[2, c]`` each.
    """
    channels, width = x.shape[1], x.shape[3]
    rows = x.numel() // channels
    left = rows // pool**2
    out, largest, moments, scales = _empty(x, weight, bias, eps, pool)
    parts = moments.new_empty(_PARTS, 2, channels)
    few = (triton.cdiv(channels, _FEW),)
    _statistics[(_PARTS, _over(rows, channels)[1])](x, parts, rows, channels, **_BLOCK)
    _scales[few](
        x, parts, weight, bias, moments, scales, rows, eps, channels, PARTS=_PARTS, CHANNELS=_FEW
    )
    _forward[_over(left, channels)](
        x, scales, out, largest, left, channels, width, POOL=pool, **_BLOCK
    )
    return out, largest, moments, scales


@norm_relu.register_fake
def _empty(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n, channels, height, width = x.shape
    shape = n, channels, height // pool, width // pool
    last: dict[str, Any] = {"device": x.device, "memory_format": torch.channels_last}
    return (
        torch.empty(shape, dtype=x.dtype, **last),
        torch.empty(shape if pool > 1 else (0, 1, 1, 1), dtype=x.dtype, **last),
        weight.new_empty(2, channels),
        weight.new_empty(2, channels),
    )


@torch.library.custom_op("srfca::norm_relu_backward", mutates_args=())
def norm_relu_backward(
    dy: Tensor, x: Tensor, largest: Tensor, moments: Tensor, scales: Tensor, eps: float, pool: int
) -> tuple[Tensor, Tensor]:
    """The gradients of x, and of bias and weight: ``[2, c]``."""
    channels, width = x.shape[1], x.shape[3]
    rows = dy.numel() // channels
    dx, sums = torch.empty_like(x), torch.empty_like(moments)
    parts = moments.new_empty(_PARTS, 2, channels)
    _slopes[(_PARTS, _over(rows, channels)[1])](
        dy, largest if pool > 1 else x, scales, moments, parts, rows, eps, channels, **_BLOCK
    )
    _sums[(triton.cdiv(channels, _FEW),)](parts, sums, channels, PARTS=_PARTS, CHANNELS=_FEW)
    _backward[_over(rows, channels)](
        dy, x, scales, moments, sums, dx, rows, eps, channels, width, POOL=pool, **_BLOCK
    )
    return dx, sums


@norm_relu_backward.register_fake
def _(
    dy: Tensor, x: Tensor, largest: Tensor, moments: Tensor, scales: Tensor, eps: float, pool: int
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(moments)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.eps, ctx.pool = inputs[3:]
    ctx.save_for_backward(inputs[0], *output[1:])


def _differentiate(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
    dy = dy.contiguous(memory_format=torch.channels_last)
    dx, sums = norm_relu_backward(dy, *ctx.saved_tensors, ctx.eps, ctx.pool)
    return dx, sums[1], sums[0], None, None


norm_relu.register_autograd(_differentiate, setup_context=_keep)
