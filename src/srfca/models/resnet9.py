"""The residual network of the CIFAR-10 experiments: nine layers that train fast.

David Page: How to Train Your ResNet, 2018 (winner of DAWNBench).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from srfca.errors import require_positive, unknown
from srfca.models.norm_relu import NormReLU

Norm = Literal["batch", "group"]
"""The normalization after each convolution."""
NORMS: tuple[Norm, ...] = get_args(Norm)
_GROUPS = 32


@dataclass(frozen=True)
class ResNet9:
    """Eight 3x3 convolutions, four of them in residual blocks, then one dense layer.

    Each convolution is followed by a normalization and ReLU. The module maps images
    ``[n, channels, h, w]`` of at least 8x8 to logits ``[n, classes]``.

    Args:
        classes: Number of classes.
        channels: Number of channels of the images.
        norm: ``batch``, or ``group``: 32 groups, fewer where a group would have less than two
            channels.
        width: Channels of the first convolution; the last ones have ``8 * width``.

    Raises:
        InputError: If a size is below 1, or the norm is unknown.

    Examples:
        >>> import torch
        >>> ResNet9(norm="group", width=4)()(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 10])
    """

    classes: int = 10
    channels: int = 3
    norm: Norm = "batch"
    width: int = 64

    def __post_init__(self) -> None:
        require_positive(classes=self.classes, channels=self.channels, width=self.width)
        if self.norm not in NORMS:
            raise unknown("norm", self.norm, NORMS)

    def __call__(self) -> nn.Module:
        """Return a new module with PyTorch's default initialization."""
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
        """Return a residual block of two convolutions."""
        return Residual(
            self._convolution(channels, channels), self._convolution(channels, channels)
        )

    def _convolution(self, inputs: int, outputs: int, pool: int = 1) -> nn.Module:
        """Return a convolution with its normalization, ReLU and max pool."""
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        if self.norm == "batch":
            return nn.Sequential(convolution, NormReLU(outputs, pool))
        groups = max(1, gcd(outputs, 2 * _GROUPS) // 2)
        pools = [nn.MaxPool2d(pool)] if pool > 1 else []
        return nn.Sequential(convolution, nn.GroupNorm(groups, outputs), nn.ReLU(), *pools)


class GlobalMax(nn.Module):
    """Maximum over each channel; faster than a pooling layer on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[n, channels, h, w]`` to ``[n, channels]``."""
        return x.amax((2, 3))


class Residual(nn.Module):
    """A residual block: the input plus the output of its layers."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the same shape."""
        return x + torch.as_tensor(self.layers(x))
