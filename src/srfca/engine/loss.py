"""Losses and correctness, per sample."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Literal

from torch import Tensor
from torch.nn import functional

from srfca.errors import InputError, require, unknown
from srfca.models.signature import LossKind, predicted_classes

LossName = Literal["auto", "cross_entropy", "squared_error"]
"""A loss by name; ``auto`` is cross entropy for integer targets, else squared error."""
Loss = Callable[[Tensor, Tensor], Tensor]
"""From outputs ``[n, ...]`` and targets ``[n, ...]`` to the loss of each sample: ``[n]``."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy ``[n]`` of logits ``[n, classes, ...]`` and classes ``[n, ...]``."""
    losses = functional.cross_entropy(outputs, targets, reduction="none")
    return losses.flatten(1).mean(1) if losses.ndim > 1 else losses


def smoothed(loss: Loss, smoothing: float) -> Loss:
    """Return the cross entropy with smoothed labels: this share of each is spread over all classes.

    Args:
        loss: The loss.
        smoothing: The share; 0 returns the loss itself.

    Raises:
        InputError: If the loss is not cross entropy.
    """
    if smoothing == 0:
        return loss
    require(
        loss is cross_entropy,
        f"label_smoothing={smoothing} needs the loss cross_entropy, with classes as targets",
    )

    def smoothed_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = functional.cross_entropy(
            outputs, targets, reduction="none", label_smoothing=smoothing
        )
        return losses.flatten(1).mean(1) if losses.ndim > 1 else losses

    return smoothed_cross_entropy


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error, averaged over the outputs of a sample: ``[n]``."""
    if outputs.shape != targets.shape:
        outputs = outputs.reshape(targets.shape)
    errors = (outputs - targets).square()
    return errors.flatten(1).mean(1) if errors.ndim > 1 else errors


def constant_loss(loss: Loss, targets: Tensor, num_outputs: int) -> float | None:
    """Return the mean loss of predicting a constant, None for a loss of the user's.

    Args:
        loss: The loss.
        targets: ``[n, ...]``
        num_outputs: Number of outputs of the model: the number of classes for the cross entropy.

    >>> from torch import tensor
    >>> constant_loss(squared_error, tensor([1.0, 3.0]), 1)
    1.0
    >>> round(constant_loss(cross_entropy, tensor([0, 1]), 4), 3)
    1.386
    """
    if loss is cross_entropy:
        return log(num_outputs)
    if loss is squared_error:
        values = targets.double()
        return float((values - values.mean(0)).square().mean())
    return None


def correct(outputs: Tensor, targets: Tensor) -> Tensor | None:
    """Return the fraction of each sample's integer targets ``[n, ...]`` that is predicted: ``[n]``.

    None if the targets are not integers, or the outputs have another shape.

    >>> from torch import tensor
    >>> correct(tensor([[-1.0], [2.0]]), tensor([0, 0]))
    tensor([1., 0.])
    """
    predicted = None if targets.is_floating_point() else predicted_classes(outputs, targets.shape)
    if predicted is None:
        return None
    same = (predicted == targets).to(outputs.dtype)
    return same.flatten(1).mean(1) if same.ndim > 1 else same


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "squared_error": squared_error}


def loss_kind(loss: Loss) -> LossKind:
    """Return the name of a loss, ``custom`` if it is a user's."""
    if loss is cross_entropy:
        return "cross_entropy"
    return "squared_error" if loss is squared_error else "custom"


def loss_named(loss: LossName | Loss, targets: Tensor) -> Loss:
    """Return a loss by name; ``auto`` is cross entropy for integer targets, else squared error."""
    if not isinstance(loss, str):
        require(callable(loss), f"loss must be a name or a function, not {loss!r}")
        return loss
    if loss == "auto":
        return squared_error if targets.is_floating_point() else cross_entropy
    if loss not in LOSSES:
        raise unknown("loss", loss, ["auto", *LOSSES])
    if loss == "cross_entropy" and targets.is_floating_point():
        raise InputError(f"cross entropy needs integer labels, but y is of type {targets.dtype}")
    return LOSSES[loss]
