"""All clients on one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

from srfca.data.clients import ClientData, Samples, hold_out
from srfca.errors import InputError, require
from srfca.federation.augment import Augmentation, augmentation_named
from srfca.federation.base import Focus, Mixture, Sample, Scores, Split, Tick, Wire, Work, silent
from srfca.federation.block import Job
from srfca.federation.dense import network_of
from srfca.federation.evaluation import Evaluation, all_samples, some_samples
from srfca.federation.lanes import Lanes
from srfca.federation.loss import Loss, loss_named
from srfca.federation.network import arithmetic, precision_named
from srfca.federation.optimizer import Kept
from srfca.federation.plan import Plan, Planner
from srfca.federation.traits import check_labels, traits_of
from srfca.models.rows import make, run_of
from srfca.random import Key, client_words, streams

_CACHE = 8 * 2**20
"""Bytes of the rows, gradients, moments and activations of a lane on a CPU: they stay in cache."""
_SHARE = 2**20
"""Products of a step that make it worth to split it: a thread waits for others between any two."""
_PLANNED = 2**24
"""Samples that are planned at once."""
_T = TypeVar("_T")
_Task = tuple[int, int]
"""A client, and which model of a mixture it trains: 0 if there is none."""


@dataclass(frozen=True)
class _Chunk:
    """Clients that are planned together."""

    tasks: list[_Task]
    batch: list[int]
    """Samples that each takes in a step."""
    starts: Tensor
    """``[c, P]``"""
    anchors: Tensor
    """``[c, P]``"""
    plan: Plan


class Simulation:
    """A federation of simulated clients.

    Args:
        data: What the clients hold.
        model: A callable that makes the module (w0 then follows from the seed), or a module, whose
            own weights are then w0.
        loss: ``auto``, ``cross_entropy``, ``squared_error``, or a callable from outputs and targets
            to one loss per sample.
        augment: ``none``, ``cifar`` (flip, shift, cutout), or a callable (``Augmentation``): how
            images are changed at random when clients train. Nothing else ever sees it.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda``, ...
        precision: Of products and convolutions: ``float32``, ``tf32`` or ``bf16`` (docs/speed.md
            has their effect); ``auto`` is tf32 on a GPU, float32 elsewhere. Rows are float32.
        compile: Train through ``torch.compile``, on a GPU: it takes some time at first, and pays
            for long trainings of convolutional networks.
        block_size: Clients that are trained at once; None lets the engine choose. The result does
            not depend on it.
        validation: The fraction of each client's training samples that is held out.
        seed: Decides which ones.

    >>> from srfca import data, models
    >>> fed = Simulation(data.rotated_digits(clients=8), models.mlp(64, 32, 10))
    >>> fed
    Simulation(8 clients, 162 samples each for training, P = 2410, cpu, batched)
    >>> w = fed.fit(fed.initial(0).repeat(8, 1), range(8), Work(steps=5), Key(0, "demo"))
    >>> w.shape, fed.losses(w, range(8)).shape
    (torch.Size([8, 2410]), torch.Size([8, 8]))
    """

    wire = Wire()

    def __init__(
        self,
        data: ClientData,
        model: nn.Module | Callable[[], nn.Module],
        *,
        loss: str | Loss = "auto",
        augment: str | Augmentation = "none",
        device: str | torch.device = "auto",
        precision: str = "auto",
        compile: bool = False,
        block_size: int | None = None,
        validation: float = 0.1,
        seed: int = 0,
    ) -> None:
        require(
            block_size is None or block_size >= 1,
            f"block_size must be at least 1, not {block_size}",
        )
        self.data = data
        self.device = _device(device)
        self._model = model
        module = self._make(seed=0).to(self.device)
        self._loss = loss_named(loss, data.train.y)
        kept, held_out = hold_out(data, validation, seed)
        parts: dict[Split, Samples | None] = {
            "train": kept,
            "validation": held_out if validation > 0 else None,
            "test": data.test,
        }
        require(
            not compile or self.device.type == "cuda", f"compile is for a GPU, not {self.device}"
        )
        own = precision_named(precision, self.device)
        self._network = network_of(module, self._loss, kept.x, kept.y, own, compile)
        self._layout = self._network.layout
        require(bool(self._layout.parameters), "the model has no parameters to train")
        self._samples = {
            split: part.to(self.device, self._layout.dtype)
            for split, part in parts.items()
            if part is not None
        }
        train = self._samples["train"]
        self._augment = augmentation_named(augment, train.x)
        self._validation, self._seed = validation, seed
        self.traits = traits_of(module, self._loss, train.x, train.y)
        for part in self._samples.values():
            check_labels(module, self._loss, train.x, part.y, list(data.clients), part.sizes)
        together = self.traits.together
        self._evaluation = Evaluation(self._network, self.traits.activations, together, self.device)
        self._lanes = Lanes(
            self._network, train, self._augment, alone=not together, random=self.traits.random
        )
        alone = 1 if block_size is None and not together else block_size
        self._block_size = alone if self.traits.batchable else 1
        self._smaller = 1
        self._words = client_words(data.clients).to(self.device)
        self._planner = Planner(train, self._words, self._layout.dtype)
        self._trainings: dict[tuple[int, str], dict[_Task, Kept]] = {}

    def __repr__(self) -> str:
        sizes = self.sizes
        low, high = int(sizes.min()), int(sizes.max())
        each = f"{low}" if low == high else f"{low} to {high}"
        how = "batched" if self.traits.together else "one by one"
        return (
            f"Simulation({len(self.clients)} clients, {each} samples each for training, "
            f"P = {self._layout.length}, {self.device}, {how})"
        )

    @property
    def clients(self) -> Sequence[str]:
        """Stable ids, in order."""
        return self.data.clients

    @property
    def sizes(self) -> Tensor:
        """``[m]`` training samples of each client, without the validation samples."""
        return self._samples["train"].sizes

    @property
    def splits(self) -> Sequence[Split]:
        """What the clients hold."""
        return tuple(self._samples)

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each layer lies in a row."""
        return self._layout.layers

    def sizes_of(self, split: Split) -> Tensor:
        """``[m]`` samples of each client in a split."""
        return self._split(split).sizes

    @property
    def trainings(self) -> dict[tuple[int, str], dict[tuple[int, int], Kept]]:
        """What clients keep of the trainings, by seed and purpose, that they are in."""
        return self._trainings

    @trainings.setter
    def trainings(self, kept: dict[tuple[int, str], dict[tuple[int, int], Kept]]) -> None:
        self._trainings = kept

    def fingerprint(self) -> str:
        """A digest of what the clients hold, and of how it is split, changed and scored."""
        named = [getattr(each, "__qualname__", repr(each)) for each in (self._loss, self._augment)]
        return f"{self.data.fingerprint()} {self._validation} {self._seed} {' '.join(named)}"

    def initial(self, seed: int) -> Tensor:
        """``[P]`` w0."""
        return self._layout.row(self._make(seed)).to(self.device)

    def module(self, row: Tensor) -> nn.Module:
        """A row ``[P]`` as a module of its own."""
        return self._layout.load(row, self._make(seed=0).to(self.device)).eval()

    def fit(
        self,
        starts: Tensor,
        clients: Sequence[int],
        work: Work,
        key: Key,
        tick: Tick = silent,
        anchors: Tensor | None = None,
        focus: Focus | None = None,
    ) -> Tensor:
        """``[c, P]`` each client trains from its row of ``starts``."""
        who = self._check(starts, clients)
        anchors = starts if anchors is None else anchors
        self._check(anchors, clients)
        component = torch.zeros_like(who) if focus is None else focus.component.to(self.device)
        weigh = (
            None
            if focus is None
            else self._evaluation.posterior(focus, self._samples["train"], who)
        )
        tasks = list(zip(who.tolist(), component.tolist(), strict=True))
        kept = self._kept_in((key.seed, key.purpose), first=key.round == 0)
        sizes = self.sizes[who]
        batch = sizes if work.batch_size is None else sizes.clamp(max=work.batch_size)
        rows = starts.new_empty(starts.shape, device=self.device)
        found: dict[_Task, Kept] = {}
        for places in self._chunks(tasks, kept, batch, len(work.span(key.round))):
            plan = self._planner.plan(who[places], batch[places], work, key)
            if weigh is not None:
                plan = replace(plan, weights=plan.weights * weigh(places, plan.index))
            some = run_of(places.cpu())
            own = [tasks[place] for place in places.tolist()]
            chunk = _Chunk(own, batch[places].tolist(), starts[some], anchors[some], plan)
            trained = (
                rows[some]
                if isinstance(some, slice)
                else rows.new_empty(len(places), rows.shape[1])
            )
            found |= self._in_memory(partial(self._train, chunk, trained, kept, work, key, tick))
            if not isinstance(some, slice):
                rows[some] = trained
        kept.update(found)
        return rows

    @torch.no_grad()
    def gradients(self, at: Tensor, clients: Sequence[int]) -> Tensor:
        """``[c, P]`` each client's gradient at its row, over all of its training samples."""
        require(
            not self.traits.updates_buffers,
            "gradients do not carry this model's buffers (BatchNorm): aggregate models instead",
        )
        require(
            not self.traits.random,
            "gradients of a model that draws random numbers (dropout) are others whenever they are "
            "asked for: aggregate models instead",
        )
        who = self._check(at, clients)
        samples = self._samples["train"]
        self._network.module.train()
        rows = torch.zeros_like(at)
        mixes = self.traits.mixes_samples
        size = 1 if mixes else self._block(len(who), int(self.sizes[who].max()))
        for block in self.sizes[who].argsort(stable=True).split(size):
            state = self._network.leaves(len(block), self.device)
            for name, part in self._layout.unstack(at[block]).items():
                state[name].copy_(part)
            passes = self._network.passes(state)
            total = {name: torch.zeros_like(t) for name, t in state.items()}
            share = self.sizes[who[block]].to(at.dtype).reciprocal().unsqueeze(-1)
            for x, y, inside in self._evaluation.padded(samples, who[block], whole=mixes):
                with arithmetic(self._network.precision):
                    passes.gradient(x, y, inside * share)
                for name in self._layout.parameters:
                    slope = state[name].grad
                    if slope is not None:
                        total[name] += slope
            rows[block] = self._layout.stack(total)
        return rows

    @torch.no_grad()
    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Split = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        """``[k, c]`` mean loss per sample of every model on every client's data."""
        who, samples = self._indices(clients), self._split(split)
        if sample is None:
            owner, index = all_samples(samples, who)
        else:
            own = streams(Key(sample.seed, f"sample/{split}"), self._words[who])
            owner, index = some_samples(samples, who, own, sample.size)
        return self._in_memory(
            lambda: self._evaluation.losses(models, samples, len(who), owner, index)
        )

    @torch.no_grad()
    def shares(self, models: Tensor | Mixture, clients: Sequence[int]) -> Tensor:
        """``[c, k]`` the share of each client's training samples that each model accounts for."""
        who, samples = self._indices(clients), self._samples["train"]
        return self._in_memory(
            lambda: self._evaluation.shares(models, samples, who, *all_samples(samples, who))
        )

    @torch.no_grad()
    def scores(
        self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
    ) -> Scores:
        """Loss and accuracy of each client's own row ``[c, P]``, or mixture, on its own data."""
        samples = self._split(split)
        if isinstance(models, Mixture):
            mixture, who = models, self._indices(clients)
            return self._in_memory(lambda: self._evaluation.mixture_scores(mixture, samples, who))
        rows, who = models, self._check(models, clients)
        return self._in_memory(lambda: self._evaluation.scores(rows, samples, who))

    @torch.no_grad()
    def subspaces(self, clients: Sequence[int], rank: int) -> Tensor:
        """``[c, features, rank]`` leading left singular vectors of each client's inputs."""
        samples, who = self._samples["train"], self._indices(clients)
        require(
            samples.x.is_floating_point(),
            "subspaces need inputs that are numbers, but these are integers, as those of text are",
        )
        features, fewest = samples.x[0].numel(), int(samples.sizes[who].argmin())
        samples_of, name = int(samples.sizes[who][fewest]), self.clients[int(who[fewest])]
        require(
            1 <= rank <= min(features, samples_of),
            f"rank must be from 1 to {min(features, samples_of)}, not {rank}: inputs have "
            f"{features} features, and client {name!r} has {samples_of} samples for training",
        )
        bases = [_leading(samples.of(client)[0].flatten(1), rank) for client in who.tolist()]
        return torch.stack(bases).to(self._layout.dtype)

    def _chunks(
        self, tasks: list[_Task], kept: dict[_Task, Kept], batch: Tensor, steps: int
    ) -> Iterator[Tensor]:
        """Places in ``tasks`` that are planned together: alike in batch and in kept steps."""
        done = [kept[task].steps if task in kept else 0 for task in tasks]
        alike = torch.tensor(done, device=batch.device)
        kinds = torch.stack([alike, batch if self.traits.mixes_samples else alike], dim=1)
        for kind in kinds.unique(dim=0):
            places = (kinds == kind).all(1).nonzero().squeeze(1)
            places = places[batch[places].argsort(stable=True)]
            yield from places.split(max(1, _PLANNED // (steps * int(batch[places].max()))))

    def _train(
        self,
        chunk: _Chunk,
        rows: Tensor,
        kept: Mapping[_Task, Kept],
        work: Work,
        key: Key,
        tick: Tick,
    ) -> dict[_Task, Kept]:
        """Train clients into ``rows`` ``[c, P]``, block by block; returns what they keep."""
        tasks, batch = chunk.tasks, chunk.batch
        jobs, blocks = [], self._blocks(len(tasks), max(batch))
        for block in blocks:
            before = [kept[task] for task in tasks[block] if task in kept]
            seed = None
            if self.traits.random:
                own = streams(key, self._words[[client for client, _ in tasks[block]]])
                seed = int(own[0])
            plan = chunk.plan.block(block, self._width(max(batch[block]), max(batch)))
            state = _together(before) if work.keep_state else None
            starts, anchors = chunk.starts[block], chunk.anchors[block]
            jobs.append(Job(starts, anchors, plan, state, rows[block], seed))
        found: dict[_Task, Kept] = {}
        for block, left in zip(blocks, self._lanes.train(jobs, work, tick), strict=True):
            for place, task in enumerate(tasks[block]):
                if left is not None:
                    moments = {name: m[place] for name, m in left.moments.items()}
                    found[task] = Kept(left.steps, moments)
        return found

    def _width(self, batch: int, widest: int) -> int:
        """Samples of a block's step: some are padding, so that fewer widths have to be prepared."""
        if self.traits.mixes_samples or self.device.type == "cpu":
            return batch
        return min(widest, -(-batch // 8) * 8)

    def _in_memory(self, attempt: Callable[[], _T]) -> _T:
        """Try again with smaller blocks for as long as the GPU's memory does not suffice."""
        while True:
            try:
                return attempt()
            except torch.OutOfMemoryError:
                self._lanes.forget()
                self._smaller *= 2
                if not self._evaluation.shrink():
                    raise
            torch.cuda.empty_cache()

    def _kept_in(self, training: tuple[int, str], first: bool) -> dict[_Task, Kept]:
        """What clients keep from round to round of a training; two may go on side by side."""
        kept = self._trainings.pop(training, {})
        self._trainings[training] = {} if first else kept
        for oldest in list(self._trainings)[:-2]:
            del self._trainings[oldest]
        return self._trainings[training]

    def _blocks(self, count: int, batch: int) -> list[slice]:
        """Clients that train together, as many blocks for every lane, and of one size or nearly."""
        size = self._block(count, batch)
        blocks = -(-count // size)
        if self._block_size is None and blocks > 1:
            blocks = min(count, -(-blocks // self._lanes.count) * self._lanes.count)
        ends = [count * block // blocks for block in range(blocks + 1)]
        return [slice(*both) for both in pairwise(ends)]

    def _block(self, count: int, batch: int) -> int:
        """How many clients are worked on at once, at the most."""
        if self._block_size is not None:
            return self._block_size
        row = 4 * self._layout.length * self._layout.dtype.itemsize
        activations = batch * self.traits.activations * self._layout.dtype.itemsize
        if self.device.type == "cpu":
            worth = count * batch * self._layout.length // _SHARE
            lanes = min(max(1, worth), self._lanes.count)
            return max(1, min(-(-count // lanes), _CACHE // (row + activations)))
        free, _ = torch.cuda.mem_get_info(self.device)
        fit = int(0.5 * free) // (row + 4 * activations)
        return max(1, min(count, fit) // self._smaller)

    def _split(self, split: Split) -> Samples:
        if split not in self._samples:
            held = ", ".join(self._samples)
            raise InputError(f"the clients of this federation have no {split} data: only {held}")
        return self._samples[split]

    def _check(self, rows: Tensor, clients: Sequence[int]) -> Tensor:
        who = self._indices(clients)
        expected = (len(who), self._layout.length)
        require(
            tuple(rows.shape) == expected,
            f"{len(who)} clients need rows of shape {expected}, not {tuple(rows.shape)}",
        )
        return who

    def _indices(self, clients: Sequence[int]) -> Tensor:
        who = torch.as_tensor(list(clients), dtype=torch.int64)
        require(
            bool(((who >= 0) & (who < len(self.clients))).all()),
            f"clients are numbered 0 to {len(self.clients) - 1}",
        )
        return who.to(self.device)

    def _make(self, seed: int) -> nn.Module:
        return make(self._model, seed)


def _leading(rows: Tensor, rank: int) -> Tensor:
    """The leading right singular vectors of rows ``[n, f]``, by the smaller of the two Grams."""
    rows = rows.double()
    wide = rows.shape[1] > len(rows)
    gram = rows @ rows.T if wide else rows.T @ rows
    vectors: Tensor = torch.linalg.eigh(gram).eigenvectors[:, -rank:].flip(1)
    return torch.as_tensor(torch.linalg.qr(rows.T @ vectors).Q) if wide else vectors


def _device(name: str | torch.device) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {str(name)!r} is not there: {error}") from error
    return device


def _together(kept: list[Kept]) -> Kept | None:
    """The kept states of a block's clients as one."""
    if not kept:
        return None
    names = kept[0].moments
    return Kept(kept[0].steps, {n: torch.stack([k.moments[n] for k in kept]) for n in names})
