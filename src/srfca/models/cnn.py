"""The convolutional network of the FEMNIST experiments.

Caldas et al.: LEAF: A Benchmark for Federated Settings, 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from srfca.errors import require, require_positive


@dataclass(frozen=True)
class CNN:
    """Two 5x5 convolutions of 32 and 64 channels, each with ReLU and a 2x2 max-pool, two dense.

    It takes images ``[n, channels, size, size]``, or ``[n, size, size]`` if they have one channel.
    """

    classes: int = 62
    channels: int = 1
    size: int = 28
    hidden: int = 2048

    def __post_init__(self) -> None:
        require_positive(classes=self.classes, channels=self.channels, hidden=self.hidden)
        require(self.size >= 4, f"size must be at least 4 for two max-pools, not {self.size}")

    def __call__(self) -> nn.Module:
        """A new module, with PyTorch's own random start."""
        return nn.Sequential(
            WithChannel(),
            nn.Conv2d(self.channels, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (self.size // 4) ** 2, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, self.classes),
        )


class WithChannel(nn.Module):
    """Images ``[n, h, w]`` as ``[n, 1, h, w]``; those that have channels stay as they are."""

    def forward(self, x: Tensor) -> Tensor:
        """Images ``[n, channels, h, w]``."""
        return x.unsqueeze(1) if x.ndim == 3 else x
