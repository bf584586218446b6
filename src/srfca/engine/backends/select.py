"""Choose how the gradients of a module are computed."""

from __future__ import annotations

from torch import Tensor, nn

from srfca.engine.backends.autograd import Network, Precision
from srfca.engine.backends.dense import DenseNetwork, is_dense
from srfca.engine.backends.lstm import step_lstms
from srfca.engine.loss import Loss, cross_entropy, squared_error


def select_network(
    module: nn.Module, loss: Loss, x: Tensor, y: Tensor, precision: Precision, compile: bool
) -> Network:
    """Return the fastest network for a module, given some samples ``x`` and ``y`` ``[n, ...]``."""
    dense = (
        loss in (cross_entropy, squared_error)
        and is_dense(module, x)
        and (y.ndim == 1 or loss is squared_error)
        and precision != "bf16"
        and not compile
    )
    if dense:
        return DenseNetwork(module, loss, precision, compile)
    if any(p.is_cuda for p in module.parameters()):
        step_lstms(module)
    return Network(module, loss, precision, compile)
