"""Per-FedAvg's steps: along the gradient of the loss after one step of adaptation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from srfca.federation.algorithms._base import LocalAlgorithm, LocalClient, register_algorithm
from srfca.federation.algorithms._optimizer import RowOptimizer


@register_algorithm
@dataclass(frozen=True, eq=False, kw_only=True)
class MetaDescent(LocalAlgorithm):
    """Minimize ``F(w - a grad F(w))``, the loss after a step of adaptation at rate a.

    Its gradient is ``(I - a H(w)) g`` with g the gradient at the adapted model. The steps of a
    round are counted in gradients: a step of w takes ``num_gradients`` of them, on batches of their
    own for the adaptation, for g and for the Hessian H.

    Args:
        inner_lr: a, the learning rate of the adaptation.
        delta: H g is ``(grad F(w + delta g) - grad F(w - delta g)) / (2 delta)``; 0 leaves it out.
    """

    key: ClassVar[str] = "per-fedavg"

    inner_lr: float
    delta: float

    @property
    def num_gradients(self) -> int:
        """Gradients for a step of w."""
        return 4 if self.delta else 2

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        """Return the trained w, ``[P]``."""
        optimizer = RowOptimizer(client.local, start)
        for first in client.steps[:: self.num_gradients]:
            w = optimizer.row
            adapted = w - self.inner_lr * client.gradient(w, *client.batch(first))
            g = client.gradient(adapted, *client.batch(first + 1))
            if self.delta:
                x, y = client.batch(first + 2)
                above = client.gradient(w + self.delta * g, x, y)
                below = client.gradient(w - self.delta * g, x, y)
                g = g - self.inner_lr * (above - below) / (2 * self.delta)
            optimizer.step(first, g)
        return optimizer.row
