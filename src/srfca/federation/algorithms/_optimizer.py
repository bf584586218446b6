"""The optimizer of ``LocalTraining``, for local algorithms that compute gradients themselves."""

from __future__ import annotations

import torch
from torch import Tensor

from srfca.federation.local_training import LocalTraining


class RowOptimizer:
    """Steps of SGD or Adam on one row, with weight decay and clipping as in ``Descent``.

    Args:
        local: Optimizer, learning rate and schedule.
        start: ``[P]`` where the row starts; it is not changed.

    >>> optimizer = RowOptimizer(LocalTraining(lr=0.5), torch.tensor([1.0, 2.0]))
    >>> optimizer.step(0, torch.tensor([2.0, 0.0]))
    >>> optimizer.row
    tensor([0., 2.])
    """

    def __init__(self, local: LocalTraining, start: Tensor) -> None:
        self._local = local
        self.row = start.detach().clone()
        self._optimizer: torch.optim.Optimizer
        if local.optimizer == "adam":
            self._optimizer = torch.optim.Adam(
                [self.row], lr=local.lr, weight_decay=local.weight_decay
            )
        else:
            self._optimizer = torch.optim.SGD(
                [self.row],
                lr=local.lr,
                momentum=local.momentum,
                weight_decay=local.weight_decay,
            )

    def step(self, step: int, gradient: Tensor) -> None:
        """Take a step of the whole training along a gradient ``[P]``."""
        self.row.grad = gradient.detach().clone()
        if self._local.clip is not None:
            torch.nn.utils.clip_grad_norm_([self.row], self._local.clip)
        self._optimizer.param_groups[0]["lr"] = self._local.rate(step)
        self._optimizer.step()
