"""Dense networks on a CPU without Python in their steps: what numba makes of them.

torch's operations are called from Python, by one thread at a time, and its Adam divides twice where
once will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


class Chain:
    """Trains clients of a dense network one after another, in buffers that are used again.

    The buffers are torch's, which begin at a cache line: elsewhere Adam takes three times as long.
    """

    def __init__(self, network: Dense, samples: Samples) -> None:
        self._x, y = samples.x.flatten(1), samples.y
        self._y = y if network.loss is cross_entropy else y.reshape(len(y), -1).to(self._x)
        self._layers = _layers(network)
        self._row, self._gradient, *self._moments = (
            self._x.new_empty(network.layout.length) for _ in range(4)
        )
        self._room: list[Tensor] = []

    @torch.no_grad()
    def train(self, job: Job, work: Work, tick: Tick) -> Kept | None:
        """Train the clients of a job, from start to end."""
        steps, clients, width = job.plan.index.shape
        self._make_room(width)
        before = 0 if job.kept is None else job.kept.steps
        rates, roots = _rates(job.plan.rates, work, before, self._x)
        moments = dict(zip(moment_names(work), self._moments, strict=False))
        kept = {name: torch.empty_like(job.rows) for name in moments if work.keep_state}
        adam, clip = work.optimizer == "adam", work.clip or 0
        rule = self._x.new_tensor([adam, work.momentum, work.weight_decay, work.prox, clip])
        mine = [self._row, self._gradient, *self._moments, self._x, self._y, rule, self._layers]
        buffers = [t.numpy() for t in (*mine, *self._room)]
        stride = max(1, _AT_ONCE // (width * len(self._row)))
        for client in range(clients):
            self._row.copy_(job.starts[client])
            for name, moment in moments.items():
                moment.copy_(job.kept.moments[name][client]) if job.kept else moment.zero_()
            anchor = job.anchors[client].contiguous().numpy()
            own = job.plan.index[:, client], job.plan.weights[:, client], rates, roots
            for first in range(0, steps, stride):
                taken = [t[first : first + stride].contiguous().numpy() for t in own]
                train(anchor, *taken, *buffers)
                tick(len(taken[0]))
            job.rows[client] = self._row
            for name, rows in kept.items():
                rows[client] = moments[name]
        return Kept(before + steps, kept) if work.keep_state else None

    def _make_room(self, width: int) -> None:
        """Buffers for batches of so many samples, and for what the layers make of them."""
        if not self._room or width != len(self._room[0]):
            out = int(self._layers[:, 1].sum())
            shapes = (width, self._x.shape[1]), (out * width,), (out * width,)
            self._room = [self._x.new_empty(shape) for shape in shapes]


@contextmanager
def products_by_one_thread() -> Iterator[None]:
    """BLAS does not split a product among further threads."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


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
