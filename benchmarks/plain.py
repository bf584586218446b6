"""The plain PyTorch loop over clients: a module, an optimizer and batches, one client at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

Batches = Iterable[Sequence[Tensor]]
"""Pairs of inputs ``[b, ...]`` and targets ``[b]``."""


def train(module: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches) -> None:
    """Take one step for each batch."""
    module.train()
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(inputs), targets)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def mean_loss(module: nn.Module, batches: Batches) -> float:
    """Return the mean loss per sample."""
    module.eval()
    total, samples = 0.0, 0
    for inputs, targets in batches:
        total += float(functional.cross_entropy(module(inputs), targets, reduction="sum"))
        samples += len(targets)
    return total / samples
