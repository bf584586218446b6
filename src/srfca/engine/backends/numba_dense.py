"""Dense networks on a CPU without Python in their steps: what numba makes of them.

torch's operations are called from Python, by one thread at a time, and its Adam divides twice where
once will do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from srfca.data.clients import Samples
from srfca.federation.base import Tick, Work
from srfca.federation.block import Job
from srfca.federation.dense import Dense
from srfca.federation.dense_numba import train
from srfca.federation.loss import cross_entropy
from srfca.federation.optimizer import BETAS, Kept, moment_names

_AT_ONCE = 2**31
"""Products of a call, at the most: a tenth of a second, then progress is told."""
_ALIGNED = 16
"""Numbers of a cache line: where buffers begin elsewhere, Adam takes three times as long."""


class Chain:
    """Trains clients of a dense network one after another, in buffers that are used again."""

    def __init__(self, network: Dense, samples: Samples) -> None:
        self._x, y = samples.x.flatten(1), samples.y
        self._y = y if network.loss is cross_entropy else y.reshape(len(y), -1).to(self._x)
        self._layers = _layers(network)
        self._length = network.layout.length
        self._state = self._x.new_empty(4, -(-self._length // _ALIGNED) * _ALIGNED)
        self._room: list[Tensor] = []

    @torch.no_grad()
    def train(self, job: Job, work: Work, tick: Tick) -> Kept | None:
        """Train the clients of a job, from start to end."""
        steps, count, width = job.plan.index.shape
        self._make_room(width)
        names, before = moment_names(work), 0 if job.kept is None else job.kept.steps
        step = width * self._length
        spans = list(_spans(steps, _AT_ONCE // step))
        stored = count if work.keep_state or len(spans) > 1 else 0
        moments = job.rows.new_zeros(stored, len(names), self._length)
        if job.kept is not None:
            for kind, name in enumerate(names):
                moments[:, kind] = job.kept.moments[name]
        rates, roots = _rates(job.plan.rates, work, before, self._x)
        adam, clip = work.optimizer == "adam", work.clip or 0
        rule = self._x.new_tensor([adam, work.momentum, work.weight_decay, work.prox, clip])
        fixed = self._x, self._y, rule, self._layers, self._state, *self._room
        for some in _spans(count, _AT_ONCE // (step * steps)):
            rows = job.rows[some]
            anchors = job.anchors[some] if work.prox else rows
            for span in spans:
                starts = job.starts[some] if span is spans[0] else rows
                planned = job.plan.index[span, some], job.plan.weights[span, some]
                given = starts, anchors, *planned, rates[span], roots[span], *fixed
                inputs = (t.contiguous().numpy() for t in given)
                train(rows.numpy(), moments[some].numpy(), *inputs)
                tick((some.stop - some.start) * (span.stop - span.start))
        if not work.keep_state:
            return None
        return Kept(before + steps, dict(zip(names, moments.unbind(1), strict=True)))

    def _make_room(self, width: int) -> None:
        """Buffers for batches of so many samples, and for what the layers make of them."""
        if not self._room or width != len(self._room[0]):
            out = int(self._layers[:, 1].sum())
            shapes = (width, self._x.shape[1]), (out * width,), (out * width,)
            self._room = [self._x.new_empty(shape) for shape in shapes]


def _spans(count: int, size: int) -> Iterator[slice]:
    """``range(count)`` in parts of ``size``, or of one."""
    size = max(1, size)
    return (slice(at, min(at + size, count)) for at in range(0, count, size))


class _OneThread:
    """BLAS does not split a product among further threads while anybody is inside.

    Its number of threads is the whole process's: the first sets it, and the last sets it back.
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


products_by_one_thread = _OneThread()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def _layers(network: Dense) -> Tensor:
    """``[layers, 6]``: in, out, where weights, bias (or -1) and outputs begin, whether ReLU."""
    begins, at = {}, 0
    for name, shape in network.layout.shapes.items():
        begins[name] = at
        at += shape.numel()
    rows, outputs = [], 0
    for layer in network.layers:
        out, into = network.layout.shapes[layer.weight]
        bias = -1 if layer.bias is None else begins[layer.bias]
        relu = layer.activation is nn.ReLU
        rows.append([into, out, begins[layer.weight], bias, outputs, relu])
        outputs += out
    return torch.tensor(rows, dtype=torch.int64)


def _rates(rates: Tensor, work: Work, before: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """``[steps]`` what a step is multiplied by, and what the root of Adam's second moment is."""
    if work.optimizer != "adam":
        return rates.to(like), torch.ones_like(rates).to(like)
    done = torch.arange(before + 1, before + 1 + len(rates), dtype=rates.dtype)
    first, second = (1 - beta**done for beta in BETAS)
    return (rates / first).to(like), second.rsqrt().to(like)
