"""Lanes: where a few clients train together, in buffers that are used again and again.

On a CPU a lane is a thread, whose clients' rows, gradients and moments fit into the cache. On a GPU
it is a stream, and a step is a CUDA graph, captured once and replayed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from srfca.data.clients import Samples
from srfca.federation.augment import Augmentation, none
from srfca.federation.base import Tick, Work
from srfca.federation.dense import Dense
from srfca.federation.network import Network, arithmetic, counters_restored

_STREAMS = 8
"""Lanes of a GPU where clients train one at a time."""
_REMEMBERED = 8
"""Kinds of work whose buffers a lane keeps."""


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
class Kept:
    """Clients' optimiser state between rounds: steps done, and their moments as rows."""

    steps: int
    moments: dict[str, Tensor]


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


class Buffers:
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
        self._rate = plan.rates.new_zeros(())
        self._x = samples.x.new_empty(count * width, *samples.x.shape[1:])
        self._shape = (count, width)
        self._optimizer = _optimizer(self._parameters, work, self._rate)
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
        return self._keep(job) if self._work.keep_state else None

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
        weights = self._now(plan.weights)
        if self._descends:
            assert isinstance(self._network, Dense)
            self._network.descend(self._state, x, y, weights, float(self._now(plan.rates)))
        else:
            self._network.gradient(self._state, x, y, weights)
            if self._work.prox:
                self._pull()
            if self._work.clip is not None:
                _clip(self._parameters, self._work.clip)
            self._rate.copy_(self._now(plan.rates))
            self._optimizer.step()
        self._done += 1

    def _now(self, planned: Tensor) -> Tensor:
        """What is planned for this step; in a CUDA graph the GPU counts the steps."""
        if isinstance(self._done, int):
            return planned[self._done]
        return planned.index_select(0, self._done).squeeze(0)

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
        at = 0
        for w in self._parameters:
            width = w[0].numel()
            for name, entry in self._optimizer.state[w].items():
                if name == "step":
                    entry.fill_(0 if job.kept is None else job.kept.steps)
                elif job.kept is None:
                    entry.zero_()
                else:
                    entry.copy_(job.kept.moments[name][:, at : at + width].reshape(w.shape))
            at += width

    @torch.no_grad()
    def _store(self, rows: Tensor) -> None:
        start = 0
        for name, shape in self._network.layout.shapes.items():
            end = start + prod(shape)
            rows[:, start:end].view(len(rows), *shape).copy_(self._state[name])
            start = end

    def _keep(self, job: Job) -> Kept:
        """The optimiser's moments as rows ``[c, trained]``."""
        entries = [self._optimizer.state[w] for w in self._parameters]
        names = [name for name in entries[0] if name != "step"]
        moments = {
            name: torch.cat([entry[name].flatten(1) for entry in entries], dim=1) for name in names
        }
        before = 0 if job.kept is None else job.kept.steps
        return Kept(before + len(job.plan.rates), moments)


class Lane:
    """A thread's or a stream's own network, and its buffers for the kinds of work it has seen."""

    def __init__(self, network: Network, samples: Samples, augment: Augmentation) -> None:
        on_gpu = samples.x.device.type == "cuda"
        self._network = network if on_gpu else network.copy()
        self._samples, self._augment = samples, augment
        self._known: OrderedDict[object, Buffers] = OrderedDict()
        self.stream = torch.cuda.Stream() if on_gpu else None

    def buffers(self, job: Job, work: Work, graph: bool) -> Buffers:
        """Buffers for a job of this kind, with a step captured as a CUDA graph if asked for."""
        kind = (
            job.plan.index.shape, work.optimizer, work.momentum, work.weight_decay, work.clip,
            work.prox, work.keep_state, graph,
        )  # fmt: skip
        if kind not in self._known:
            made = Buffers(self._network, self._samples, self._augment, work, job.plan)
            if graph:
                made.capture()
            self._known[kind] = made
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(kind)
        return self._known[kind]

    def train(self, job: Job, work: Work, tick: Tick) -> Kept | None:
        """Train the clients of a job, from start to end."""
        buffers = self.buffers(job, work, graph=False)
        with counters_restored(self._network.module):
            buffers.begin(job)
            for _ in range(len(job.plan.rates)):
                buffers.step()
                tick(len(job.rows))
        return buffers.finish(job)


class Lanes:
    """All lanes of a device."""

    def __init__(
        self,
        network: Network,
        samples: Samples,
        augment: Augmentation,
        *,
        alone: bool,
        random: bool,
    ) -> None:
        self._device = samples.x.device
        self._network, self._samples, self._augment = network, samples, augment
        self._lanes: list[Lane] = []
        self._random = random
        self._streams = _STREAMS if alone and not random else 1
        self.graphs = self._device.type == "cuda" and not random
        """Whether steps are replayed as CUDA graphs."""

    @property
    def count(self) -> int:
        """How many there are."""
        if self._device.type == "cuda":
            return self._streams
        return 1 if self._random else torch.get_num_threads()

    def forget(self) -> None:
        """Give back the buffers' memory."""
        self._lanes = []

    def train(self, jobs: Sequence[Job], work: Work, tick: Tick) -> list[Kept | None]:
        """Train the clients of all jobs."""
        while len(self._lanes) < min(self.count, len(jobs)):
            self._lanes.append(Lane(self._network, self._samples, self._augment))
        with arithmetic(self._network.precision), torch.random.fork_rng(enabled=self._random):
            if self._device.type == "cuda":
                return self._over_streams(jobs, work, tick)
            if min(self.count, len(jobs)) == 1:
                return [self._lanes[0].train(job, work, tick) for job in jobs]
            return self._over_threads(jobs, work, tick)

    def _over_threads(self, jobs: Sequence[Job], work: Work, tick: Tick) -> list[Kept | None]:
        """Every thread takes the next job; operations are not split among threads themselves."""
        kept: list[Kept | None] = [None] * len(jobs)
        waiting, lock = iter(enumerate(jobs)), threading.Lock()

        def report(steps: int) -> None:
            with lock:
                tick(steps)

        def take() -> tuple[int, Job] | None:
            with lock:
                return next(waiting, None)

        def work_off(lane: Lane) -> None:
            while (taken := take()) is not None:
                place, job = taken
                kept[place] = lane.train(job, work, report)

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with ThreadPoolExecutor(threads) as pool:
            try:
                list(pool.map(work_off, self._lanes[:threads]))
            finally:
                while take() is not None:
                    pass
                torch.set_num_threads(threads)
        return kept

    def _over_streams(self, jobs: Sequence[Job], work: Work, tick: Tick) -> list[Kept | None]:
        """One job on every stream at a time, step by step, so that no stream's queue blocks."""
        if self.graphs and not self._captures(jobs[0], work):
            self.graphs = False
        if not self.graphs:
            return [self._lanes[0].train(job, work, tick) for job in jobs]
        kept: list[Kept | None] = []
        here = torch.cuda.current_stream(self._device)
        with counters_restored(self._network.module):
            for first in range(0, len(jobs), len(self._lanes)):
                wave = jobs[first : first + len(self._lanes)]
                streams, buffers = [], []
                for lane, job in zip(self._lanes, wave, strict=False):
                    assert lane.stream is not None
                    lane.stream.wait_stream(here)
                    streams.append(torch.cuda.stream(lane.stream))
                    with streams[-1]:
                        buffers.append(lane.buffers(job, work, graph=True))
                        buffers[-1].begin(job)
                for _ in range(len(wave[0].plan.rates)):
                    for stream, one in zip(streams, buffers, strict=True):
                        with stream:
                            one.step()
                    tick(sum(len(job.rows) for job in wave))
                for stream, one, job in zip(streams, buffers, wave, strict=True):
                    with stream:
                        kept.append(one.finish(job))
            for lane in self._lanes:
                assert lane.stream is not None
                here.wait_stream(lane.stream)
        return kept

    def _captures(self, job: Job, work: Work) -> bool:
        """Whether a step can be captured: nothing in it may wait for the GPU."""
        lane = self._lanes[0]
        try:
            with torch.cuda.stream(lane.stream):
                lane.buffers(job, work, graph=True)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            torch.cuda.synchronize(self._device)
            return False
        return True


def _tensors(plan: Plan) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return plan.index, plan.weights, plan.changes, plan.rates


def _optimizer(parameters: list[Tensor], work: Work, rate: Tensor) -> torch.optim.Optimizer:
    """With its state made beforehand: at zero, which is where both begin."""
    optimizer: torch.optim.Optimizer
    names: tuple[str, ...]
    if work.optimizer == "adam":
        names = ("exp_avg", "exp_avg_sq")
        optimizer = torch.optim.Adam(
            parameters, lr=rate, weight_decay=work.weight_decay, fused=True,
            capturable=rate.device.type == "cuda",
        )  # fmt: skip
    else:
        names = ("momentum_buffer",) if work.momentum else ()
        optimizer = torch.optim.SGD(
            parameters, lr=rate, momentum=work.momentum, weight_decay=work.weight_decay, fused=True
        )
    for w in parameters:
        state = optimizer.state[w]
        if work.optimizer == "adam":
            state["step"] = torch.zeros((), dtype=torch.float32, device=w.device)
        state.update({name: torch.zeros_like(w) for name in names})
    return optimizer


def _clip(parameters: list[Tensor], largest: float) -> None:
    """Scale each client's gradient to a norm of at most ``largest``."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = torch.stack([g.reshape(len(g), -1).square().sum(1) for g in gradients])
    scale = (largest / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(scale.view(-1, *[1] * (g.ndim - 1)))
