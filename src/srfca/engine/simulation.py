"""All clients on one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from srfca.data.clients import ClientData, Samples, hold_out
from srfca.errors import InputError, require
from srfca.federation.augment import Augmentation, augmentation_named
from srfca.federation.base import Focus, Mixture, Sample, Scores, Split, Tick, Wire, Work, silent
from srfca.federation.dense import network_of
from srfca.federation.evaluation import Evaluation, all_samples, some_samples
from srfca.federation.loss import Loss, loss_named
from srfca.federation.network import arithmetic, precision_named
from srfca.federation.optimizer import Kept
from srfca.federation.training import Training
from srfca.federation.traits import check_labels, traits_of
from srfca.models.rows import make
from srfca.random import Key, client_words, streams

_T = TypeVar("_T")


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
        self._evaluation = Evaluation(
            self._network, self.traits.activations, self.traits.together, self.device
        )
        self._words = client_words(data.clients).to(self.device)
        self._training = Training(
            self._network, self.traits, train, self._augment, self._words, block_size
        )

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
        return self._training.kept

    @trainings.setter
    def trainings(self, kept: dict[tuple[int, str], dict[tuple[int, int], Kept]]) -> None:
        self._training.kept = kept

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
        component, weigh = [0] * len(who), None
        if focus is not None:
            component = focus.component.tolist()
            weigh = self._evaluation.posterior(focus, self._samples["train"], who)
        tasks = list(zip(who.tolist(), component, strict=True))
        return self._in_memory(
            lambda: self._training.fit(tasks, starts, anchors, work, key, tick, weigh)
        )

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
        size = 1 if mixes else self._training.block(len(who), int(self.sizes[who].max()))
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

    def _in_memory(self, attempt: Callable[[], _T]) -> _T:
        """Try again with smaller blocks for as long as the GPU's memory does not suffice."""
        while True:
            try:
                return attempt()
            except torch.OutOfMemoryError:
                self._training.shrink()
                if not self._evaluation.shrink():
                    raise
            torch.cuda.empty_cache()

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
