"""Batch norm, ReLU and a max pool as one operation. Needs a CUDA device and Triton.

The forward pass reads the images twice, for the statistics and for the normalization. With
pooling, only the largest value of each window has a gradient, so the sums of the backward pass only
need the pooled images; then each image is read once more, and its gradient is written. Sums are
taken in a fixed order: the same input gives the same bits.

Images are in channels-last order, rows ``[n h w, channels]`` in memory; windows are POOL x POOL.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_PARTS = 256
"""Number of partial sums over the rows."""
_BLOCK: dict[str, Any] = {"ROWS": 16, "CHANNELS": 64}
"""Rows and channels per block."""
_SUM_CHANNELS = 8
"""Channels per program where the partial sums are added."""


@triton.jit
def _statistics(x, parts, rows, C, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Sum x and x squared, relative to each channel's first value, over one part of the rows."""
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
    _store_pair(parts + tl.program_id(0) * 2 * C, c, C, tl.sum(total, 0), tl.sum(square, 0))


@triton.jit
def _store_pair(pointer, c, C, first, second):
    """Store two values per channel: ``[2, C]``."""
    tl.store(pointer + c, first, mask=c < C)
    tl.store(pointer + C + c, second, mask=c < C)


@triton.jit
def _load_pair(pointer, c, C):
    """Load two values per channel from ``[2, C]``."""
    first = tl.load(pointer + c, mask=c < C, other=0.0)
    second = tl.load(pointer + C + c, mask=c < C, other=0.0)
    return first, second


@triton.jit
def _add_parts(parts, c, C, PARTS: tl.constexpr):
    """Add the partial sums of both quantities."""
    first, second = _load_pair(parts + (tl.arange(0, PARTS) * 2)[:, None] * C, c[None, :], C)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def _scales(
    x, parts, weight, bias, moments, scales, rows, eps, C,
    PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Compute mean and variance of each channel, and the norm as ``scale * x + shift``."""
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    total, square = _add_parts(parts, c, C, PARTS)
    offset = total / rows
    mean = tl.load(x + c, mask=c < C, other=0.0).to(tl.float32) + offset
    variance = tl.maximum(square / rows - offset * offset, 0.0)
    scale = tl.load(weight + c, mask=c < C, other=0.0) / tl.sqrt(variance + eps)
    shift = tl.load(bias + c, mask=c < C, other=0.0) - mean * scale
    _store_pair(moments, c, C, mean, variance)
    _store_pair(scales, c, C, scale, shift)


@triton.jit
def _window_starts(r, W, POOL: tl.constexpr):
    """Return the first row of each window; windows are numbered line by line."""
    per_line = W // POOL
    return (r // per_line).to(tl.int64) * POOL * W + (r % per_line) * POOL


@triton.jit
def _normed(value, scale, shift, x):
    """Normalize a value, and round it to the type of the images."""
    return (scale * value + shift).to(x.dtype.element_ty).to(tl.float32)


@triton.jit
def _forward(
    x, scales, pooled, largest, rows, C, W,
    POOL: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Write the pooled images, and the value of x behind each of their values."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS))[None, :]
    inside = (r < rows)[:, None] & (c < C)
    scale, shift = _load_pair(scales, c, C)
    pointers = x + _window_starts(r, W, POOL)[:, None] * C + c
    best = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
    maximum = _normed(best, scale, shift, x)
    for k in tl.static_range(1, POOL * POOL):
        value = tl.load(pointers + (k // POOL * W + k % POOL) * C, mask=inside, other=0.0)
        value = value.to(tl.float32)
        normed = _normed(value, scale, shift, x)
        best = tl.where(normed > maximum, value, best)
        maximum = tl.where(normed > maximum, normed, maximum)
    target = r.to(tl.int64)[:, None] * C + c
    tl.store(pooled + target, tl.where(maximum < 0, 0.0, maximum), mask=inside)
    if POOL > 1:
        tl.store(largest + target, best, mask=inside)


@triton.jit
def _slopes(
    dy, largest, scales, moments, parts, rows, eps, C,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Sum the gradient behind the ReLU, and its product with the normed value, over one part."""
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    scale, shift = _load_pair(scales, c[None, :], C)
    mean, variance = _load_pair(moments, c[None, :], C)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    weighted = tl.zeros([ROWS, CHANNELS], tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        r = start + tl.arange(0, ROWS)
        inside = (r < rows)[:, None] & (c < C)[None, :]
        offsets = r.to(tl.int64)[:, None] * C + c[None, :]
        value = tl.load(largest + offsets, mask=inside, other=0.0).to(tl.float32)
        slope = tl.load(dy + offsets, mask=inside, other=0.0).to(tl.float32)
        slope = tl.where(_normed(value, scale, shift, largest) > 0, slope, 0.0)
        total += slope
        weighted += slope * (value - mean)
    deviation = tl.reshape(tl.sqrt(variance + eps), [CHANNELS])
    _store_pair(
        parts + tl.program_id(0) * 2 * C, c, C, tl.sum(total, 0), tl.sum(weighted, 0) / deviation
    )


@triton.jit
def _sums(parts, sums, C, PARTS: tl.constexpr, CHANNELS: tl.constexpr):
    """Add the partial sums of the backward pass for each channel."""
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    total, weighted = _add_parts(parts, c, C, PARTS)
    _store_pair(sums, c, C, total, weighted)


@triton.jit
def _backward(
    dy, x, scales, moments, sums, dx, rows, eps, C, W,
    POOL: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of x.

    It is ``scale * (slope - mean(slope) - normed * mean(slope * normed))``.
    """
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS))[None, :]
    inside = (r < rows)[:, None] & (c < C)
    scale, shift = _load_pair(scales, c, C)
    mean, variance = _load_pair(moments, c, C)
    mean_slope, mean_product = _load_pair(sums, c, C)
    samples = rows * POOL * POOL
    mean_slope = mean_slope / samples
    mean_product = mean_product / samples / tl.sqrt(variance + eps)
    offsets = _window_starts(r, W, POOL)[:, None] * C + c
    slope = tl.load(dy + r.to(tl.int64)[:, None] * C + c, mask=inside, other=0.0)
    values = ()
    for k in tl.static_range(POOL * POOL):
        value = tl.load(x + offsets + (k // POOL * W + k % POOL) * C, mask=inside, other=0.0)
        values = values + (value.to(tl.float32),)
    maximum = _normed(values[0], scale, shift, x)
    winner = tl.zeros([ROWS, CHANNELS], tl.int32)
    for k in tl.static_range(1, POOL * POOL):
        normed = _normed(values[k], scale, shift, x)
        winner = tl.where(normed > maximum, k, winner)
        maximum = tl.where(normed > maximum, normed, maximum)
    slope = tl.where(maximum > 0, slope.to(tl.float32), 0.0)
    for k in tl.static_range(POOL * POOL):
        passed = tl.where(winner == k, slope, 0.0)
        gradient = scale * (passed - mean_slope - (values[k] - mean) * mean_product)
        tl.store(dx + offsets + (k // POOL * W + k % POOL) * C, gradient, mask=inside)


def _grid(rows: int, channels: int) -> tuple[int, int]:
    """Return the grid of programs that covers all blocks."""
    return triton.cdiv(rows, _BLOCK["ROWS"]), triton.cdiv(channels, _BLOCK["CHANNELS"])


@torch.library.custom_op("srfca::norm_relu", mutates_args=())
def norm_relu(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Apply batch norm, ReLU and a max pool.

    Args:
        x: Images ``[n, c, h, w]``, channels last; h and w are multiples of ``pool``.
        weight: ``[c]``.
        bias: ``[c]``.
        eps: Added to the variance.
        pool: Height and width of a window.

    Returns:
        The images ``[n, c, h / pool, w / pool]``, and what the backward pass needs: the value of x
        behind each of them (empty without pooling), mean and variance ``[2, c]``, scale and shift
        ``[2, c]``.
    """
    channels, width = x.shape[1], x.shape[3]
    rows = x.numel() // channels
    pooled_rows = rows // pool**2
    out, largest, moments, scales = _empty(x, weight, bias, eps, pool)
    parts = moments.new_empty(_PARTS, 2, channels)
    sum_grid = (triton.cdiv(channels, _SUM_CHANNELS),)
    _statistics[(_PARTS, _grid(rows, channels)[1])](x, parts, rows, channels, **_BLOCK)
    _scales[sum_grid](
        x, parts, weight, bias, moments, scales, rows, eps, channels,
        PARTS=_PARTS, CHANNELS=_SUM_CHANNELS,
    )  # fmt: skip
    _forward[_grid(pooled_rows, channels)](
        x, scales, out, largest, pooled_rows, channels, width, POOL=pool, **_BLOCK
    )
    return out, largest, moments, scales


@norm_relu.register_fake
def _empty(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return empty outputs of the right shapes."""
    n, channels, height, width = x.shape
    shape = n, channels, height // pool, width // pool
    options: dict[str, Any] = {"device": x.device, "memory_format": torch.channels_last}
    return (
        torch.empty(shape, dtype=x.dtype, **options),
        torch.empty(shape if pool > 1 else (0, 1, 1, 1), dtype=x.dtype, **options),
        weight.new_empty(2, channels),
        weight.new_empty(2, channels),
    )


@torch.library.custom_op("srfca::norm_relu_backward", mutates_args=())
def norm_relu_backward(
    dy: Tensor, x: Tensor, largest: Tensor, moments: Tensor, scales: Tensor, eps: float, pool: int
) -> tuple[Tensor, Tensor]:
    """Return the gradient of x, and those of bias and weight, ``[2, c]``."""
    channels, width = x.shape[1], x.shape[3]
    rows = dy.numel() // channels
    dx, sums = torch.empty_like(x), torch.empty_like(moments)
    parts = moments.new_empty(_PARTS, 2, channels)
    _slopes[(_PARTS, _grid(rows, channels)[1])](
        dy, largest if pool > 1 else x, scales, moments, parts, rows, eps, channels, **_BLOCK
    )
    _sums[(triton.cdiv(channels, _SUM_CHANNELS),)](
        parts, sums, channels, PARTS=_PARTS, CHANNELS=_SUM_CHANNELS
    )
    _backward[_grid(rows, channels)](
        dy, x, scales, moments, sums, dx, rows, eps, channels, width, POOL=pool, **_BLOCK
    )
    return dx, sums


@norm_relu_backward.register_fake
def _(
    dy: Tensor, x: Tensor, largest: Tensor, moments: Tensor, scales: Tensor, eps: float, pool: int
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(moments)


def _save_for_backward(ctx: Any, inputs: Any, output: Any) -> None:
    """Save what the backward pass needs."""
    ctx.eps, ctx.pool = inputs[3:]
    ctx.save_for_backward(inputs[0], *output[1:])


def _differentiate(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
    """Return the gradients of the inputs of ``norm_relu``."""
    dy = dy.contiguous(memory_format=torch.channels_last)
    dx, sums = norm_relu_backward(dy, *ctx.saved_tensors, ctx.eps, ctx.pool)
    return dx, sums[1], sums[0], None, None


norm_relu.register_autograd(_differentiate, setup_context=_save_for_backward)
