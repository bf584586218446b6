"""The convolutional network of the FEMNIST experiments.

Caldas et al.: LEAF: A Benchmark for Federated Settings, 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from srfca.errors import require, require_positive


@dataclass(frozen=True)
class CNN:
    """Two 5x5 convolutions, each with ReLU and a 2x2 max pool, then two dense layers.

    The module maps images ``[n, channels, size, size]``, or ``[n, size, size]`` with one channel,
    to logits ``[n, classes]``.

    Args:
        classes: Number of classes.
        channels: Number of channels of the images.
        size: Height and width of the images, at least 4.
        hidden: Width of the hidden dense layer.

    Raises:
        InputError: If a size is too small.

    Examples:
        >>> import torch
        >>> CNN(classes=10, size=8, hidden=4)()(torch.zeros(2, 8, 8)).shape
        torch.Size([2, 10])
    """

    classes: int = 62
    channels: int = 1
    size: int = 28
    hidden: int = 2048

    def __post_init__(self) -> None:
        require_positive(classes=self.classes, channels=self.channels, hidden=self.hidden)
        require(self.size >= 4, f"size must be at least 4 for two max pools, not {self.size}")

    def __call__(self) -> nn.Module:
        """Return a new module with PyTorch's default initialization."""
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
    """Add a channel to images ``[n, h, w]``; images ``[n, channels, h, w]`` pass unchanged."""

    def forward(self, x: Tensor) -> Tensor:
        """Return images ``[n, channels, h, w]``."""
        return x.unsqueeze(1) if x.ndim == 3 else x
