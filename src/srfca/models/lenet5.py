"""LeNet-5, with rectified linear units and average pools.

LeCun et al.: Gradient-Based Learning Applied to Document Recognition, Proceedings of the IEEE 1998.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from srfca.errors import require, require_positive
from srfca.models.cnn import WithChannel


@dataclass(frozen=True)
class LeNet5:
    """Two 5x5 convolutions, each with ReLU and a 2x2 average pool, then three dense layers.

    The first convolution keeps the size of the images. The module maps images
    ``[n, channels, size, size]``, or ``[n, size, size]`` with one channel, to logits
    ``[n, classes]``.

    Args:
        classes: Number of classes.
        channels: Number of channels of the images.
        size: Height and width of the images, at least 12.

    Raises:
        InputError: If a size is too small.

    Examples:
        >>> sum(weights.numel() for weights in LeNet5()().parameters())
        61706
    """

    classes: int = 10
    channels: int = 1
    size: int = 28

    def __post_init__(self) -> None:
        require_positive(classes=self.classes, channels=self.channels)
        require(self.size >= 12, f"size must be at least 12 for LeNet-5, not {self.size}")

    def __call__(self) -> nn.Module:
        """Return a new module with PyTorch's default initialization."""
        side = (self.size // 2 - 4) // 2
        return nn.Sequential(
            WithChannel(),
            nn.Conv2d(self.channels, 6, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * side**2, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, self.classes),
        )
