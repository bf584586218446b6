"""Batch norm, ReLU and a max pool as one layer, which a GPU goes through in far fewer passes."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional

_FUSES = find_spec("triton") is not None


class NormReLU(nn.BatchNorm2d):
    """Batch norm and ReLU, and a max pool of ``pool`` x ``pool``, of images ``[n, c, h, w]``.

    In training on a GPU it is one operation (``norm_relu_triton``) where triton is there and the
    images' sizes are multiples of ``pool``; else the layers that it stands for. Without a pool
    ``torch.compile`` fuses these as well.

    >>> x = torch.randn(2, 3, 8, 8)
    >>> apart = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2))
    >>> torch.equal(NormReLU(3, pool=2)(x), apart(x))
    True
    """

    def __init__(self, channels: int, pool: int = 1) -> None:
        super().__init__(channels)
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        """``[n, c, h // pool, w // pool]``."""
        if self.training and self._fuses(x):
            return self._fused(x)
        out = functional.relu(super().forward(x))
        return functional.max_pool2d(out, self.pool) if self.pool > 1 else out

    def _fuses(self, x: Tensor) -> bool:
        pays = self.pool > 1 or not torch.compiler.is_compiling()
        whole = all(size % self.pool == 0 for size in x.shape[2:]) and x.numel() > x.shape[1]
        return _FUSES and x.is_cuda and pays and whole and self.weight.dtype == torch.float32

    def _fused(self, x: Tensor) -> Tensor:
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
