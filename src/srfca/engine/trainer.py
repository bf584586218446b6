"""Trains the clients of a simulation: draws their batches, and runs them in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from srfca.data.client_data import Samples
from srfca.engine.augment import Augmentation
from srfca.engine.backends.autograd import Network
from srfca.engine.buffer_pool import BufferPool
from srfca.engine.executor import Executor
from srfca.engine.optimizer import OptimizerState
from srfca.engine.probe import ModuleTraits
from srfca.engine.sampling import BatchPlan, Sampler
from srfca.engine.step import Block, Trainable
from srfca.errors import require
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import KEPT_TRAININGS, LocalTraining
from srfca.models.rows import Layout, as_slice
from srfca.random import Key, streams

_CACHE = 8 * 2**20
"""Bytes of the rows, gradients, moments and activations of a block on a CPU: they stay in cache."""
_SPLIT_STEP = 2**20
"""Multiplications of a step per thread that make it worth splitting."""
_PLANNED = 2**24
"""Samples that are planned at once."""

Entry = tuple[int, int]
"""A client, and the model of its mixture that it trains (0 if there is no mixture)."""
Weigh = Callable[[Tensor, Tensor], Tensor]
"""From positions among the entries ``[c]`` and those of their samples to the samples' weights."""
OptimizerStates = dict[tuple[int, str], dict[Entry, OptimizerState]]
"""By the seed and purpose of a training, and by entry."""


@dataclass(frozen=True)
class TrainingTask:
    """One round of some clients.

    Args:
        entries: What trains.
        starts: ``[c, P]``
        anchors: ``[c, P]``
        corrections: ``[c, P]``, or None.
        spans: Which coordinates train in which steps; None is all.
        local: How the clients train.
        key: The training and its round.
        weigh: Weights of samples, None if all count alike.
    """

    entries: list[Entry]
    starts: Tensor
    anchors: Tensor
    corrections: Tensor | None
    spans: Sequence[tuple[Coordinates | None, range]]
    local: LocalTraining
    key: Key
    weigh: Weigh | None = None

    def select(self, index: slice | Tensor, positions: list[int]) -> TrainingTask:
        """Return the task of some of the entries."""
        corrections = None if self.corrections is None else self.corrections[index]
        return replace(
            self,
            entries=[self.entries[position] for position in positions],
            starts=self.starts[index],
            anchors=self.anchors[index],
            corrections=corrections,
        )


class Trainer:
    """Trains clients, and keeps their optimizer states between rounds.

    Args:
        network: Their models.
        traits: What the module can do.
        samples: Training data of all clients.
        augment: Augmentation of training images.
        words: ``[m]`` hashes of the client ids, which every draw starts from.
        block_size: Clients that train together; None lets the engine choose.
    """

    def __init__(
        self,
        network: Network,
        traits: ModuleTraits,
        samples: Samples,
        augment: Augmentation,
        words: Tensor,
        block_size: int | None,
    ) -> None:
        self.optimizer_states: OptimizerStates = {}
        self._network, self._traits, self._words = network, traits, words
        self._sizes, self._device = samples.sizes.cpu(), samples.x.device
        self._sampler = Sampler(samples, words, network.layout.dtype)
        self._executor = Executor(
            network, samples, augment, one_by_one=not traits.together, draws=traits.random
        )
        single = 1 if block_size is None and not traits.together else block_size
        self._block_size = single if traits.batchable else 1
        self._shrink_factor, self._pool = 1, BufferPool()

    def train(self, task: TrainingTask) -> Tensor:
        """Train a round of each entry: ``[c, P]``."""
        clients = torch.tensor([client for client, _ in task.entries], dtype=torch.int64)
        local, key = task.local, task.key
        states = self._states_of((key.seed, key.purpose), key.round == 0, local.keep_state)
        sizes = self._sizes[clients]
        batch_sizes = sizes if local.batch_size is None else sizes.clamp(max=local.batch_size)
        rows = self._empty(task.starts)
        updated: dict[Entry, OptimizerState] = {}
        steps = len(local.span(key.round))
        layout = self._network.layout
        phases = [(trainable_parameters(layout, names), span) for names, span in task.spans]
        for positions in self._chunks(task.entries, states, batch_sizes, steps):
            plan = self._sampler.plan(clients[positions], batch_sizes[positions], local, key)
            if task.weigh is not None:
                plan = replace(plan, weights=plan.weights * task.weigh(positions, plan.index))
            index = as_slice(positions)
            chunk = task.select(index, positions.tolist())
            contiguous = isinstance(index, slice)
            out = rows[index] if contiguous else rows.new_empty(len(positions), rows.shape[1])
            parts = self._block_slices(len(positions), int(batch_sizes[positions].max()))
            sizes_of_chunk = batch_sizes[positions].tolist()
            blocks = [self._block(chunk, part, sizes_of_chunk, plan, out, states) for part in parts]
            final = self._executor.train(blocks, local, phases)
            updated |= _by_entry([chunk.entries[part] for part in parts], final)
            if not contiguous:
                rows[index] = out
        states.update(updated)
        return rows

    def shrink(self) -> None:
        """Free memory, and use smaller blocks from now on."""
        self._executor.release()
        self._shrink_factor *= 2

    def block_limit(self, count: int, batch_size: int) -> int:
        """Return how many clients train together at most."""
        if self._block_size is not None:
            return self._block_size
        layout = self._network.layout
        row = 4 * layout.length * layout.dtype.itemsize
        activations = batch_size * self._traits.activations * layout.dtype.itemsize
        if self._device.type == "cpu":
            threads = count * batch_size * layout.length // _SPLIT_STEP
            workers = min(max(1, threads), self._executor.num_workers)
            return max(1, min(-(-count // workers), _CACHE // (row + activations)))
        free, _ = torch.cuda.mem_get_info(self._device)
        fitting = int(0.5 * free) // (row + 4 * activations)
        return max(1, min(count, fitting) // self._shrink_factor)

    def _empty(self, like: Tensor) -> Tensor:
        if self._device.type == "cpu":
            return self._pool.empty(like.shape, like.dtype)
        return like.new_empty(like.shape, device=self._device)

    def _chunks(
        self,
        entries: list[Entry],
        states: dict[Entry, OptimizerState],
        batch_sizes: Tensor,
        steps: int,
    ) -> Iterator[Tensor]:
        """Yield positions of entries that are planned together.

        They are alike in the steps of their optimizer, and in batch size if samples of a batch
        depend on each other.
        """
        done = [states[entry].steps if entry in states else 0 for entry in entries]
        kind = torch.tensor(done)
        kinds = torch.stack([kind, batch_sizes if self._traits.mixes_samples else kind], dim=1)
        for kind in kinds.unique(dim=0):
            positions = (kinds == kind).all(1).nonzero().squeeze(1)
            positions = positions[batch_sizes[positions].argsort(stable=True)]
            widest = int(batch_sizes[positions].max())
            yield from positions.split(max(1, _PLANNED // (steps * widest)))

    def _block(
        self,
        chunk: TrainingTask,
        part: slice,
        batch_sizes: list[int],
        plan: BatchPlan,
        rows: Tensor,
        states: Mapping[Entry, OptimizerState],
    ) -> Block:
        entries = chunk.entries[part]
        seed = None
        if self._traits.random:
            draws = streams(chunk.key, self._words[[client for client, _ in entries]])
            seed = int(draws[0])
        before = [states[entry] for entry in entries if entry in states]
        return Block(
            starts=chunk.starts[part],
            anchors=chunk.anchors[part],
            corrections=None if chunk.corrections is None else chunk.corrections[part],
            plan=plan.block(part, self._width(max(batch_sizes[part]), max(batch_sizes))),
            state=_stack(before) if chunk.local.keep_state else None,
            rows=rows[part],
            seed=seed,
        )

    def _width(self, batch_size: int, widest: int) -> int:
        """Return the padded batch size of a block: on a GPU few sizes need few captured graphs."""
        if self._traits.mixes_samples or self._device.type == "cpu":
            return batch_size
        return min(widest, -(-batch_size // 8) * 8)

    def _block_slices(self, count: int, batch_size: int) -> list[slice]:
        """Cut entries into blocks of nearly one size, the same number of blocks for each worker."""
        size = self.block_limit(count, batch_size)
        blocks = -(-count // size)
        if self._block_size is None and blocks > 1:
            workers = self._executor.num_workers
            blocks = min(count, -(-blocks // workers) * workers)
        ends = [count * block // blocks for block in range(blocks + 1)]
        return [slice(*pair) for pair in pairwise(ends)]

    def _states_of(
        self, training: tuple[int, str], first: bool, keep: bool
    ) -> dict[Entry, OptimizerState]:
        """Return the optimizer states of a training; those of the last trainings are kept."""
        states = self.optimizer_states.pop(training, {})
        if not keep:
            return {}
        self.optimizer_states[training] = {} if first else states
        for oldest in list(self.optimizer_states)[:-KEPT_TRAININGS]:
            del self.optimizer_states[oldest]
        return self.optimizer_states[training]


def trainable_parameters(layout: Layout, coordinates: Coordinates | None) -> Trainable:
    """Return the parameters that some coordinates are; None is all of them.

    Raises:
        InputError: If the coordinates hold part of a parameter only.
    """
    if coordinates is None:
        return None
    mask = coordinates.mask(layout.length)
    names, start = set(), 0
    for name, shape in layout.shapes.items():
        stop = start + shape.numel()
        part = mask[start:stop]
        require(
            bool(part.all()) or not bool(part.any()),
            f"a phase must train whole parameters, but its coordinates cut through {name!r}",
        )
        if name in layout.parameters and len(part) and bool(part[0]):
            names.add(name)
        start = stop
    require(bool(names), "a phase must train at least one parameter")
    return frozenset(names)


def _stack(states: list[OptimizerState]) -> OptimizerState | None:
    """Stack the states of a block's clients."""
    if not states:
        return None
    names = states[0].moments
    return OptimizerState(
        states[0].steps,
        {name: torch.stack([state.moments[name] for state in states]) for name in names},
    )


def _by_entry(
    blocks: list[list[Entry]], states: list[OptimizerState | None]
) -> dict[Entry, OptimizerState]:
    """Return the state of each entry, given the stacked states of its block if they are kept."""
    return {
        entry: OptimizerState(state.steps, {name: m[row] for name, m in state.moments.items()})
        for entries, state in zip(blocks, states, strict=True)
        if state is not None
        for row, entry in enumerate(entries)
    }
