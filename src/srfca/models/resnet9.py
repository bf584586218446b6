"""The residual network of the CIFAR-10 experiments: nine layers, made to train fast.

David Page: How to Train Your ResNet, 2018, the winner of DAWNBench.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import torch
from torch import Tensor, nn

from srfca.errors import require_positive, unknown
from srfca.models.norm_relu import NormReLU

_NORMS = ("batch", "group")
_GROUPS = 32


@dataclass(frozen=True)
class ResNet9:
    """Eight 3x3 convolutions, each with a norm and ReLU, four of them in residuals; one dense.

    It takes images ``[n, channels, h, w]`` of at least 8x8. The convolutions have ``width`` to
    ``8 * width`` channels. ``norm`` is ``batch``, or ``group``: 32 groups, fewer where they would
    have less than two channels each.
    """

    classes: int = 10
    channels: int = 3
    norm: str = "batch"
    width: int = 64

    def __post_init__(self) -> None:
        require_positive(classes=self.classes, channels=self.channels, width=self.width)
        if self.norm not in _NORMS:
            raise unknown("norm", self.norm, _NORMS)

    def __call__(self) -> nn.Module:
        """A new module, with PyTorch's own random start."""
        w = self.width
        return nn.Sequential(
            self._convolution(self.channels, w),
            self._convolution(w, 2 * w, pool=2),
            self._residual(2 * w),
            self._convolution(2 * w, 4 * w, pool=2),
            self._convolution(4 * w, 8 * w, pool=2),
            self._residual(8 * w),
            GlobalMax(),
            nn.Linear(8 * w, self.classes),
        )

    def _residual(self, channels: int) -> nn.Module:
        return Residual(
            self._convolution(channels, channels), self._convolution(channels, channels)
        )

    def _convolution(self, inputs: int, outputs: int, pool: int = 1) -> nn.Module:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        if self.norm == "batch":
            return nn.Sequential(convolution, NormReLU(outputs, pool))
        groups = max(1, gcd(outputs, 2 * _GROUPS) // 2)
        pools = [nn.MaxPool2d(pool)] if pool > 1 else []
        return nn.Sequential(convolution, nn.GroupNorm(groups, outputs), nn.ReLU(), *pools)


class GlobalMax(nn.Module):
    """The largest value of each channel; faster on a GPU than a pooling layer."""

    def forward(self, x: Tensor) -> Tensor:
        """``[n, channels]`` from ``[n, channels, h, w]``."""
        return x.amax((2, 3))


class Residual(nn.Module):
    """Its input plus what its layers make of it."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Of the shape of ``x``."""
        return x + torch.as_tensor(self.layers(x))
