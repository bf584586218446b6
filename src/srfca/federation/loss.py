"""Losses, per sample."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from srfca.errors import InputError, unknown

Loss = Callable[[Tensor, Tensor], Tensor]
"""From outputs ``[n, ...]`` and targets ``[n, ...]`` to the loss of each sample, ``[n]``."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of logits ``[n, classes, ...]`` and classes ``[n, ...]``: ``[n]``."""
    losses = functional.cross_entropy(outputs, targets, reduction="none")
    return losses.flatten(1).mean(1) if losses.ndim > 1 else losses


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared error, the mean over a sample's outputs: ``[n]``."""
    if outputs.shape != targets.shape:
        outputs = outputs.reshape(targets.shape)
    errors = (outputs - targets).square()
    return errors.flatten(1).mean(1) if errors.ndim > 1 else errors


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "squared_error": squared_error}


def loss_named(loss: str | Loss, targets: Tensor) -> Loss:
    """A loss by name; ``auto`` is cross entropy for integer targets, else squared error."""
    if not isinstance(loss, str):
        return loss
    if loss == "auto":
        return squared_error if targets.is_floating_point() else cross_entropy
    if loss not in LOSSES:
        raise unknown("loss", loss, ["auto", *LOSSES])
    if loss == "cross_entropy" and targets.is_floating_point():
        raise InputError(f"cross entropy needs integer labels, but y is of type {targets.dtype}")
    return LOSSES[loss]
