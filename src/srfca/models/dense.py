"""Dense models: linear, and the multi-layer perceptron of the MNIST experiments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from srfca.errors import require, require_positive


@dataclass(frozen=True)
class Linear:
    """A linear model that starts at zero.

    >>> Linear(3, bias=False)()
    Sequential(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): Linear(in_features=3, out_features=1, bias=False)
    )
    """

    inputs: int
    outputs: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        require_positive(inputs=self.inputs, outputs=self.outputs)

    def __call__(self) -> nn.Module:
        """A new module."""
        layer = nn.Linear(self.inputs, self.outputs, self.bias)
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)
        return nn.Sequential(nn.Flatten(), layer)


@dataclass(frozen=True)
class MLP:
    """A multi-layer perceptron with ReLU between its layers; ``hidden`` may hold several widths."""

    inputs: int
    hidden: tuple[int, ...]
    outputs: int

    def __post_init__(self) -> None:
        require_positive(inputs=self.inputs, outputs=self.outputs)
        for width in self.hidden:
            require_positive(hidden=width)

    def __call__(self) -> nn.Module:
        """A new module, with PyTorch's own random start."""
        layers: list[nn.Module] = [nn.Flatten()]
        for width, following in pairwise((self.inputs, *self.hidden, self.outputs)):
            layers += [nn.Linear(width, following), nn.ReLU()]
        return nn.Sequential(*layers[:-1])


def linear(inputs: int, outputs: int = 1, *, bias: bool = True) -> Linear:
    """A linear model that starts at zero."""
    return Linear(inputs, outputs, bias)


def mlp(inputs: int, *widths: int) -> MLP:
    """A multi-layer perceptron: ``mlp(784, 200, 10)`` has one hidden layer of 200.

    >>> mlp(784, 200, 10)
    MLP(inputs=784, hidden=(200,), outputs=10)
    """
    require(len(widths) >= 1, "mlp needs at least the number of inputs and of outputs")
    return MLP(inputs, widths[:-1], widths[-1])
