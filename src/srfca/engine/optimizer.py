"""SGD and Adam for a stack of models, through torch's fused kernels.

``torch.optim`` calls the same kernels, but its own overhead is larger than their time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from srfca.engine.row_slots import RowSlots
from srfca.federation.local_training import LocalTraining

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
class OptimizerState:
    """Optimizer state between rounds.

    Args:
        steps: Steps done.
        moments: Moments as rows, of one client or of several.
    """

    steps: int
    moments: dict[str, Tensor]


class Optimizer:
    """Steps along the gradients in ``.grad`` of stacked parameters ``[c, ...]``."""

    def __init__(self, parameters: list[Tensor], local: LocalTraining) -> None:
        self._local = local
        self._moments = {
            name: [torch.zeros_like(w) for w in parameters] for name in moment_names(local)
        }
        self._slots = {name: RowSlots(moments) for name, moments in self._moments.items()}
        self._entries = list(zip(parameters, *self._moments.values(), strict=True))
        self._steps = torch.zeros((), device=parameters[0].device)

    def step(self, rate: float | Tensor) -> None:
        """Move all parameters that have a gradient; on a GPU the rate is a tensor."""
        moving = [(w, w.grad, *moments) for w, *moments in self._entries if w.grad is not None]
        if not moving:
            return
        parameters, gradients, *moments = zip(*moving, strict=True)
        decay = self._local.weight_decay
        if self._local.optimizer == "adam":
            self._steps += 1
            steps = [self._steps] * len(moving)
            _adam(parameters, gradients, *moments, [], steps, lr=rate, weight_decay=decay)
        else:
            momentum, buffers = self._local.momentum, moments[0] if moments else []
            _sgd(parameters, gradients, buffers, lr=rate, weight_decay=decay, momentum=momentum)

    @torch.no_grad()
    def load(self, state: OptimizerState | None) -> None:
        """Continue from a state, or start with zero moments."""
        self._steps.fill_(0 if state is None else state.steps)
        for name, moments in self._moments.items():
            if state is None:
                torch._foreach_zero_(moments)
            else:
                self._slots[name].load(state.moments[name])

    def state(self, steps: int) -> OptimizerState:
        """Return the moments after this many steps, as rows ``[c, trained]``."""
        rows = {
            name: torch.cat([moment.flatten(1) for moment in moments], dim=1)
            for name, moments in self._moments.items()
        }
        return OptimizerState(steps, rows)


def moment_names(local: LocalTraining) -> tuple[str, ...]:
    """Return the names of the moments that the optimizer has."""
    if local.optimizer == "adam":
        return "exp_avg", "exp_avg_sq"
    return ("momentum_buffer",) if local.momentum else ()
