"""SGD and Adam for a stack of models, by torch's fused kernels.

``torch.optim`` calls the same kernels, and takes longer than they do around them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from srfca.federation.base import Work

BETAS = 0.9, 0.999
EPSILON = 1e-8

_adam: Any = partial(
    torch._fused_adam_,
    beta1=BETAS[0], beta2=BETAS[1], eps=EPSILON, amsgrad=False, maximize=False,
)  # fmt: skip
_sgd: Any = partial(
    torch._fused_sgd_, dampening=0.0, nesterov=False, maximize=False, is_first_step=False
)


@dataclass(frozen=True)
class Kept:
    """Clients' optimiser state between rounds: steps done, and their moments as rows."""

    steps: int
    moments: dict[str, Tensor]


class Optimizer:
    """Steps along the gradients in ``.grad`` of stacked parameters ``[c, ...]``; no autograd."""

    def __init__(self, parameters: list[Tensor], work: Work) -> None:
        self._work = work
        self._moments = {
            name: [torch.zeros_like(w) for w in parameters] for name in moment_names(work)
        }
        self._each = list(zip(parameters, *self._moments.values(), strict=True))
        self._steps = torch.zeros((), device=parameters[0].device)

    def step(self, rate: float | Tensor) -> None:
        """Move all parameters that have a gradient; on a GPU the rate is a tensor."""
        moving = [(w, w.grad, *moments) for w, *moments in self._each if w.grad is not None]
        if not moving:
            return
        parameters, slopes, *moments = zip(*moving, strict=True)
        decay = self._work.weight_decay
        if self._work.optimizer == "adam":
            self._steps += 1
            steps = [self._steps] * len(moving)
            _adam(parameters, slopes, *moments, [], steps, lr=rate, weight_decay=decay)
        else:
            momentum, buffers = self._work.momentum, moments[0] if moments else []
            _sgd(parameters, slopes, buffers, lr=rate, weight_decay=decay, momentum=momentum)

    @torch.no_grad()
    def load(self, kept: Kept | None) -> None:
        """Go on from a kept state, or start anew: at zero, which is where both begin."""
        self._steps.fill_(0 if kept is None else kept.steps)
        for name, moments in self._moments.items():
            at = 0
            for moment in moments:
                if kept is None:
                    moment.zero_()
                else:
                    width = moment[0].numel()
                    moment.copy_(kept.moments[name][:, at : at + width].reshape(moment.shape))
                    at += width

    def keep(self, steps: int) -> Kept:
        """The moments after so many steps, as rows ``[c, trained]``."""
        rows = {
            name: torch.cat([moment.flatten(1) for moment in moments], dim=1)
            for name, moments in self._moments.items()
        }
        return Kept(steps, rows)


def moment_names(work: Work) -> tuple[str, ...]:
    """The moments that an optimiser keeps."""
    if work.optimizer == "adam":
        return "exp_avg", "exp_avg_sq"
    return ("momentum_buffer",) if work.momentum else ()
