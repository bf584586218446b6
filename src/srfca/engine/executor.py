"""Runs blocks of clients on all threads of a CPU, or on streams of a GPU.

On a CPU a worker is a thread, and the rows, gradients and moments of its block fit into the cache.
On a GPU a worker is a stream, and a step is a CUDA graph, captured once and replayed.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

import torch

from srfca import progress
from srfca.data.client_data import Samples
from srfca.engine.augment import Augmentation, none
from srfca.engine.backends.autograd import Network, counters_restored, matmul_precision
from srfca.engine.backends.dense import DenseNetwork
from srfca.engine.optimizer import OptimizerState
from srfca.engine.step import Block, BlockBuffers, Phases, Trainable
from srfca.federation.local_training import LocalTraining
from srfca.registry import is_installed
from srfca.threads import run_in_threads

if TYPE_CHECKING:
    from srfca.engine.backends.numba_dense import NumbaTrainer

_NUMBA = is_installed("numba")
_STREAMS = 8
"""Workers on a GPU if clients train one at a time."""
_CACHED_BUFFERS = 8
"""Buffers that a worker keeps, by kind of block."""
_LARGE_STEP = 2**22
"""Multiplications of a step from which torch splits them among threads."""


class Worker:
    """A thread or a stream, with its copy of the network and its buffers."""

    def __init__(self, network: Network, samples: Samples, augment: Augmentation) -> None:
        on_gpu = samples.x.device.type == "cuda"
        self._network = network if on_gpu else network.copy()
        self._samples, self._augment = samples, augment
        self._numba: NumbaTrainer | None = None
        self._buffers: OrderedDict[object, BlockBuffers] = OrderedDict()
        self.stream = torch.cuda.Stream() if on_gpu else None

    def buffers(
        self, block: Block, local: LocalTraining, trainable: Trainable, graph: bool
    ) -> BlockBuffers:
        """Return buffers for this kind of block; with ``graph`` a step is captured."""
        kind = (
            block.plan.index.shape, local.optimizer, local.momentum, local.weight_decay, local.clip,
            local.mu, local.keep_state, local.label_smoothing, block.corrections is not None,
            trainable, graph,
        )  # fmt: skip
        if kind not in self._buffers:
            buffers = BlockBuffers(
                self._network, self._samples, self._augment, local, block, trainable
            )
            if graph:
                buffers.capture(block.plan)
            self._buffers[kind] = buffers
            if len(self._buffers) > _CACHED_BUFFERS:
                self._buffers.popitem(last=False)
        self._buffers.move_to_end(kind)
        return self._buffers[kind]

    @torch.no_grad()
    def train(
        self,
        block: Block,
        local: LocalTraining,
        phases: Phases,
        report: progress.Callback,
        with_numba: bool = False,
    ) -> OptimizerState | None:
        """Train the clients of a block through all of their steps."""
        state = None
        if with_numba:
            trainer = self._numba_trainer()
            for trainable, span in phases:
                state = trainer.train(block.phase(span), local, trainable, report)
            return state
        with counters_restored(self._network.module):
            for trainable, span in phases:
                part = block.phase(span)
                buffers = self.buffers(part, local, trainable, graph=False)
                buffers.begin(part)
                for _ in span:
                    buffers.step()
                    report(len(block.rows))
                state = buffers.finish(part)
        return state

    def _numba_trainer(self) -> NumbaTrainer:
        if self._numba is None:
            from srfca.engine.backends.numba_dense import NumbaTrainer

            assert isinstance(self._network, DenseNetwork)
            self._numba = NumbaTrainer(self._network, self._samples)
        return self._numba


class Executor:
    """All workers of a device.

    Args:
        network: What is trained.
        samples: Training data of all clients.
        augment: Augmentation of training images.
        one_by_one: Whether a block is a single client.
        draws: Whether the module draws random numbers.
    """

    def __init__(
        self,
        network: Network,
        samples: Samples,
        augment: Augmentation,
        *,
        one_by_one: bool,
        draws: bool,
    ) -> None:
        self._device = samples.x.device
        self._network, self._samples, self._augment = network, samples, augment
        self._workers: list[Worker] = []
        self._draws = draws
        self._streams = _STREAMS if one_by_one and not draws else 1
        self.uses_graphs = self._device.type == "cuda" and not draws
        """Whether steps are replayed as CUDA graphs."""
        self.uses_numba = (
            isinstance(network, DenseNetwork)
            and network.relu_only
            and network.layout.dtype in (torch.float32, torch.float64)
            and augment is none
            and self._device.type == "cpu"
            and _NUMBA
        )
        """Whether numba can train the clients."""

    @property
    def num_workers(self) -> int:
        """How many blocks train at the same time."""
        if self._device.type == "cuda":
            return self._streams
        return 1 if self._draws else torch.get_num_threads()

    def release(self) -> None:
        """Free the memory of all buffers."""
        self._workers = []

    def train(
        self, blocks: Sequence[Block], local: LocalTraining, phases: Phases
    ) -> list[OptimizerState | None]:
        """Train the clients of all blocks; return the optimizer states if they are kept."""
        while len(self._workers) < min(self.num_workers, len(blocks)):
            self._workers.append(Worker(self._network, self._samples, self._augment))
        with_numba = (
            self.uses_numba
            and not local.label_smoothing
            and self._fills_threads(blocks)
            and self._import_numba()
        )
        states: list[OptimizerState | None] = [None] * len(blocks)
        report = _synchronized(progress.callback())

        def work(worker: int, number: int) -> None:
            states[number] = self._workers[worker].train(
                blocks[number], local, phases, report, with_numba
            )

        with self._arithmetic(with_numba):
            if self._device.type == "cuda":
                return self._over_streams(blocks, local, phases)
            num_workers = min(self.num_workers, len(blocks))
            if num_workers == 1 and not with_numba:  # torch splits operations among all threads
                for number in range(len(blocks)):
                    work(0, number)
            else:
                run_in_threads(work, range(len(blocks)), num_workers)
        return states

    @contextmanager
    def _arithmetic(self, with_numba: bool) -> Iterator[None]:
        """Set the precision of products, or one thread for BLAS, and isolate random numbers."""
        if with_numba:
            from srfca.engine.backends.numba_dense import single_threaded_blas

            with single_threaded_blas:
                yield
        else:
            with (
                matmul_precision(self._network.precision),
                torch.random.fork_rng(enabled=self._draws),
            ):
                yield

    def _fills_threads(self, blocks: Sequence[Block]) -> bool:
        """Return whether a thread per block suffices; torch splits one large product among all."""
        alone = len(blocks) == 1 < self.num_workers
        size = blocks[0].plan.index[0].numel() * self._network.layout.length
        return not alone or size < _LARGE_STEP

    def _import_numba(self) -> bool:
        """Warn and fall back to PyTorch if numba fails to import (it refuses a newer numpy)."""
        try:
            import_module("srfca.engine.backends.numba_dense")
        except ImportError as error:
            self.uses_numba = False
            warnings.warn(f"training without numba, which fails to import: {error}", stacklevel=2)
        return self.uses_numba

    @torch.no_grad()
    def _over_streams(
        self, blocks: Sequence[Block], local: LocalTraining, phases: Phases
    ) -> list[OptimizerState | None]:
        """Train one block per stream at a time, step by step, so that no stream's queue blocks."""
        report = progress.callback()
        if self.uses_graphs and not self._can_capture(blocks[0], local, phases):
            self.uses_graphs = False
        if not self.uses_graphs:
            worker = self._workers[0]
            return [worker.train(block, local, phases, report) for block in blocks]
        states: list[OptimizerState | None] = []
        current = torch.cuda.current_stream(self._device)
        with counters_restored(self._network.module):
            for first in range(0, len(blocks), len(self._workers)):
                wave = blocks[first : first + len(self._workers)]
                final: list[OptimizerState | None] = []
                for trainable, span in phases:
                    parts = [block.phase(span) for block in wave]
                    final = self._train_wave(parts, local, trainable, report)
                states += final
            for worker in self._workers:
                assert worker.stream is not None
                current.wait_stream(worker.stream)
        return states

    def _train_wave(
        self,
        wave: Sequence[Block],
        local: LocalTraining,
        trainable: Trainable,
        report: progress.Callback,
    ) -> list[OptimizerState | None]:
        """Train at most one block per stream."""
        current = torch.cuda.current_stream(self._device)
        streams, buffers = [], []
        for worker, block in zip(self._workers, wave, strict=False):
            assert worker.stream is not None
            worker.stream.wait_stream(current)
            streams.append(torch.cuda.stream(worker.stream))
            with streams[-1]:
                buffers.append(worker.buffers(block, local, trainable, graph=True))
                buffers[-1].begin(block)
        for _ in range(len(wave[0].plan.rates)):
            for stream, buffer in zip(streams, buffers, strict=True):
                with stream:
                    buffer.step()
            report(sum(len(block.rows) for block in wave))
        states = []
        for stream, buffer, block in zip(streams, buffers, wave, strict=True):
            with stream:
                states.append(buffer.finish(block))
        return states

    def _can_capture(self, block: Block, local: LocalTraining, phases: Phases) -> bool:
        """Return whether a step can be captured: nothing in it may synchronize with the GPU."""
        worker = self._workers[0]
        try:
            with torch.cuda.stream(worker.stream):
                for trainable, span in phases:
                    worker.buffers(block.phase(span), local, trainable, graph=True)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            torch.cuda.synchronize(self._device)
            return False
        return True


def _synchronized(report: progress.Callback) -> progress.Callback:
    """Return a callback that only one thread at a time calls."""
    lock = threading.Lock()

    def locked(steps: int) -> None:
        with lock:
            report(steps)

    return locked
