"""pFedMe's steps: gradient descent on the Moreau envelope of a client's loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from srfca.federation.algorithms._base import LocalAlgorithm, LocalClient, register_algorithm
from srfca.federation.algorithms._optimizer import RowOptimizer


@register_algorithm
@dataclass(frozen=True, eq=False, kw_only=True)
class MoreauDescent(LocalAlgorithm):
    """Minimize the envelope ``min over theta of F(theta) + mu/2 |theta - w|^2`` over w.

    ``inner_steps`` steps on one batch improve theta, which starts from w at the beginning of a
    round. Then w goes along the gradient ``mu (w - theta)`` of the envelope, and so on.

    Args:
        inner_steps: K, the steps of theta between two of w.
        mu: lambda in the paper.
        outer_lr: eta, the learning rate of w.
    """

    key: ClassVar[str] = "pfedme"

    inner_steps: int
    mu: float
    outer_lr: float

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        """Return the trained w, ``[P]``."""
        w, theta = start, RowOptimizer(client.local, start)
        for first in client.steps[:: self.inner_steps]:
            x, y = client.batch(first)
            for step in range(first, min(first + self.inner_steps, client.steps.stop)):
                theta.step(step, client.gradient(theta.row, x, y) + self.mu * (theta.row - w))
            w = w - self.outer_lr * self.mu * (w - theta.row)
        return w
