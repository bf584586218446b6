"""Steps on samples that clients have been sent, beside steps on their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from srfca.federation.algorithms._base import LocalAlgorithm, LocalClient, register_algorithm
from srfca.federation.algorithms._optimizer import RowOptimizer
from srfca.federation.flat_samples import inputs_of, targets_of


@register_algorithm
@dataclass(frozen=True, eq=False, kw_only=True)
class SharedDataDescent(LocalAlgorithm):
    """Minimize ``(1 - share) F_i(w) + share F_C(w)``, for a client's samples and shared ones C.

    A step takes a batch of each, of the same size. Shared samples come in the order of their rows,
    round and round.

    Args:
        samples: ``[c, s, w]`` the shared samples of each client (``flatten_samples``).
        shares: ``[c, 1]`` the weight of the shared samples, in [0, 1].
    """

    key: ClassVar[str] = "shared-data"

    samples: Tensor
    shares: Tensor

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        """Return the trained model, ``[P]``."""
        share, optimizer = float(rows["shares"]), RowOptimizer(client.local, start)
        for step in client.steps:
            x, y = client.batch(step)
            chosen = in_turn(rows["samples"], step, len(x))
            gradient = torch.zeros_like(start)
            if share < 1:
                gradient = (1 - share) * client.gradient(optimizer.row, x, y)
            if share > 0:
                inputs, targets = inputs_of(chosen, x), targets_of(chosen, x, y)
                gradient = gradient + share * client.gradient(optimizer.row, inputs, targets)
            optimizer.step(step, gradient)
        return optimizer.row


@register_algorithm
@dataclass(frozen=True, eq=False, kw_only=True)
class Distillation(LocalAlgorithm):
    """Train on shared inputs towards given outputs; the client's own samples are not used.

    Batches are as large as those of the client's own samples, in the order of the rows. With a
    temperature T the loss is ``T^2`` times the cross entropy of the targets and
    ``softmax(outputs / T)``: gradients are about as large for every T.

    Args:
        inputs: ``[c, s, f]`` shared inputs (``flatten_samples``).
        targets: ``[c, s, d]`` probabilities of classes with cross entropy, else values.
        temperature: T; 1 is the loss of the federation.
    """

    key: ClassVar[str] = "distillation"

    inputs: Tensor
    targets: Tensor
    temperature: float = 1.0

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        """Return the trained model, ``[P]``."""
        optimizer = RowOptimizer(client.local, start)
        for step in client.steps:
            x, y = client.batch(step)
            inputs = inputs_of(in_turn(rows["inputs"], step, len(x)), x)
            targets = in_turn(rows["targets"], step, len(x)).to(start)
            if y.is_floating_point():
                targets = targets.reshape(len(inputs), *y.shape[1:])
            if self.temperature == 1:
                gradient = client.gradient(optimizer.row, inputs, targets)
            else:
                gradient = soft_gradient(client, optimizer.row, inputs, targets, self.temperature)
            optimizer.step(step, gradient)
        return optimizer.row


def soft_gradient(
    client: LocalClient, row: Tensor, x: Tensor, targets: Tensor, temperature: float
) -> Tensor:
    """Return the gradient ``[P]`` of ``T^2`` times the cross entropy at a temperature T."""
    with torch.enable_grad():
        leaf = row.detach().requires_grad_()
        chances = (client.outputs(leaf, x) / temperature).log_softmax(1)
        loss = -(temperature**2) * (targets * chances).sum(1).mean()
        (gradient,) = torch.autograd.grad(loss, leaf)
    return gradient


def in_turn(rows: Tensor, step: int, size: int) -> Tensor:
    """Return the rows of a step's batch, as the rows ``[s, w]`` come round and round.

    >>> in_turn(torch.arange(5).view(5, 1), step=1, size=3).flatten().tolist()
    [3, 4, 0]
    """
    positions = step * size + torch.arange(min(size, len(rows)), device=rows.device)
    return rows[positions % len(rows)]
