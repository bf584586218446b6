"""Trains the clients of a simulation: their steps are planned, and go to the lanes in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from srfca.data.clients import Samples
from srfca.federation.augment import Augmentation
from srfca.federation.base import Tick, Work
from srfca.federation.block import Job
from srfca.federation.lanes import Lanes
from srfca.federation.memory import Memory
from srfca.federation.network import Network
from srfca.federation.optimizer import Kept
from srfca.federation.plan import Plan, Planner
from srfca.federation.traits import Traits
from srfca.models.rows import run_of
from srfca.random import Key, streams

_CACHE = 8 * 2**20
"""Bytes of the rows, gradients, moments and activations of a lane on a CPU: they stay in cache."""
_SHARE = 2**20
"""Products of a step that make it worth to split it: a thread waits for others between any two."""
_PLANNED = 2**24
"""Samples that are planned at once."""

Task = tuple[int, int]
"""A client, and which model of a mixture it trains: 0 if there is none."""
Weigh = Callable[[Tensor, Tensor], Tensor]
"""From places among the tasks ``[c]`` and those of their samples to the samples' weights."""


@dataclass(frozen=True)
class _Chunk:
    """Clients that are planned together."""

    tasks: list[Task]
    batch: list[int]
    """Samples that each takes in a step."""
    starts: Tensor
    """``[c, P]``"""
    anchors: Tensor
    """``[c, P]``"""
    plan: Plan


class Training:
    """What clients train with, and what they keep of it.

    Args:
        network: Their models.
        traits: What can be done with it.
        samples: Their training data.
        augment: How images are changed at random.
        words: ``[m]`` of the clients' ids: what their randomness starts from.
        block_size: Clients that are trained at once; None lets the engine choose.
    """

    def __init__(
        self,
        network: Network,
        traits: Traits,
        samples: Samples,
        augment: Augmentation,
        words: Tensor,
        block_size: int | None,
    ) -> None:
        self.kept: dict[tuple[int, str], dict[Task, Kept]] = {}
        """By seed and purpose: of the trainings that clients are in."""
        self._network, self._traits, self._words = network, traits, words
        self._sizes, self._device = samples.sizes, samples.x.device
        self._planner = Planner(samples, words, network.layout.dtype)
        self._lanes = Lanes(
            network, samples, augment, alone=not traits.together, random=traits.random
        )
        alone = 1 if block_size is None and not traits.together else block_size
        self._block_size = alone if traits.batchable else 1
        self._smaller, self._memory = 1, Memory()

    def fit(
        self,
        tasks: list[Task],
        starts: Tensor,
        anchors: Tensor,
        work: Work,
        key: Key,
        tick: Tick,
        weigh: Weigh | None,
    ) -> Tensor:
        """``[c, P]`` a round of each task, from its row of ``starts``."""
        who = torch.tensor([client for client, _ in tasks], dtype=torch.int64, device=self._device)
        kept = self._kept_in((key.seed, key.purpose), first=key.round == 0)
        sizes = self._sizes[who]
        batch = sizes if work.batch_size is None else sizes.clamp(max=work.batch_size)
        rows = self._empty(starts)
        found: dict[Task, Kept] = {}
        for places in self._chunks(tasks, kept, batch, len(work.span(key.round))):
            plan = self._planner.plan(who[places], batch[places], work, key)
            if weigh is not None:
                plan = replace(plan, weights=plan.weights * weigh(places, plan.index))
            some = run_of(places.cpu())
            own = [tasks[place] for place in places.tolist()]
            chunk = _Chunk(own, batch[places].tolist(), starts[some], anchors[some], plan)
            in_order = isinstance(some, slice)
            trained = rows[some] if in_order else rows.new_empty(len(places), rows.shape[1])
            found |= self._train(chunk, trained, kept, work, key, tick)
            if not in_order:
                rows[some] = trained
        kept.update(found)
        return rows

    def shrink(self) -> None:
        """Give memory back, and take less of it from now on."""
        self._lanes.forget()
        self._smaller *= 2

    def block(self, count: int, batch: int) -> int:
        """How many clients are worked on at once, at the most."""
        if self._block_size is not None:
            return self._block_size
        row = 4 * self._network.layout.length * self._network.layout.dtype.itemsize
        activations = batch * self._traits.activations * self._network.layout.dtype.itemsize
        if self._device.type == "cpu":
            worth = count * batch * self._network.layout.length // _SHARE
            lanes = min(max(1, worth), self._lanes.count)
            return max(1, min(-(-count // lanes), _CACHE // (row + activations)))
        free, _ = torch.cuda.mem_get_info(self._device)
        fit = int(0.5 * free) // (row + 4 * activations)
        return max(1, min(count, fit) // self._smaller)

    def _empty(self, like: Tensor) -> Tensor:
        if self._device.type == "cpu":
            return self._memory.empty(like.shape, like.dtype)
        return like.new_empty(like.shape, device=self._device)

    def _chunks(
        self, tasks: list[Task], kept: dict[Task, Kept], batch: Tensor, steps: int
    ) -> Iterator[Tensor]:
        """Places in ``tasks`` that are planned together: alike in batch and in kept steps."""
        done = [kept[task].steps if task in kept else 0 for task in tasks]
        alike = torch.tensor(done, device=batch.device)
        kinds = torch.stack([alike, batch if self._traits.mixes_samples else alike], dim=1)
        for kind in kinds.unique(dim=0):
            places = (kinds == kind).all(1).nonzero().squeeze(1)
            places = places[batch[places].argsort(stable=True)]
            yield from places.split(max(1, _PLANNED // (steps * int(batch[places].max()))))

    def _train(
        self,
        chunk: _Chunk,
        rows: Tensor,
        kept: Mapping[Task, Kept],
        work: Work,
        key: Key,
        tick: Tick,
    ) -> dict[Task, Kept]:
        """Train clients into ``rows`` ``[c, P]``, block by block; returns what they keep."""
        tasks, batch = chunk.tasks, chunk.batch
        jobs, blocks = [], self._blocks(len(tasks), max(batch))
        for block in blocks:
            before = [kept[task] for task in tasks[block] if task in kept]
            seed = None
            if self._traits.random:
                own = streams(key, self._words[[client for client, _ in tasks[block]]])
                seed = int(own[0])
            plan = chunk.plan.block(block, self._width(max(batch[block]), max(batch)))
            state = _together(before) if work.keep_state else None
            starts, anchors = chunk.starts[block], chunk.anchors[block]
            jobs.append(Job(starts, anchors, plan, state, rows[block], seed))
        found: dict[Task, Kept] = {}
        for block, left in zip(blocks, self._lanes.train(jobs, work, tick), strict=True):
            for place, task in enumerate(tasks[block]):
                if left is not None:
                    moments = {name: m[place] for name, m in left.moments.items()}
                    found[task] = Kept(left.steps, moments)
        return found

    def _width(self, batch: int, widest: int) -> int:
        """Samples of a block's step: some are padding, so that fewer widths have to be prepared."""
        if self._traits.mixes_samples or self._device.type == "cpu":
            return batch
        return min(widest, -(-batch // 8) * 8)

    def _blocks(self, count: int, batch: int) -> list[slice]:
        """Clients that train together, as many blocks for every lane, and of one size or nearly."""
        size = self.block(count, batch)
        blocks = -(-count // size)
        if self._block_size is None and blocks > 1:
            blocks = min(count, -(-blocks // self._lanes.count) * self._lanes.count)
        ends = [count * block // blocks for block in range(blocks + 1)]
        return [slice(*both) for both in pairwise(ends)]

    def _kept_in(self, training: tuple[int, str], first: bool) -> dict[Task, Kept]:
        """What clients keep from round to round of a training; two may go on side by side."""
        kept = self.kept.pop(training, {})
        self.kept[training] = {} if first else kept
        for oldest in list(self.kept)[:-2]:
            del self.kept[oldest]
        return self.kept[training]


def _together(kept: list[Kept]) -> Kept | None:
    """The kept states of a block's clients as one."""
    if not kept:
        return None
    names = kept[0].moments
    return Kept(kept[0].steps, {n: torch.stack([k.moments[n] for k in kept]) for n in names})
