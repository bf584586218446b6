"""The plain PyTorch loop over clients: a module, an optimiser and batches, one client at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Optimizer = Callable[..., torch.optim.Optimizer]


def train(module: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    """One step for each batch of x ``[steps, b, ...]`` and y ``[steps, b]``."""
    module.train()
    for inputs, targets in zip(x, y, strict=True):
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(inputs), targets)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def loss(module: nn.Module, x: Tensor, y: Tensor) -> float:
    """The mean loss per sample."""
    module.eval()
    return float(functional.cross_entropy(module(x), y))
