"""A module as a function of its state, for a stack of models at once.

A state holds one stacked tensor ``[c, *shape]`` for each entry of the module. The models' losses
are independent, so the gradient of their sum holds the gradient of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from srfca.errors import unknown
from srfca.federation.loss import Loss
from srfca.models.rows import Layout

State = dict[str, Tensor]

PRECISIONS = ("auto", "float32", "tf32", "bf16")


class Network:
    """Any module: ``torch.vmap`` where several models go together, and autograd.

    Args:
        module: The module.
        loss: Of each sample.
        precision: One of ``PRECISIONS`` but ``auto``.
        compile: Training goes through ``torch.compile``.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        precision: str = "float32",
        compile: bool = False,
    ) -> None:
        self.module = module
        self.layout = Layout.of(module)
        self.loss = loss
        self.precision = precision
        self._trained = torch.compile(self._losses, dynamic=False) if compile else self._losses
        _drop_idle_counters(module)

    def copy(self) -> Network:
        """One of its own for another thread: modules are changed while they are called."""
        return type(self)(deepcopy(self.module), self.loss, self.precision)

    def outputs(self, state: State, x: Tensor) -> Tensor:
        """Outputs ``[c, b, ...]`` of c models, each on its own samples ``[c, b, ...]``."""
        return _over_models(self._call, state, x)

    def losses(self, state: State, x: Tensor, y: Tensor) -> Tensor:
        """Losses ``[c, b]`` of c models in training, each on its own samples ``[c, b, ...]``."""
        return _over_models(self._trained, state, x, y)

    def losses_of_all(self, state: State, x: Tensor, y: Tensor) -> Tensor:
        """Losses ``[k, n]`` of k models on the same samples ``[n, ...]``."""
        if len(next(iter(state.values()))) == 1:
            return self._losses(_single(state), x, y).unsqueeze(0)
        return torch.as_tensor(vmap(self._losses, in_dims=(0, None, None))(state, x, y))

    def passes(self, state: State) -> Passes:
        """The passes of c models in training, whose state stays where it is."""
        return Passes(self, state)

    def leaves(self, count: int, device: torch.device) -> State:
        """An empty state of ``count`` models, whose parameters can be trained."""
        state = {}
        for name, shape in self.layout.shapes.items():
            entry = torch.empty(count, *shape, dtype=self.layout.dtype, device=device)
            if count == 1 and len(shape) == 4 and device.type == "cuda":
                entry = entry[0].contiguous(memory_format=torch.channels_last).unsqueeze(0)
            state[name] = entry.requires_grad_(name in self.layout.parameters)
        return state

    def _losses(self, state: State, x: Tensor, y: Tensor) -> Tensor:
        """Losses ``[b]`` of one model."""
        return self.loss(self._call(state, x), y)

    def _call(self, state: State, x: Tensor) -> Tensor:
        """Outputs of one model, in the type of its row."""
        device = x.device.type
        if x.ndim == 4 and device == "cuda":
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, torch.bfloat16, self.precision == "bf16", cache_enabled=False):
            outputs = functional_call(self.module, state, (x,))
        return torch.as_tensor(outputs, dtype=self.layout.dtype)


class Passes:
    """Gradients of c models, again and again, where they are: what can be is made ready once."""

    def __init__(self, network: Network, state: State) -> None:
        self._network, self._state = network, state
        self._trained = [state[name] for name in network.layout.parameters]

    @torch.enable_grad()
    def gradient(self, x: Tensor, y: Tensor, weights: Tensor) -> None:
        """Leave each model's gradient of its weighted losses in ``.grad``; weights are [c, b]."""
        for w in self._trained:
            w.grad = None
        (self._network.losses(self._state, x, y) * weights).sum().backward()
        _separate(self._trained)


def _over_models(one: Callable[..., Tensor], state: State, *samples: Tensor) -> Tensor:
    """Apply ``one`` to each model and its samples; a single model goes without vmap."""
    if len(samples[0]) == 1:
        return one(_single(state), *(t.squeeze(0) for t in samples)).unsqueeze(0)
    return torch.as_tensor(vmap(one)(state, *samples))


def _separate(parameters: list[Tensor]) -> None:
    """Give each gradient memory of its own: of ``a + b`` autograd makes one for both."""
    taken = set()
    for w in parameters:
        if w.grad is not None and w.grad.data_ptr() in taken:
            w.grad = w.grad.clone()
        elif w.grad is not None:
            taken.add(w.grad.data_ptr())


def _single(state: State) -> State:
    """The only model of a stack."""
    return {name: t.squeeze(0) for name, t in state.items()}


def _drop_idle_counters(module: nn.Module) -> None:
    """BatchNorm counts its batches for a cumulative mean, and otherwise for nothing."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.momentum is not None:
            part.num_batches_tracked = None


@contextmanager
def counters_restored(module: nn.Module) -> Iterator[None]:
    """Undo what training writes to integer buffers (BatchNorm counts its batches): not in a row."""
    counters = [b for b in module.buffers() if not b.is_floating_point()]
    before = [b.clone() for b in counters]
    try:
        yield
    finally:
        for counter, value in zip(counters, before, strict=True):
            counter.copy_(value)


def precision_named(name: str, device: torch.device) -> str:
    """``auto`` is tf32 on a GPU, float32 elsewhere."""
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    if name == "auto":
        return "tf32" if device.type == "cuda" else "float32"
    return name


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Products and convolutions on a GPU with or without TensorFloat-32."""
    before = torch.get_float32_matmul_precision()
    fast = precision != "float32"
    torch.set_float32_matmul_precision("high" if fast else "highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=fast):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
