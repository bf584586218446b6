"""Dense networks on a CPU with steps compiled by numba.

torch's operations are called from Python, by one thread at a time, and its Adam divides twice where
one division is enough.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from srfca.data.client_data import Samples
from srfca.engine.backends.dense import DenseNetwork
from srfca.engine.backends.numba_kernels import train
from srfca.engine.loss import cross_entropy
from srfca.engine.optimizer import BETAS, OptimizerState, moment_names
from srfca.engine.step import Block, Trainable
from srfca.federation.local_training import LocalTraining
from srfca.models.rows import Layout
from srfca.progress import Callback

_PER_CALL = 2**31
"""Multiplications of one compiled call: a tenth of a second between progress reports."""
_ALIGNMENT = 16
"""Numbers per cache line: Adam takes three times as long on unaligned buffers."""


class NumbaTrainer:
    """Trains clients of a dense network one after another, in buffers that are reused."""

    def __init__(self, network: DenseNetwork, samples: Samples) -> None:
        self._x, y = samples.x.flatten(1), samples.y
        self._y = y if network.loss is cross_entropy else y.reshape(len(y), -1).to(self._x)
        self._layers, self._layout = _layers(network), network.layout
        self._length = network.layout.length
        self._state = self._x.new_empty(4, -(-self._length // _ALIGNMENT) * _ALIGNMENT)
        self._batch_buffers: list[Tensor] = []

    @torch.no_grad()
    def train(
        self, block: Block, local: LocalTraining, trainable: Trainable, report: Callback
    ) -> OptimizerState | None:
        """Train the clients of a block through all of their steps."""
        steps, count, width = block.plan.index.shape
        self._allocate(width)
        names, before = moment_names(local), 0 if block.state is None else block.state.steps
        step = width * self._length
        spans = list(_spans(steps, _PER_CALL // step))
        stored = count if local.keep_state or len(spans) > 1 else 0
        moments = block.rows.new_zeros(stored, len(names), self._length)
        if block.state is not None:
            for kind, name in enumerate(names):
                moments[:, kind] = block.state.moments[name]
        rates, roots = _rates(block.plan.rates, local, before, self._x)
        adam, clip = local.optimizer == "adam", local.clip or 0
        rule = self._x.new_tensor([adam, local.momentum, local.weight_decay, local.mu, clip])
        ranges = trainable_ranges(self._layout, trainable)
        fixed = (
            self._x, self._y, rule, ranges, self._layers, self._state, *self._batch_buffers,
        )  # fmt: skip
        no_corrections = self._x.new_empty(0, self._length)
        for part in _spans(count, _PER_CALL // (step * steps)):
            rows = block.rows[part]
            anchors = block.anchors[part] if local.mu else rows
            corrections = no_corrections if block.corrections is None else block.corrections[part]
            for span in spans:
                starts = block.starts[part] if span is spans[0] else rows
                planned = block.plan.index[span, part], block.plan.weights[span, part]
                arguments = (
                    starts, anchors, corrections, *planned, rates[span], roots[span], *fixed,
                )  # fmt: skip
                inputs = (t.contiguous().numpy() for t in arguments)
                train(rows.numpy(), moments[part].numpy(), *inputs)
                report((part.stop - part.start) * (span.stop - span.start))
        if not local.keep_state:
            return None
        return OptimizerState(before + steps, dict(zip(names, moments.unbind(1), strict=True)))

    def _allocate(self, width: int) -> None:
        """Allocate buffers for batches of this size and for the outputs of the layers."""
        if not self._batch_buffers or width != len(self._batch_buffers[0]):
            out = int(self._layers[:, 1].sum())
            shapes = (width, self._x.shape[1]), (out * width,), (out * width,)
            self._batch_buffers = [self._x.new_empty(shape) for shape in shapes]


def _spans(count: int, size: int) -> Iterator[slice]:
    """Cut ``range(count)`` into slices of ``size``, or of one."""
    size = max(1, size)
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


class _SingleThreadedBLAS:
    """Context in which BLAS uses one thread.

    The number of threads is global to the process: the first thread to enter sets it, and the last
    to leave restores it.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._limits = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limits.enter_context(_controller().limit(limits=1, user_api="blas"))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limits.close()


single_threaded_blas = _SingleThreadedBLAS()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def trainable_ranges(layout: Layout, trainable: Trainable) -> Tensor:
    """Return the coordinates that train as ranges ``[r, 2]``."""
    if trainable is None:
        return torch.tensor([[0, layout.length]])
    ranges, start = [], 0
    for name, shape in layout.shapes.items():
        stop = start + shape.numel()
        if name in trainable:
            ranges.append([start, stop])
        start = stop
    return torch.tensor(ranges)


def _layers(network: DenseNetwork) -> Tensor:
    """Describe each layer: in, out, offsets of weights, bias (or -1) and outputs, ReLU or not."""
    offsets, start = {}, 0
    for name, shape in network.layout.shapes.items():
        offsets[name] = start
        start += shape.numel()
    rows, outputs = [], 0
    for layer in network.layers:
        out, into = network.layout.shapes[layer.weight]
        bias = -1 if layer.bias is None else offsets[layer.bias]
        relu = layer.activation is nn.ReLU
        rows.append([into, out, offsets[layer.weight], bias, outputs, relu])
        outputs += out
    return torch.tensor(rows, dtype=torch.int64)


def _rates(rates: Tensor, local: LocalTraining, before: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors ``[steps]`` of the step and of the root of Adam's second moment."""
    if local.optimizer != "adam":
        return rates.to(like), torch.ones_like(rates).to(like)
    done = torch.arange(before + 1, before + 1 + len(rates), dtype=rates.dtype)
    first, second = (1 - beta**done for beta in BETAS)
    return (rates / first).to(like), second.rsqrt().to(like)
