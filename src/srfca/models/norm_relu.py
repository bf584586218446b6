"""Batch norm, ReLU and a max pool as one layer, which needs far fewer passes on a GPU."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional

_HAS_TRITON = find_spec("triton") is not None


class NormReLU(nn.BatchNorm2d):
    """Batch norm, ReLU and a max pool over windows of ``pool`` x ``pool``.

    In training on a GPU with Triton it is one operation (``norm_relu_triton``), if the height and
    width of the images are multiples of ``pool``; otherwise it is the three separate layers.
    Without a pool ``torch.compile`` fuses these equally well.

    Args:
        channels: Number of channels.
        pool: Height and width of a pooling window; 1 for no pooling.

    Examples:
        >>> x = torch.randn(2, 3, 8, 8)
        >>> layers = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2))
        >>> torch.equal(NormReLU(3, pool=2)(x), layers(x))
        True
    """

    def __init__(self, channels: int, pool: int = 1) -> None:
        super().__init__(channels)
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[n, c, h, w]`` to ``[n, c, h // pool, w // pool]``."""
        if self.training and self._can_fuse(x):
            return self._fused(x)
        out = functional.relu(super().forward(x))
        return functional.max_pool2d(out, self.pool) if self.pool > 1 else out

    def _can_fuse(self, x: Tensor) -> bool:
        """Return whether the fused operation supports these images, and is worthwhile."""
        worthwhile = self.pool > 1 or not torch.compiler.is_compiling()
        fits = all(size % self.pool == 0 for size in x.shape[2:]) and x.numel() > x.shape[1]
        float32 = self.weight.dtype == torch.float32
        return _HAS_TRITON and x.is_cuda and worthwhile and fits and float32

    def _fused(self, x: Tensor) -> Tensor:
        """Run the fused operation and update the running statistics."""
        from srfca.models.norm_relu_triton import norm_relu

        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        x = x.contiguous(memory_format=torch.channels_last)
        out, _, moments, _ = norm_relu(x, self.weight, self.bias, self.eps, self.pool)
        with torch.no_grad():
            samples = x.numel() // x.shape[1]
            self.running_mean.lerp_(moments[0], self.momentum)
            self.running_var.lerp_(moments[1] * (samples / (samples - 1)), self.momentum)
        return torch.as_tensor(out)
