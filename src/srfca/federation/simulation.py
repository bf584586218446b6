"""All clients on one machine, trained in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from srfca.data.clients import ClientData, Samples, hold_out
from srfca.errors import InputError, require
from srfca.federation.augment import Augmentation, augmentation_named
from srfca.federation.base import Focus, Mixture, Scores, Split, Tick, Wire, Work, silent
from srfca.federation.local import Kept, State, gradient, over_models, train
from srfca.federation.loss import Loss, loss_named
from srfca.federation.traits import check_labels, traits_of
from srfca.models.rows import Layout, make
from srfca.random import Key, batches, bits, client_words, integers, streams

_CACHE = 24 * 2**20
"""Bytes of a block's rows, gradients, moments and activations on a CPU: they stay in its cache."""
_ACTIVATIONS = 2**24
"""Numbers that the layers may put out in one pass."""


_Task = tuple[int, int]
"""A client, and which model of a mixture it trains: 0 if there is none."""


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
        self._module = self._make(seed=0).to(self.device)
        self._layout = Layout.of(self._module)
        require(bool(self._layout.parameters), "the model has no parameters to train")
        self._loss = loss_named(loss, data.train.y)
        kept, held_out = hold_out(data, validation, seed)
        parts: dict[Split, Samples | None] = {
            "train": kept,
            "validation": held_out if validation > 0 else None,
            "test": data.test,
        }
        self._samples = {
            split: part.to(self.device, self._layout.dtype)
            for split, part in parts.items()
            if part is not None
        }
        train = self._samples["train"]
        self._augment = augmentation_named(augment, train.x)
        self.traits = traits_of(self._module, self._loss, train.x, train.y)
        for part in self._samples.values():
            check_labels(self._module, self._loss, train.x, part.y, list(data.clients), part.sizes)
        self._block_size = block_size if self.traits.batchable else 1
        self._words = client_words(data.clients).to(self.device)
        self._kept: dict[_Task, Kept] = {}
        self._trainings: dict[tuple[int, str], dict[_Task, Kept]] = {}
        self._table: tuple[Tensor, Tensor, Tensor] | None = None

    def __repr__(self) -> str:
        sizes = self.sizes
        low, high = int(sizes.min()), int(sizes.max())
        each = f"{low}" if low == high else f"{low} to {high}"
        how = "batched" if self.traits.batchable else "one by one"
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
        span = work.span(key.round)
        self._kept = self._kept_in((key.seed, key.purpose), first=key.round == 0)
        sizes = self.sizes[who]
        batch = sizes if work.batch_size is None else sizes.clamp(max=work.batch_size)
        weigh = None if focus is None else self._posterior(focus, who)
        component = torch.zeros_like(who) if focus is None else focus.component.to(self.device)
        tasks: list[_Task] = list(zip(who.tolist(), component.tolist(), strict=True))
        rows = torch.empty_like(starts)
        for block in self._blocks(tasks, batch):
            rows[block] = self._fit(
                starts[block], anchors[block], [tasks[place] for place in block.tolist()],
                batch[block], work, span, key, tick,
                None if weigh is None else partial(weigh, block),
            )  # fmt: skip
        return rows

    def gradients(self, at: Tensor, clients: Sequence[int]) -> Tensor:
        """``[c, P]`` each client's gradient at its row, over all of its training samples."""
        require(
            not self.traits.updates_buffers,
            "gradients do not carry this model's buffers (BatchNorm): aggregate models instead",
        )
        who = self._check(at, clients)
        sizes = self.sizes[who]
        self._module.train()
        rows = torch.zeros_like(at)
        for block in self._blocks(_alone(who), sizes):
            state = self._layout.unstack(at[block].clone())
            for name in self._layout.parameters:
                state[name] = state[name].detach().contiguous().requires_grad_()
            share = sizes[block].to(at.dtype).reciprocal()
            gradient(
                self._module,
                self._layout,
                self._loss,
                state,
                (
                    (x, y, inside * share.unsqueeze(-1))
                    for x, y, inside in self._padded(who[block], "train")
                ),
            )
            found = {name: torch.zeros_like(t) for name, t in state.items()}
            for name in self._layout.parameters:
                slope = state[name].grad
                if slope is not None:
                    found[name] = slope
            rows[block] = self._layout.stack(found)
        return rows

    @torch.no_grad()
    def losses(self, models: Tensor, clients: Sequence[int], split: Split = "train") -> Tensor:
        """``[k, c]`` mean loss per sample of every model on every client's data."""
        who = self._indices(clients)
        samples = self._split(split)
        owner, index = _spread(samples, who)
        sums = torch.zeros(len(models), len(who), dtype=torch.float64, device=self.device)
        for rows, part, found in self._sample_losses(models, samples, index):
            whose = owner[part]
            touched = sums[rows[0] : rows[-1] + 1, whose[0] : whose[-1] + 1]
            touched.index_add_(1, whose - whose[0], found.double())
        return (sums / samples.sizes[who]).to(models.dtype)

    @torch.no_grad()
    def shares(self, models: Tensor | Mixture, clients: Sequence[int]) -> Tensor:
        """``[c, k]`` the share of each client's training samples that each model accounts for."""
        who = self._indices(clients)
        samples = self._samples["train"]
        owner, index = _spread(samples, who)
        if isinstance(models, Mixture):
            logs = self._log_weights(models, who)[owner]
            rows = models.models
            found = (logs - self._loss_table(rows, index).T).softmax(1)
        else:
            rows = models
            least = self._loss_table(rows, index).argmin(0)
            found = functional.one_hot(least, len(rows)).double()
        sums = torch.zeros(len(who), len(rows), dtype=torch.float64, device=self.device)
        sums.index_add_(0, owner, found)
        return (sums / samples.sizes[who].unsqueeze(1)).to(rows.dtype)

    def _loss_table(self, models: Tensor, index: Tensor) -> Tensor:
        """The loss of every model on each of the training samples at ``index`` [n]: ``[k, n]``.

        The last one is kept: clients are asked for the same once more when they train.
        """
        if self._table is not None:
            of_models, at, table = self._table
            if torch.equal(at, index) and torch.equal(of_models, models):
                return table
        samples = self._samples["train"]
        table = torch.empty(len(models), len(index), dtype=torch.float64, device=self.device)
        for rows, part, found in self._sample_losses(models, samples, index):
            table[rows.unsqueeze(1), part] = found.double()
        self._table = (models.clone(), index, table)
        return table

    @torch.no_grad()
    def _posterior(self, focus: Focus, who: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """The weights of the samples at given places, for some of the clients ``who`` in focus."""
        samples = self._samples["train"]
        count = len(focus.mixture.models)
        require(
            focus.component.shape == who.shape
            and bool(((focus.component >= 0) & (focus.component < count)).all()),
            f"component must name one of {count} models for each of {len(who)} clients",
        )
        logs = self._log_weights(focus.mixture, who)
        component = focus.component.to(self.device)
        _, index = _spread(samples, who.unique())
        table = torch.zeros(count, len(samples.x), dtype=torch.float64, device=self.device)
        table[:, index] = self._loss_table(focus.mixture.models, index)

        def weigh(block: Tensor, at: Tensor) -> Tensor:
            posterior = (logs[block].T.unsqueeze(-1) - table[:, at]).softmax(0)  # [k, c, b]
            own = component[block].view(1, -1, 1).expand(1, *at.shape)
            return posterior.gather(0, own)[0].to(self._layout.dtype)

        return weigh

    def _log_weights(self, mixture: Mixture, who: Tensor) -> Tensor:
        expected = (len(who), len(mixture.models))
        require(
            tuple(mixture.weights.shape) == expected,
            f"{len(who)} clients and {len(mixture.models)} models need weights of shape "
            f"{expected}, not {tuple(mixture.weights.shape)}",
        )
        return mixture.weights.to(self.device).double().log()

    def _sample_losses(
        self, models: Tensor, samples: Samples, index: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Losses [r, s] of models ``rows`` [r] on the samples ``index[part]`` [s], part by part."""
        self._module.eval()
        size = self._block(len(models), batch=1)

        def one(state: State, x: Tensor, y: Tensor) -> Tensor:
            return self._loss(functional_call(self._module, state, (x,)), y)

        for rows in torch.arange(len(models), device=self.device).split(size):
            state = self._layout.unstack(models[rows].to(self.device))
            for part in torch.arange(len(index), device=self.device).split(self._pass(len(rows))):
                x, y = samples.x[index[part]], samples.y[index[part]]
                if len(rows) == 1:
                    found = one({name: t[0] for name, t in state.items()}, x, y).unsqueeze(0)
                else:
                    found = torch.as_tensor(vmap(one, in_dims=(0, None, None))(state, x, y))
                yield rows, part, found

    @torch.no_grad()
    def scores(
        self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
    ) -> Scores:
        """Loss and accuracy of each client's own row ``[c, P]``, or mixture, on its own data."""
        if isinstance(models, Mixture):
            return self._mixture_scores(models, clients, split)
        who = self._check(models, clients)
        samples = self._split(split)
        self._module.eval()
        sums = torch.zeros(2, len(who), dtype=torch.float64, device=self.device)
        classes = not samples.y.is_floating_point()

        def one(state: State, x: Tensor, y: Tensor) -> Tensor:
            return self._loss_and_right(functional_call(self._module, state, (x,)), y)

        for block in self._blocks(_alone(who), samples.sizes[who]):
            state = self._layout.unstack(models[block])
            for x, y, inside in self._padded(who[block], split):
                found = over_models(one, state, x, y)  # [c, 2, n]
                sums[:, block] += (found * inside.unsqueeze(1)).double().sum(-1).T
        n = samples.sizes[who]
        loss, accuracy = sums / n
        return Scores(loss.cpu(), accuracy.cpu() if classes else None, n.cpu())

    @torch.no_grad()
    def subspaces(self, clients: Sequence[int], rank: int) -> Tensor:
        """``[c, features, rank]`` leading left singular vectors of each client's inputs."""
        samples, who = self._samples["train"], self._indices(clients)
        require(
            samples.x.is_floating_point(),
            "subspaces need inputs that are numbers, but these are integers, as those of text are",
        )
        least = min(int(samples.sizes[who].min()), samples.x[0].numel())
        require(
            1 <= rank <= least,
            f"rank must be from 1 to {least}, the features or the least samples, not {rank}",
        )
        bases = [_leading(samples.of(client)[0].flatten(1), rank) for client in who.tolist()]
        return torch.stack(bases).to(self._layout.dtype)

    def _mixture_scores(self, mixture: Mixture, clients: Sequence[int], split: Split) -> Scores:
        who = self._indices(clients)
        samples = self._split(split)
        logs = self._log_weights(mixture, who)
        owner, index = _spread(samples, who)
        sums = torch.zeros(2, len(who), dtype=torch.float64, device=self.device)
        classes = not samples.y.is_floating_point()
        self._module.eval()
        states = [self._layout.unstack(row.unsqueeze(0)) for row in mixture.models]
        singles = [{name: t[0] for name, t in state.items()} for state in states]
        for part in torch.arange(len(index), device=self.device).split(self._pass(1)):
            x, y = samples.x[index[part]], samples.y[index[part]]
            outputs = torch.stack([functional_call(self._module, s, (x,)) for s in singles])
            outputs = outputs.double()
            weights = logs[owner[part]].T.view(len(singles), -1, *[1] * (outputs.ndim - 2))
            if classes:
                mixed = (outputs.log_softmax(2) + weights).logsumexp(0)
            else:
                mixed = (outputs * weights.exp()).sum(0)
            sums.index_add_(1, owner[part], self._loss_and_right(mixed, y).double())
        n = samples.sizes[who]
        loss, accuracy = sums / n
        return Scores(loss.cpu(), accuracy.cpu() if classes else None, n.cpu())

    def _loss_and_right(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample, and how much of it is right, 0 if not of classes: ``[2, n]``."""
        losses = self._loss(outputs, y)
        if y.is_floating_point():
            return torch.stack([losses, torch.zeros_like(losses)])
        right = (outputs.argmax(1) == y).to(losses.dtype)
        return torch.stack([losses, right.flatten(1).mean(1) if right.ndim > 1 else right])

    def _fit(
        self,
        starts: Tensor,
        anchors: Tensor,
        tasks: list[_Task],
        batch: Tensor,
        work: Work,
        span: range,
        key: Key,
        tick: Tick,
        weigh: Callable[[Tensor], Tensor] | None,
    ) -> Tensor:
        """Train one block of clients."""
        samples = self._samples["train"]
        who = torch.tensor([client for client, _ in tasks], device=self.device)
        sizes, offsets = samples.sizes[who], samples.offsets[who]
        widest = int(batch.max())
        stream = streams(key, self._words[who])
        index = batches(stream, sizes, widest, len(span))  # [c, steps, b]
        if work.resample:
            boot = streams(Key(key.seed, f"{key.purpose}/resample"), self._words[who])
            drawn = integers(boot, int(sizes.max()), sizes)
            index = drawn.gather(1, index.flatten(1)).view(index.shape)
        index = index + offsets.view(-1, 1, 1)
        inside = torch.arange(widest, device=self.device) < batch.unsqueeze(-1)
        share = inside.to(starts.dtype) / batch.unsqueeze(-1)
        change = streams(Key(key.seed, f"{key.purpose}/augment", key.round), self._words[who])
        changes = bits(change, len(span))  # [c, steps]

        def take(step: int) -> tuple[Tensor, Tensor, Tensor]:
            at = index[:, step]
            weights = share if weigh is None else share * weigh(at)
            return self._augment(samples.x[at], changes[:, step]), samples.y[at], weights

        kept = [self._kept.get(task) for task in tasks] if work.keep_state else [None]
        with torch.random.fork_rng(enabled=not self.traits.batchable):
            if not self.traits.batchable:
                torch.manual_seed(int(stream[0]))
            rows, state = train(
                self._module,
                self._layout,
                self._loss,
                starts,
                work,
                span,
                take,
                _together([k for k in kept if k is not None]),
                tick,
                anchors,
            )
        if state is not None:
            for place, task in enumerate(tasks):
                moments = {name: m[place] for name, m in state.moments.items()}
                self._kept[task] = Kept(state.steps, moments)
        return rows

    def _kept_in(self, training: tuple[int, str], first: bool) -> dict[_Task, Kept]:
        """What clients keep from round to round of a training; two may go on side by side."""
        kept = self._trainings.pop(training, {})
        self._trainings[training] = {} if first else kept
        for oldest in list(self._trainings)[:-2]:
            del self._trainings[oldest]
        return self._trainings[training]

    def _blocks(self, tasks: list[_Task], batch: Tensor) -> Iterator[Tensor]:
        """Places in ``tasks`` that are worked on together: alike in batch and in kept steps."""
        steps = torch.tensor(
            [self._kept[task].steps if task in self._kept else 0 for task in tasks],
            device=batch.device,
        )
        exact = torch.stack([steps, batch if self.traits.mixes_samples else steps], dim=1)
        for kind in exact.unique(dim=0):
            places = (exact == kind).all(1).nonzero().squeeze(1)
            places = places[batch[places].argsort(stable=True)]
            yield from places.split(self._block(len(places), int(batch[places].max())))

    def _block(self, count: int, batch: int) -> int:
        """How many clients are worked on at once."""
        if self._block_size is not None:
            return self._block_size
        row = 4 * self._layout.length * self._layout.dtype.itemsize
        activations = batch * self.traits.activations * self._layout.dtype.itemsize
        if self.device.type == "cpu":
            return max(1, _CACHE // (row + activations))
        free, _ = torch.cuda.mem_get_info(self.device)
        return max(1, min(count, int(0.5 * free) // (row + 4 * activations)))

    def _pass(self, models: int) -> int:
        """How many samples go through ``models`` models at once."""
        budget = _ACTIVATIONS * (1 if self.device.type == "cpu" else 16)
        return max(1, budget // (self.traits.activations * models))

    def _padded(self, who: Tensor, split: Split) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All samples of some clients, ``[c, n, ...]`` at a time, and which of them are real."""
        samples = self._samples[split]
        sizes, offsets = samples.sizes[who], samples.offsets[who]
        places = torch.arange(int(sizes.max()), device=self.device)
        whole = self._module.training and self.traits.mixes_samples
        for place in [places] if whole else places.split(self._pass(len(who))):
            inside = place < sizes.unsqueeze(-1)
            at = torch.minimum(place, sizes.unsqueeze(-1) - 1) + offsets.unsqueeze(-1)
            yield samples.x[at], samples.y[at], inside.to(self._layout.dtype)

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


def _alone(who: Tensor) -> list[_Task]:
    return [(client, 0) for client in who.tolist()]


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


def _spread(samples: Samples, who: Tensor) -> tuple[Tensor, Tensor]:
    """For every sample of some clients: whose it is (a place in ``who``), and where it lies."""
    sizes = samples.sizes[who]
    owner = torch.arange(len(who), device=who.device).repeat_interleave(sizes)
    start = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    place = torch.arange(len(owner), device=who.device) - start
    return owner, samples.offsets[who].repeat_interleave(sizes) + place


def _together(kept: list[Kept]) -> Kept | None:
    """The kept states of a block's clients as one."""
    if not kept:
        return None
    names = kept[0].moments
    return Kept(kept[0].steps, {n: torch.stack([k.moments[n] for k in kept]) for n in names})
