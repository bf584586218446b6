"""A module as a function of its state, for a stack of models at once.

A state holds one stacked tensor ``[c, *shape]`` for each entry of the module. The models' losses
are independent, so the gradient of their sum holds the gradient of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from srfca.engine.loss import Loss, smoothed
from srfca.errors import unknown
from srfca.models.rows import Layout, frozen_tensors, set_training

State = dict[str, Tensor]

Precision = Literal["auto", "float32", "tf32", "bf16"]
"""Precision of matrix products and convolutions; ``auto`` is tf32 on a GPU, else float32."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


class Network:
    """Any module: ``torch.vmap`` over several models, and autograd.

    Args:
        module: The module.
        loss: Loss of each sample.
        precision: One of ``PRECISIONS`` but ``auto``.
        compile: Train through ``torch.compile``.
        channels_last: Whether the module takes images and kernels whose channels lie last in
            memory, which is faster.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        precision: Precision = "float32",
        compile: bool = False,
        channels_last: bool = False,
    ) -> None:
        self.module = module
        self.layout = Layout.of(module)
        self.loss = loss
        self.precision = precision
        self.channels_last = channels_last
        self._training_losses = (
            torch.compile(self._losses, dynamic=False) if compile else self._losses
        )
        self._in_training: bool | None = None
        _drop_idle_counters(module)

    def train(self) -> None:
        """Switch the module to training mode (``set_training``), unless it is in it."""
        if self._in_training is not True:
            set_training(self.module)
            self._in_training = True

    def eval(self) -> None:
        """Switch the module to evaluation mode, unless it is in it."""
        if self._in_training is not False:
            self.module.eval()
            self._in_training = False

    def copy(self) -> Network:
        """Return a copy for another thread: calls change modules. Frozen tensors are shared."""
        shared = {id(tensor): tensor for tensor in frozen_tensors(self.module).values()}
        network = type(self)(deepcopy(self.module, shared), self.loss, self.precision)
        network.channels_last = self.channels_last
        return network

    def outputs(self, state: State, x: Tensor) -> Tensor:
        """Return the outputs ``[c, b, ...]`` of c models, each on its samples ``[c, b, ...]``."""
        return self._over_models(self._call, state, x)

    def losses(self, state: State, x: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the training losses ``[c, b]`` of c models, each on its samples."""
        losses = partial(self._training_losses, smoothing=smoothing)
        return self._over_models(losses, state, x, y)

    def outputs_of_all(self, state: State, x: Tensor) -> Tensor:
        """Return the outputs ``[k, n, ...]`` of k models on the same samples ``[n, ...]``."""
        x = self._laid_out(x)
        if len(next(iter(state.values()))) == 1:
            return self._call(_single(state), x).unsqueeze(0)
        return torch.as_tensor(vmap(self._call, in_dims=(0, None))(state, x))

    def losses_of_all(self, state: State, x: Tensor, y: Tensor) -> Tensor:
        """Return the losses ``[k, n]`` of k models on the same samples ``[n, ...]``."""
        x = self._laid_out(x)
        if len(next(iter(state.values()))) == 1:
            return self._losses(_single(state), x, y).unsqueeze(0)
        return torch.as_tensor(vmap(self._losses, in_dims=(0, None, None))(state, x, y))

    def gradients(self, state: State, smoothing: float = 0.0) -> Gradients:
        """Return what computes the gradients of c models, whose state is changed in place.

        Args:
            state: The models.
            smoothing: The share of each label that is spread over all classes.
        """
        return Gradients(self, state, smoothing)

    def empty_state(self, count: int, device: torch.device) -> State:
        """Return an uninitialized state of ``count`` models, whose parameters require gradients."""
        state = {}
        for name, shape in self.layout.shapes.items():
            entry = torch.empty(count, *shape, dtype=self.layout.dtype, device=device)
            if count == 1 and len(shape) == 4 and self.channels_last:
                entry = entry[0].contiguous(memory_format=torch.channels_last).unsqueeze(0)
            state[name] = entry.requires_grad_(name in self.layout.parameters)
        return state

    def _over_models(
        self, function: Callable[..., Tensor], state: State, x: Tensor, *targets: Tensor
    ) -> Tensor:
        """Apply a function to each model and its samples; a single model needs no ``vmap``."""
        if len(x) != 1:
            return torch.as_tensor(vmap(function)(state, x, *targets))
        samples = (self._laid_out(x.squeeze(0)), *(t.squeeze(0) for t in targets))
        return function(_single(state), *samples).unsqueeze(0)

    def _laid_out(self, x: Tensor) -> Tensor:
        """Return samples ``[n, ...]``, images with their channels last in memory if that helps."""
        if x.ndim == 4 and self.channels_last:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def _losses(self, state: State, x: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the losses ``[b]`` of one model."""
        return smoothed(self.loss, smoothing)(self._call(state, x), y)

    def _call(self, state: State, x: Tensor) -> Tensor:
        """Return the outputs of one model, in the dtype of its row."""
        device = x.device.type
        with torch.autocast(device, torch.bfloat16, self.precision == "bf16", cache_enabled=False):
            outputs = functional_call(self.module, state, (x,))
        return torch.as_tensor(outputs, dtype=self.layout.dtype)


class Gradients:
    """Computes the gradients of c models repeatedly; what can be prepared is prepared once."""

    def __init__(self, network: Network, state: State, smoothing: float = 0.0) -> None:
        smoothed(network.loss, smoothing)  # raises an error if it does not apply
        self._network, self._state, self._smoothing = network, state, smoothing
        self._parameters = [state[name] for name in network.layout.parameters]

    @torch.enable_grad()
    def compute(self, x: Tensor, y: Tensor, weights: Tensor) -> None:
        """Write the gradients of the weighted losses to ``.grad``; weights are ``[c, b]``."""
        for w in self._parameters:
            w.grad = None
        (self._network.losses(self._state, x, y, self._smoothing) * weights).sum().backward()
        _separate(self._parameters)


def _separate(parameters: list[Tensor]) -> None:
    """Give each gradient its own memory: for ``a + b`` autograd returns one tensor for both."""
    addresses = set()
    for w in parameters:
        if w.grad is not None and w.grad.data_ptr() in addresses:
            w.grad = w.grad.clone()
        elif w.grad is not None:
            addresses.add(w.grad.data_ptr())


def _single(state: State) -> State:
    """Return the only model of a stack."""
    return {name: t.squeeze(0) for name, t in state.items()}


def _drop_idle_counters(module: nn.Module) -> None:
    """Remove BatchNorm's batch counters, which only a cumulative mean needs."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.momentum is not None:
            part.num_batches_tracked = None


@contextmanager
def counters_restored(module: nn.Module) -> Iterator[None]:
    """Undo what training writes to integer buffers, which are in no row: BatchNorm's counters."""
    counters = [b for b in module.buffers() if not b.is_floating_point()]
    before = [b.clone() for b in counters]
    try:
        yield
    finally:
        for counter, value in zip(counters, before, strict=True):
            counter.copy_(value)


def precision_named(name: Precision, device: torch.device) -> Precision:
    """Return a precision by name; ``auto`` is tf32 on a GPU, float32 elsewhere."""
    if not isinstance(name, str) or name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    if name == "auto":
        return "tf32" if device.type == "cuda" else "float32"
    return name


@contextmanager
def matmul_precision(precision: Precision) -> Iterator[None]:
    """Use TensorFloat-32 for products and convolutions on a GPU, unless it is ``float32``."""
    before = torch.get_float32_matmul_precision()
    tf32 = precision != "float32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=tf32):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
