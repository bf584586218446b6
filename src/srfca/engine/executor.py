"""Lanes: where a few clients train together, in buffers that are used again and again.

On a CPU a lane is a thread, whose clients' rows, gradients and moments fit into the cache. On a GPU
it is a stream, and a step is a CUDA graph, captured once and replayed.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from srfca.data.clients import Samples
from srfca.federation.augment import Augmentation, none
from srfca.federation.base import Tick, Work
from srfca.federation.block import Block, Job
from srfca.federation.dense import Dense
from srfca.federation.network import Network, arithmetic, counters_restored
from srfca.federation.optimizer import Kept
from srfca.threads import over_threads

if TYPE_CHECKING:
    from srfca.federation.chain import Chain

_NUMBA = find_spec("numba") is not None
_STREAMS = 8
"""Lanes of a GPU where clients train one at a time."""
_REMEMBERED = 8
"""Kinds of work whose buffers a lane keeps."""
_WORTH = 2**22
"""Products of a step that are worth to be split among threads."""


class Lane:
    """A thread's or a stream's own network, and its buffers for the kinds of work it has seen."""

    def __init__(self, network: Network, samples: Samples, augment: Augmentation) -> None:
        on_gpu = samples.x.device.type == "cuda"
        self._network = network if on_gpu else network.copy()
        self._samples, self._augment = samples, augment
        self._chain: Chain | None = None
        self._known: OrderedDict[object, Block] = OrderedDict()
        self.stream = torch.cuda.Stream() if on_gpu else None

    def buffers(self, job: Job, work: Work, graph: bool) -> Block:
        """Buffers for a job of this kind, with a step captured as a CUDA graph if asked for."""
        kind = (
            job.plan.index.shape, work.optimizer, work.momentum, work.weight_decay, work.clip,
            work.prox, work.keep_state, graph,
        )  # fmt: skip
        if kind not in self._known:
            made = Block(self._network, self._samples, self._augment, work, job.plan)
            if graph:
                made.capture(job.plan)
            self._known[kind] = made
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(kind)
        return self._known[kind]

    @torch.no_grad()
    def train(self, job: Job, work: Work, tick: Tick) -> Kept | None:
        """Train the clients of a job, from start to end."""
        buffers = self.buffers(job, work, graph=False)
        with counters_restored(self._network.module):
            buffers.begin(job)
            for _ in range(len(job.plan.rates)):
                buffers.step()
                tick(len(job.rows))
        return buffers.finish(job)

    def train_compiled(self, job: Job, work: Work, tick: Tick) -> Kept | None:
        """The same for a dense network on a CPU, by numba."""
        if self._chain is None:
            from srfca.federation.chain import Chain

            assert isinstance(self._network, Dense)
            self._chain = Chain(self._network, self._samples)
        return self._chain.train(job, work, tick)


_How = Callable[[Lane, Job, Work, Tick], Kept | None]
"""A lane trains the clients of a job."""


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
        self.compiles = (
            isinstance(network, Dense)
            and network.rectified
            and network.layout.dtype in (torch.float32, torch.float64)
            and augment is none
            and self._device.type == "cpu"
            and _NUMBA
        )
        """Whether numba can train the clients."""

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
        if self.compiles and self._fill_threads(jobs) and self._numba_loads():
            return self._compiled(jobs, work, tick)
        with arithmetic(self._network.precision), torch.random.fork_rng(enabled=self._random):
            if self._device.type == "cuda":
                return self._over_streams(jobs, work, tick)
            if min(self.count, len(jobs)) == 1:
                return [self._lanes[0].train(job, work, tick) for job in jobs]
            return self._over_threads(Lane.train, jobs, work, tick)

    def _fill_threads(self, jobs: Sequence[Job]) -> bool:
        """Whether nothing is lost if a client has one thread: torch splits a product among all."""
        alone = len(jobs) == 1 < self.count
        return not alone or jobs[0].plan.index[0].numel() * self._network.layout.length < _WORTH

    def _numba_loads(self) -> bool:
        """Whether numba can be used: it refuses a numpy that is newer than it knows."""
        try:
            import_module("srfca.federation.chain")
        except ImportError as error:
            self.compiles = False
            told = f"training goes without numba, which does not load: {error}"
            warnings.warn(told, stacklevel=2)
        return self.compiles

    def _compiled(self, jobs: Sequence[Job], work: Work, tick: Tick) -> list[Kept | None]:
        from srfca.federation.chain import products_by_one_thread

        with products_by_one_thread:
            return self._over_threads(Lane.train_compiled, jobs, work, tick)

    def _over_threads(
        self, how: _How, jobs: Sequence[Job], work: Work, tick: Tick
    ) -> list[Kept | None]:
        kept: list[Kept | None] = [None] * len(jobs)
        lock = threading.Lock()

        def report(steps: int) -> None:
            with lock:
                tick(steps)

        def train(lane: int, place: int) -> None:
            kept[place] = how(self._lanes[lane], jobs[place], work, report)

        over_threads(train, range(len(jobs)), min(self.count, len(jobs)))
        return kept

    @torch.no_grad()
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
