"""The recurrent network of the Shakespeare experiments, which predicts the next character.

Caldas et al.: LEAF: A Benchmark for Federated Settings, 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from srfca.errors import require_positive


@dataclass(frozen=True)
class LSTM:
    """An embedding, stacked LSTM layers, and a dense layer on the last state.

    The module maps indices of symbols ``[n, length]`` to logits ``[n, symbols]``.

    Args:
        symbols: Size of the alphabet.
        embedding: Width of the embedding.
        hidden: Width of each LSTM layer.
        layers: Number of LSTM layers.

    Raises:
        InputError: If a size is below 1.

    Examples:
        >>> import torch
        >>> LSTM(symbols=5, hidden=4)()(torch.zeros(2, 7, dtype=torch.int64)).shape
        torch.Size([2, 5])
    """

    symbols: int = 80
    embedding: int = 8
    hidden: int = 256
    layers: int = 2

    def __post_init__(self) -> None:
        require_positive(
            symbols=self.symbols, embedding=self.embedding, hidden=self.hidden, layers=self.layers
        )

    def __call__(self) -> nn.Module:
        """Return a new module with PyTorch's default initialization."""
        return nn.Sequential(
            nn.Embedding(self.symbols, self.embedding),
            LastState(self.embedding, self.hidden, self.layers),
            nn.Linear(self.hidden, self.symbols),
        )


class LastState(nn.Module):
    """Stacked LSTM layers that return the top layer's last state."""

    def __init__(self, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, num_layers=layers, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[n, length, inputs]`` to ``[n, hidden]``."""
        states, _ = self.lstm(x)
        return torch.as_tensor(states[:, -1])
