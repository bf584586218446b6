"""Choose how the gradients of a module are computed."""

from __future__ import annotations

from copy import deepcopy

import torch
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
    return Network(module, loss, precision, compile, takes_channels_last(module, x[:2]))


def takes_channels_last(module: nn.Module, x: Tensor) -> bool:
    """Return whether a module works with images ``[n, ...]`` whose channels lie last in memory.

    Convolutions, norms and pools are faster then, but ``view`` of such images fails, where
    ``flatten`` and ``reshape`` do not.
    """
    if not any(isinstance(part, nn.Conv2d) for part in module.modules()):
        return False
    plain, last = (deepcopy(module).eval() for _ in range(2))
    last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
    try:
        with torch.random.fork_rng(), torch.enable_grad():
            outputs = last(images)
            same = torch.allclose(plain(x), outputs, rtol=1e-3, atol=1e-4)
            last.train()(images).sum().backward()
    except Exception:  # whatever the module raises: it may not take these samples at all
        return False
    return same
