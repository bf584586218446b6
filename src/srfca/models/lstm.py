"""The recurrent network of the Shakespeare experiments: the next character.

Caldas et al.: LEAF: A Benchmark for Federated Settings, 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from srfca.errors import require_positive


@dataclass(frozen=True)
class LSTM:
    """An embedding, stacked LSTM layers, and a dense layer on the state of the last position.

    It takes ``[n, length]`` numbers of symbols and puts out logits ``[n, symbols]``.
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
        """A new module, with PyTorch's own random start."""
        return nn.Sequential(
            nn.Embedding(self.symbols, self.embedding),
            LastState(self.embedding, self.hidden, self.layers),
            nn.Linear(self.hidden, self.symbols),
        )


class LastState(nn.Module):
    """Stacked LSTM layers, of which the last state of the top one goes on."""

    def __init__(self, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, num_layers=layers, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """``[n, hidden]`` from ``[n, length, inputs]``."""
        states, _ = self.lstm(x)
        return torch.as_tensor(states[:, -1])
