"""Dense models: linear, and the multi-layer perceptron of the MNIST experiments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from srfca.errors import require, require_positive


@dataclass(frozen=True)
class Linear:
    """A linear model whose weights start at zero.

    Args:
        inputs: Number of features; samples are flattened.
        outputs: Number of outputs.
        bias: Whether there is a bias.

    Raises:
        InputError: If a size is below 1.

    Examples:
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
        """Return a new module, all zeros."""
        layer = nn.Linear(self.inputs, self.outputs, self.bias)
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)
        return nn.Sequential(nn.Flatten(), layer)


@dataclass(frozen=True)
class MLP:
    """A multi-layer perceptron with ReLU between its layers.

    Args:
        inputs: Number of features; samples are flattened.
        hidden: Width of each hidden layer.
        outputs: Number of outputs.

    Raises:
        InputError: If a size is below 1.

    Examples:
        >>> MLP(inputs=64, hidden=(32,), outputs=10)()
        Sequential(
          (0): Flatten(start_dim=1, end_dim=-1)
          (1): Linear(in_features=64, out_features=32, bias=True)
          (2): ReLU()
          (3): Linear(in_features=32, out_features=10, bias=True)
        )
    """

    inputs: int
    hidden: tuple[int, ...]
    outputs: int

    def __post_init__(self) -> None:
        require_positive(inputs=self.inputs, outputs=self.outputs)
        for width in self.hidden:
            require_positive(hidden=width)

    def __call__(self) -> nn.Module:
        """Return a new module with PyTorch's default initialization."""
        layers: list[nn.Module] = [nn.Flatten()]
        for width, following in pairwise((self.inputs, *self.hidden, self.outputs)):
            layers += [nn.Linear(width, following), nn.ReLU()]
        return nn.Sequential(*layers[:-1])


def linear(inputs: int, outputs: int = 1, *, bias: bool = True) -> Linear:
    """Return a linear model whose weights start at zero.

    Args:
        inputs: Number of features.
        outputs: Number of outputs.
        bias: Whether there is a bias.

    Returns:
        What makes the module, each time that it is called.

    Raises:
        InputError: If a size is below 1.

    Examples:
        >>> linear(64, 10)
        Linear(inputs=64, outputs=10, bias=True)
    """
    return Linear(inputs, outputs, bias)


def mlp(inputs: int, *widths: int) -> MLP:
    """Return a multi-layer perceptron.

    Args:
        inputs: Number of features.
        *widths: Widths of the hidden layers, then the number of outputs.

    Returns:
        What makes the module, each time that it is called.

    Raises:
        InputError: If the number of outputs is missing, or a size is below 1.

    Examples:
        >>> mlp(784, 200, 10)
        MLP(inputs=784, hidden=(200,), outputs=10)
    """
    require(len(widths) >= 1, "mlp needs at least the number of inputs and of outputs")
    return MLP(inputs, widths[:-1], widths[-1])
