"""A block of clients that train together, in buffers that are used again and again."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from srfca.data.clients import Samples
from srfca.federation.augment import Augmentation, none
from srfca.federation.base import Work
from srfca.federation.dense import DensePasses
from srfca.federation.network import Network, counters_restored
from srfca.federation.optimizer import Kept, Optimizer
from srfca.federation.plan import Listed, Plan, Replayed, Takes


@dataclass(frozen=True)
class Job:
    """Clients that train together."""

    starts: Tensor
    """``[c, P]``"""
    anchors: Tensor
    """``[c, P]``"""
    plan: Plan
    kept: Kept | None
    rows: Tensor
    """``[c, P]``, where the trained models go to."""
    seed: int | None
    """Of the module's own randomness, if it has any."""


class Block:
    """The buffers of c clients that train together, and one step of theirs, without autograd."""

    def __init__(
        self, network: Network, samples: Samples, augment: Augmentation, work: Work, plan: Plan
    ) -> None:
        device = samples.x.device
        _, count, width = plan.index.shape
        self._network, self._samples, self._augment, self._work = network, samples, augment, work
        self._state = network.leaves(count, device)
        self._passes = network.passes(self._state)
        self._anchors = network.leaves(count, device) if work.prox else {}
        self._parameters = [self._state[name] for name in network.layout.parameters]
        on_gpu = device.type == "cuda"
        self._takes: Takes = Replayed(samples.y, plan) if on_gpu else Listed(samples.y)
        extras = work.momentum or work.weight_decay or work.prox or work.clip
        plain = work.optimizer == "sgd" and not extras
        self._descends = plain and isinstance(self._passes, DensePasses) and not on_gpu
        self._gathered = samples.x.new_empty(count * width, *samples.x.shape[1:])
        self._x = self._gathered.view(count, width, *samples.x.shape[1:])
        self._optimizer = Optimizer(self._parameters, work)
        self._graph: torch.cuda.CUDAGraph | None = None

    def begin(self, job: Job) -> None:
        """Take the clients' starts and what they will need."""
        self._network.module.train()
        if job.seed is not None:
            torch.manual_seed(job.seed)
        self._load(job)

    def step(self) -> None:
        """One step of all clients."""
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()

    def finish(self, job: Job) -> Kept | None:
        """Write the clients' models where the job says."""
        self._store(job.rows)
        if not self._work.keep_state:
            return None
        before = 0 if job.kept is None else job.kept.steps
        return self._optimizer.keep(before + len(job.plan.rates))

    def capture(self, plan: Plan) -> None:
        """Make a CUDA graph of a step; what the buffers hold is lost."""
        with counters_restored(self._network.module):
            self._network.module.train()
            for t in (*self._state.values(), *self._anchors.values()):
                t.detach().zero_()
            for _ in range(3):
                self._takes.load(plan)
                self._step()
            self._takes.load(plan)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                self._step()
        self._graph = graph

    def _step(self) -> None:
        at, y, weights, changes, rate = self._takes.next()
        torch.index_select(self._samples.x, 0, at, out=self._gathered)
        x = self._x if self._augment is none else self._augment(self._x, changes)
        if self._descends:
            assert isinstance(self._passes, DensePasses)
            assert isinstance(rate, float)
            self._passes.descend(x, y, weights, rate)
        else:
            self._passes.gradient(x, y, weights)
            if self._work.prox:
                self._pull()
            if self._work.clip is not None:
                _clip(self._parameters, self._work.clip)
            self._optimizer.step(rate)

    def _pull(self) -> None:
        """Add the gradient of ``prox/2 |w - anchor|^2``."""
        for name in self._network.layout.parameters:
            w = self._state[name]
            pull = (w.detach() - self._anchors[name].detach()) * self._work.prox
            w.grad = pull if w.grad is None else w.grad.add_(pull)

    @torch.no_grad()
    def _load(self, job: Job) -> None:
        layout = self._network.layout
        for name, part in layout.unstack(job.starts).items():
            self._state[name].copy_(part)
        if self._anchors:
            for name, part in layout.unstack(job.anchors).items():
                self._anchors[name].copy_(part)
        self._takes.load(job.plan)
        self._optimizer.load(job.kept)

    @torch.no_grad()
    def _store(self, rows: Tensor) -> None:
        start = 0
        for name, shape in self._network.layout.shapes.items():
            end = start + prod(shape)
            rows[:, start:end].view(len(rows), *shape).copy_(self._state[name])
            start = end


def _clip(parameters: list[Tensor], largest: float) -> None:
    """Scale each client's gradient to a norm of at most ``largest``."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = torch.stack([g.reshape(len(g), -1).square().sum(1) for g in gradients])
    scale = (largest / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(scale.view(-1, *[1] * (g.ndim - 1)))
