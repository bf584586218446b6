"""A block of clients that train together, in buffers that are used again and again."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from srfca.data.clients import Samples
from srfca.federation.augment import Augmentation, none
from srfca.federation.base import Work
from srfca.federation.dense import Dense
from srfca.federation.network import Network, counters_restored
from srfca.federation.optimizer import Kept, Optimizer


@dataclass(frozen=True)
class Plan:
    """What clients take in each of their steps, drawn beforehand."""

    index: Tensor
    """``[steps, c, b]`` places of samples."""
    weights: Tensor
    """``[steps, c, b]`` of each sample in its client's loss."""
    changes: Tensor
    """``[steps, c]`` random streams of the augmentation."""
    rates: Tensor
    """``[steps]``"""

    def block(self, clients: slice, width: int) -> Plan:
        """Some of the clients, and as many samples as the widest of them takes."""
        return Plan(
            self.index[:, clients, :width],
            self.weights[:, clients, :width],
            self.changes[:, clients],
            self.rates,
        )


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
    """The buffers of c clients that train together, and one step of theirs."""

    def __init__(
        self, network: Network, samples: Samples, augment: Augmentation, work: Work, plan: Plan
    ) -> None:
        device = samples.x.device
        _, count, width = plan.index.shape
        self._network, self._samples, self._augment, self._work = network, samples, augment, work
        self._state = network.leaves(count, device)
        self._anchors = network.leaves(count, device) if work.prox else {}
        self._parameters = [self._state[name] for name in network.layout.parameters]
        self._plan = Plan(*(t.new_empty(t.shape) for t in _tensors(plan)))
        on_gpu = device.type == "cuda"
        self._done = torch.zeros(1, dtype=torch.int64, device=device) if on_gpu else 0
        plain = not (work.momentum or work.weight_decay or work.prox or work.clip)
        self._descends = (
            plain and work.optimizer == "sgd" and isinstance(network, Dense) and not on_gpu
        )
        self._x = samples.x.new_empty(count * width, *samples.x.shape[1:])
        self._shape = (count, width)
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

    def capture(self) -> None:
        """Make a CUDA graph of a step; what the buffers hold is lost."""
        with counters_restored(self._network.module):
            self._network.module.train()
            for t in (*self._state.values(), *self._anchors.values()):
                t.detach().zero_()
            for t in _tensors(self._plan):
                t.zero_()
            for _ in range(3):
                self._restart()
                self._step()
            self._restart()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                self._step()
        self._graph = graph

    def _step(self) -> None:
        samples, plan = self._samples, self._plan
        at = self._now(plan.index).flatten()
        torch.index_select(samples.x, 0, at, out=self._x)
        x = self._x.view(*self._shape, *samples.x.shape[1:])
        if self._augment is not none:
            x = self._augment(x, self._now(plan.changes))
        y = samples.y.index_select(0, at).view(*self._shape, *samples.y.shape[1:])
        weights, rate = self._now(plan.weights), self._rate()
        if self._descends:
            assert isinstance(self._network, Dense)
            assert isinstance(rate, float)
            self._network.descend(self._state, x, y, weights, rate)
        else:
            self._network.gradient(self._state, x, y, weights)
            if self._work.prox:
                self._pull()
            if self._work.clip is not None:
                _clip(self._parameters, self._work.clip)
            self._optimizer.step(rate)
        self._done += 1

    def _now(self, planned: Tensor) -> Tensor:
        """What is planned for this step; in a CUDA graph the GPU counts the steps."""
        if isinstance(self._done, int):
            return planned[self._done]
        return planned.index_select(0, self._done).squeeze(0)

    def _rate(self) -> float | Tensor:
        rate = self._now(self._plan.rates)
        return rate if rate.is_cuda else float(rate)

    def _restart(self) -> None:
        if isinstance(self._done, int):
            self._done = 0
        else:
            self._done.zero_()

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
        for mine, theirs in zip(_tensors(self._plan), _tensors(job.plan), strict=True):
            mine.copy_(theirs)
        self._restart()
        self._optimizer.load(job.kept)

    @torch.no_grad()
    def _store(self, rows: Tensor) -> None:
        start = 0
        for name, shape in self._network.layout.shapes.items():
            end = start + prod(shape)
            rows[:, start:end].view(len(rows), *shape).copy_(self._state[name])
            start = end


def _tensors(plan: Plan) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return plan.index, plan.weights, plan.changes, plan.rates


def _clip(parameters: list[Tensor], largest: float) -> None:
    """Scale each client's gradient to a norm of at most ``largest``."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = torch.stack([g.reshape(len(g), -1).square().sum(1) for g in gradients])
    scale = (largest / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(scale.view(-1, *[1] * (g.ndim - 1)))
