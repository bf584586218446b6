"""A block of clients that train together, in buffers that are reused."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from srfca.data.client_data import Samples
from srfca.engine.augment import Augmentation, none
from srfca.engine.backends.autograd import Network, counters_restored
from srfca.engine.backends.dense import DenseGradients
from srfca.engine.optimizer import Optimizer, OptimizerState
from srfca.engine.row_slots import RowSlots
from srfca.engine.sampling import BatchFeed, BatchPlan, ListedBatches, ReplayedBatches
from srfca.federation.local_training import LocalTraining

Trainable = frozenset[str] | None
"""Names of the parameters that train; None is all of them."""
Phases = Sequence[tuple[Trainable, range]]
"""What trains in which steps of a round."""


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Switch the garbage collector off, after one collection.

    A CUDA graph that it frees while another one is captured invalidates the capture.

    >>> with no_garbage_collection():
    ...     gc.isenabled()
    False
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True)
class Block:
    """Clients that train together.

    Args:
        starts: ``[c, P]``
        anchors: ``[c, P]`` what the proximal term pulls to.
        corrections: ``[c, P]`` added to every gradient, or None.
        plan: Their batches.
        state: Their optimizer state, None to restart.
        rows: ``[c, P]``, where the trained models are written.
        seed: Seed of the module's own random numbers, if it draws any.
    """

    starts: Tensor
    anchors: Tensor
    corrections: Tensor | None
    plan: BatchPlan
    state: OptimizerState | None
    rows: Tensor
    seed: int | None

    def phase(self, span: range) -> Block:
        """Return the block for consecutive steps; a later phase continues where the last ended."""
        plan = self.plan.steps(span)
        if span.start == 0:
            return replace(self, plan=plan)
        return replace(self, plan=plan, starts=self.rows, seed=None)


class BlockBuffers:
    """The buffers of c clients that train together, and one of their steps."""

    def __init__(
        self,
        network: Network,
        samples: Samples,
        augment: Augmentation,
        local: LocalTraining,
        block: Block,
        trainable: Trainable,
    ) -> None:
        device = samples.x.device
        _, count, width = block.plan.index.shape
        self._network, self._samples, self._augment, self._local = network, samples, augment, local
        self._state = network.empty_state(count, device)
        self._gradients = network.gradients(self._state, local.label_smoothing)
        self._anchors = network.empty_state(count, device) if local.mu else {}
        corrected = block.corrections is not None
        self._corrections = network.empty_state(count, device) if corrected else {}
        self._slots, self._anchor_slots, self._correction_slots = (
            RowSlots(list(state.values()))
            for state in (self._state, self._anchors, self._corrections)
        )
        self._names = [
            name for name in network.layout.parameters if trainable is None or name in trainable
        ]
        self._parameters = [self._state[name] for name in self._names]
        on_gpu = device.type == "cuda"
        self._feed: BatchFeed = (
            ReplayedBatches(samples.y, block.plan) if on_gpu else ListedBatches(samples.y)
        )
        extras = local.momentum or local.weight_decay or local.mu or local.clip or corrected
        plain = local.optimizer == "sgd" and not extras and trainable is None
        self._descends = plain and isinstance(self._gradients, DenseGradients) and not on_gpu
        self._gathered = samples.x.new_empty(count * width, *samples.x.shape[1:])
        self._x = self._gathered.view(count, width, *samples.x.shape[1:])
        self._optimizer = Optimizer(self._parameters, local)
        self._graph: torch.cuda.CUDAGraph | None = None

    def begin(self, block: Block) -> None:
        """Load the clients' starts and batches."""
        self._network.train()
        if block.seed is not None:
            torch.manual_seed(block.seed)
        self._load(block)

    def step(self) -> None:
        """Take one step of all clients."""
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()

    def finish(self, block: Block) -> OptimizerState | None:
        """Write the clients' models to ``block.rows``; return the optimizer state if it is kept."""
        self._slots.store(block.rows)
        if not self._local.keep_state:
            return None
        before = 0 if block.state is None else block.state.steps
        return self._optimizer.state(before + len(block.plan.rates))

    def capture(self, plan: BatchPlan) -> None:
        """Capture a step as a CUDA graph; the content of the buffers is lost."""
        with counters_restored(self._network.module):
            self._network.train()
            for t in (
                *self._state.values(), *self._anchors.values(), *self._corrections.values(),
            ):  # fmt: skip
                t.detach().zero_()
            for _ in range(3):
                self._feed.load(plan)
                self._step()
            self._feed.load(plan)
            graph = torch.cuda.CUDAGraph()
            with (
                no_garbage_collection(),
                torch.cuda.graph(graph, stream=torch.cuda.current_stream()),
            ):
                self._step()
        self._graph = graph

    def _step(self) -> None:
        index, y, weights, streams, rate = self._feed.next()
        torch.index_select(self._samples.x, 0, index, out=self._gathered)
        x = self._x if self._augment is none else self._augment(self._x, streams)
        if self._descends:
            assert isinstance(self._gradients, DenseGradients)
            assert isinstance(rate, float)
            self._gradients.descend(x, y, weights, rate)
            return
        self._gradients.compute(x, y, weights)
        if self._corrections:
            self._add_corrections()
        if self._local.mu:
            self._add_proximal_term()
        if self._local.clip is not None:
            _clip(self._parameters, self._local.clip)
        self._optimizer.step(rate)

    def _add_proximal_term(self) -> None:
        """Add the gradient of ``mu/2 |w - anchor|^2``."""
        for name, w in zip(self._names, self._parameters, strict=True):
            pull = (w.detach() - self._anchors[name].detach()) * self._local.mu
            w.grad = pull if w.grad is None else w.grad.add_(pull)

    def _add_corrections(self) -> None:
        for name, w in zip(self._names, self._parameters, strict=True):
            term = self._corrections[name].detach()
            w.grad = term.clone() if w.grad is None else w.grad.add_(term)

    @torch.no_grad()
    def _load(self, block: Block) -> None:
        self._slots.load(block.starts)
        if self._anchors:
            self._anchor_slots.load(block.anchors)
        if block.corrections is not None:
            self._correction_slots.load(block.corrections)
        self._feed.load(block.plan)
        self._optimizer.load(block.state)


def _clip(parameters: list[Tensor], limit: float) -> None:
    """Scale each client's gradient to a norm of at most ``limit``."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = torch.stack([g.reshape(len(g), -1).square().sum(1) for g in gradients])
    scale = (limit / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(scale.view(-1, *[1] * (g.ndim - 1)))
