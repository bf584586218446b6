"""The reference: the plainest possible loop over clients, with ``torch.optim``.

It is slow on purpose. Every federation, and the simulation with all of its fast paths, has to give
what it gives, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan, log
from typing import Any, cast

import torch
from torch import Tensor, nn

from srfca import progress
from srfca.data.client_data import ClientData, Samples, hold_out
from srfca.engine.augment import Augmentation, AugmentationName, augmentation_named
from srfca.engine.loss import Loss, LossName, correct, cross_entropy, loss_kind, loss_named
from srfca.errors import InputError, require
from srfca.federation.coordinates import Coordinates
from srfca.federation.mixture import Mixture
from srfca.federation.replies import ClientScores, Replies, T
from srfca.federation.requests import (
    MIN_CLASS_SAMPLES,
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    Collect,
    DataMoments,
    Gradients,
    Losses,
    LossMoments,
    OutputMoments,
    Outputs,
    Personal,
    Request,
    Scores,
    SharedSamples,
    Shares,
    Split,
    Subsample,
    Subspaces,
    Train,
)
from srfca.models.architecture import Architecture
from srfca.models.rows import Layout, make_module, set_training
from srfca.models.signature import Signature
from srfca.random import Key, batches, client_words, integers, streams
from srfca.testing.reference_training import train_entry


class ReferenceFederation:
    """A federation that answers requests client by client, in the most obvious way.

    Args:
        data: What the clients hold.
        model: A callable that makes the module, or a module.
        loss: Same as in ``Simulation``.
        augment: Same as in ``Simulation``.
        validation: The fraction of each client's training samples that is held out.
        seed: Decides which ones.

    >>> from srfca import LocalTraining, data, models
    >>> fed = ReferenceFederation(data.rotated_digits(num_clients=4), models.linear(64, 10))
    >>> starts = fed.initial_model(0).repeat(4, 1)
    >>> fed.ask(Train(range(4), starts, LocalTraining(steps=2), Key(0, "demo"))).values.shape
    torch.Size([4, 650])
    """

    answers_rounds = False

    def __init__(
        self,
        data: ClientData,
        model: nn.Module | Callable[[], nn.Module],
        *,
        loss: LossName | Loss = "auto",
        augment: AugmentationName | Augmentation = "none",
        validation: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.data, self.model = data, model
        self.loss = loss_named(loss, data.train.y)
        self.augment = augmentation_named(augment, data.train.x)
        train_part, held_out = hold_out(data, validation, seed)
        parts: dict[Split, Samples | None] = {
            "train": train_part,
            "validation": held_out if validation > 0 else None,
            "test": data.test,
        }
        module = make_module(model, seed=0)
        self.layout = Layout.of(module)
        self.samples = {
            split: part.to(torch.device("cpu"), self.layout.dtype)
            for split, part in parts.items()
            if part is not None
        }
        train = self.samples["train"]
        signature = Signature.of(train.x, train.y, loss_kind(self.loss))
        self.architecture = Architecture.of(model, module, signature)
        self.optimizers: dict[tuple[int, str], dict[tuple[int, int], Any]] = {}
        """Optimizer states by training, and by client and model of its mixture."""
        self.personal: dict[tuple[int, str], dict[int, Tensor]] = {}
        """Personal coordinates by training and client."""
        self.residuals: dict[tuple[int, str], dict[tuple[int, int], list[float]]] = {}
        """What was not sent yet of updates, by training, and by client and its entry."""

    @property
    def client_ids(self) -> Sequence[str]:
        """Stable ids of the clients, in order."""
        return self.data.client_ids

    @property
    def sizes(self) -> Tensor:
        """``[m]`` number of training samples of each client, without validation samples."""
        return self.samples["train"].sizes

    @property
    def splits(self) -> Sequence[Split]:
        """What the clients hold."""
        return tuple(self.samples)

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each trained layer lies in a row."""
        return self.layout.layers

    def fingerprint(self) -> str:
        """Return a digest of the data."""
        return self.data.fingerprint()

    def initial_model(self, seed: int) -> Tensor:
        """Return w0: ``[P]``.

        Args:
            seed: Decides it, unless the weights are given.
        """
        return self.layout.row(make_module(self.model, seed))

    def ask(self, request: Request[T]) -> Replies[T]:
        """Answer a request for its clients.

        Args:
            request: Any request but ``Round``.

        Returns:
            The replies of its clients.

        Raises:
            InputError: If a client does not exist, or the request is of another kind.
        """
        for client in request.clients:
            require(0 <= client < len(self.client_ids), f"there is no client {client}")
        answer = getattr(self, f"_answer_{request.name}", None)
        require(answer is not None, f"the reference does not answer {request.name!r}")
        assert answer is not None
        return Replies(request.clients, cast(T, answer(request)))

    def _answer_train(self, request: Train) -> Tensor:
        self.check_rows(request.starts, len(request.clients))
        require(request.steps > 0, f"round {request.key.round} is past the end of the training")
        training = request.key.seed, request.key.purpose
        if request.key.round == 0:
            self.optimizers[training] = {}
            self.personal[training] = {}
            self.residuals[training] = {}
        personal = request.personal
        rows = []
        for entry, client in enumerate(request.clients.tolist()):
            start = request.starts[entry].clone()
            if personal is not None:
                default = _take(personal, self.initial_model(request.key.seed))
                values = self.personal[training].get(client, default)
                start[_mask(personal, start)] = values
            rows.append(train_entry(self, request, entry, client, start))
            progress.report(request.steps)
        if personal is None:
            return self._compressed(request, request.starts, self._stacked(rows))
        for client, row in zip(request.clients.tolist(), rows, strict=True):
            self.personal[training][client] = _take(personal, row)
        sent = ~_mask(personal, self.initial_model(0))
        return self._compressed(request, request.starts[:, sent], self._stacked(rows)[:, sent])

    def _compressed(self, request: Train, starts: Tensor, rows: Tensor) -> Tensor:
        """Return what the server makes of compressed updates: ``[c, n]``."""
        fraction = request.local.compress
        if fraction is None or request.private:
            return rows
        residuals = self.residuals[request.key.seed, request.key.purpose]
        received = starts.to(rows).clone()
        for entry, client in enumerate(request.clients.tolist()):
            place = request.clients[:entry].tolist().count(client)
            update = (rows[entry] - starts[entry]).tolist()
            left = residuals.get((client, place), [0.0] * len(update))
            update = [new + old for new, old in zip(update, left, strict=True)]
            order = sorted(range(len(update)), key=lambda at: -abs(update[at]))
            chosen = [at for at in order[: max(1, round(fraction * len(update)))] if update[at]]
            size = sum(abs(update[at]) for at in chosen) / max(1, len(chosen))
            size = float(torch.tensor(size, dtype=torch.float32))
            for at in chosen:
                step = size if update[at] > 0 else -size
                received[entry, at] += step
                update[at] -= step
            residuals[client, place] = update
        return received

    def _answer_gradients(self, request: Gradients) -> Tensor:
        self.check_rows(request.models, len(request.clients))
        rows = []
        for row, client in zip(request.models, request.clients.tolist(), strict=True):
            module = set_training(self.module(row))
            x, y = self.samples["train"].of(client)
            self.loss(module(x), y).mean().backward()
            gradient = {name: torch.zeros(1, *shape) for name, shape in self.layout.shapes.items()}
            for name, parameter in module.named_parameters():
                if parameter.grad is not None:
                    gradient[name] = parameter.grad.unsqueeze(0)
            rows.append(self.layout.stack(gradient)[0])
        return self._stacked(rows)

    def _answer_losses(self, request: Losses) -> Tensor:
        self.check_rows(request.models)
        losses = [
            [self._loss_of(row, client, request.split, request.subsample) for row in request.models]
            for client in request.clients.tolist()
        ]
        shape = len(request.clients), len(request.models)
        return torch.tensor(losses, dtype=self.layout.dtype).view(shape)

    def _loss_of(
        self, row: Tensor, client: int, split: Split, subsample: Subsample | None
    ) -> float:
        x, y = self._samples_of(client, split, subsample)
        return float(self.loss(self._outputs(row, x), y).mean())

    def _answer_classcounts(self, request: ClassCounts) -> Tensor:
        num_classes = self._num_classes()
        counts = torch.zeros(len(request.clients), num_classes, dtype=torch.int64)
        for entry, client in enumerate(request.clients.tolist()):
            _, y = self.samples["train"].of(client)
            for label in range(num_classes):
                count = int((y == label).sum())
                if request.presence:
                    count = MIN_CLASS_SAMPLES if count >= MIN_CLASS_SAMPLES else 0
                counts[entry, label] = count
        return counts

    def _answer_balancedlosses(self, request: BalancedLosses) -> Tensor:
        self.check_rows(request.models)
        shape = (len(request.models), self._num_classes())
        require(
            tuple(request.class_shares.shape) == shape,
            f"class shares must have the shape {shape}, not {tuple(request.class_shares.shape)}",
        )
        losses = [
            [
                self._balanced_loss(row, shares, client, request.subsample)
                for row, shares in zip(request.models, request.class_shares, strict=True)
            ]
            for client in request.clients.tolist()
        ]
        values = torch.tensor(losses, dtype=self.layout.dtype)
        return values.view(len(request.clients), len(request.models))

    def _balanced_loss(
        self, row: Tensor, shares: Tensor, client: int, subsample: Subsample | None
    ) -> float:
        x, y = self._samples_of(client, "train", subsample)
        logits = self._outputs(row, x)
        shared = [
            label
            for label, share in enumerate(shares.tolist())
            if share > 0 and int((y == label).sum()) >= MIN_CLASS_SAMPLES
        ]
        if len(shared) < 2:
            return float("nan")
        of_classes = []
        for position, label in enumerate(shared):
            adjusted = logits[y == label][:, shared] - shares[shared].log()
            of_classes.append(float(-adjusted.log_softmax(1)[:, position].mean()))
        balanced = sum(of_classes) / len(shared) / log(len(shared))
        return float("inf") if isnan(balanced) else balanced

    def _num_classes(self) -> int:
        x, y = self.samples["train"].x[:1], self.samples["train"].y
        outputs = self._outputs(self.initial_model(0), x)
        has_classes = self.loss is cross_entropy and y.ndim == 1 and outputs.ndim == 2
        require(has_classes, "these clients have no classes")
        return outputs.shape[1]

    def _answer_lossmoments(self, request: LossMoments) -> Tensor:
        self.check_rows(request.models)
        require(bool((request.scales > 0).all()), "scales must be positive")
        rows = []
        for client in request.clients.tolist():
            x, y = self._samples_of_all(client, request.splits)
            losses = [self.loss(self._outputs(row, x), y).double() for row in request.models]
            best = min(losses, key=lambda loss: float(loss.mean()))
            classes = y.ndim == 1 and not y.is_floating_point()
            groups = self._num_outputs(x) if classes else 1
            of_client = []
            for loss, scale in zip(losses, request.scales, strict=True):
                variance = (loss - best).var().item() if len(x) > 1 else 0.0
                compressed = torch.asinh(3 * loss / scale).unsqueeze(1)
                labels = y % groups if classes else torch.zeros(len(y), dtype=torch.int64)
                moments = _moments_by_group(compressed, labels, groups)
                row = [float(loss.mean()), variance, *moments]
                of_client.append(torch.tensor(row, dtype=torch.float64))
            rows.append(torch.stack(of_client))
        return torch.stack(rows).double()

    def _answer_outputmoments(self, request: OutputMoments) -> Tensor:
        self.check_rows(request.models)
        rows = []
        for client in request.clients.tolist():
            x, _ = self._samples_of_all(client, request.splits)
            width = self._num_outputs(x)
            of_client = []
            for row in request.models:
                outputs = self._outputs(row, x).double()
                groups = torch.zeros(len(x), dtype=torch.int64)
                if self.loss is cross_entropy and outputs.ndim == 2:
                    outputs, groups = outputs.log_softmax(1), outputs.argmax(1)
                moments = _moments_by_group(outputs.flatten(1), groups, width)
                of_client.append(torch.tensor(moments, dtype=torch.float64))
            rows.append(torch.stack(of_client))
        return torch.stack(rows).double()

    def _answer_bootstraplosses(self, request: BootstrapLosses) -> Tensor:
        self.check_rows(request.models)
        require(request.replicates >= 1, f"{request.replicates} replicates")
        count = len(request.models)
        rows = []
        for client in request.clients.tolist():
            parts = [self._sample_losses(request.models, client, s) for s in request.splits]
            losses = torch.cat(parts, dim=1)
            n = losses.shape[1]
            stream = streams(
                Key(request.seed, "bootstrap"), client_words([self.client_ids[client]])
            )
            draws = integers(stream, request.replicates * n, torch.tensor([n]))[0]
            wins = [0] * count
            for drawn in draws.split(n):
                means = losses[:, drawn].mean(1).tolist()
                wins[means.index(min(means))] += 1
            share = torch.tensor(wins).double() / request.replicates
            covariance = torch.cov(losses) if n > 1 else torch.zeros(count, count)
            samples = torch.full((count,), float(n), dtype=torch.float64)
            columns = [losses.mean(1), share, samples, *covariance.reshape(count, count).double()]
            rows.append(torch.stack(columns, dim=1))
        return torch.stack(rows)

    def _sample_losses(self, models: Tensor, client: int, split: Split) -> Tensor:
        x, y = self._samples_of(client, split)
        return torch.stack([self.loss(self._outputs(row, x), y).double() for row in models])

    def _answer_datamoments(self, request: DataMoments) -> Tensor:
        rows = []
        for client in request.clients.tolist():
            x, y = self._samples_of_all(client, request.splits)
            classes = y.ndim == 1 and not y.is_floating_point()
            num_groups = self._num_outputs(x) if classes else 1
            numbers = [v.flatten(1) if v.ndim > 1 else v.unsqueeze(1) for v in (x, y)]
            columns = torch.cat([v.double() for v in numbers if v.is_floating_point()], dim=1)
            groups = y % num_groups if classes else torch.zeros(len(y))
            of_client = []
            for group in range(num_groups):
                part = columns[groups == group]
                if len(part) < MIN_CLASS_SAMPLES:
                    part = part[:0]
                count = torch.tensor([float(len(part))], dtype=torch.float64)
                of_client.append(torch.cat([count, part.sum(0), (part**2).sum(0)]))
            rows.append(torch.stack(of_client))
        return torch.stack(rows)

    def _samples_of_all(self, client: int, splits: Sequence[Split]) -> tuple[Tensor, Tensor]:
        require(len(splits) > 0, "a request for moments needs at least one split")
        parts = [self._samples_of(client, split) for split in splits]
        return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])

    def _num_outputs(self, x: Tensor) -> int:
        return self._outputs(self.initial_model(0), x[:1]).numel()

    def _answer_shares(self, request: Shares) -> Tensor:
        rows = []
        for entry, client in enumerate(request.clients.tolist()):
            x, y = self.samples["train"].of(client)
            if isinstance(request.models, Mixture):
                self.check_rows(request.models.models)
                shares = self.posterior(request.models, entry, client)
            else:
                self.check_rows(request.models)
                losses = [self.loss(self._outputs(row, x), y).tolist() for row in request.models]
                shares = torch.zeros(len(losses), len(x), dtype=self.layout.dtype)
                for sample in range(len(x)):
                    of_sample = [loss[sample] for loss in losses]
                    shares[of_sample.index(min(of_sample)), sample] = 1
            if request.by_class:
                groups = self._label_groups(x, y)
                count = self._num_outputs(x) if _are_classes(y) else 1
                parts = [shares[:, groups == group].sum(1) / len(x) for group in range(count)]
                rows.append(torch.stack(parts, dim=1))
            else:
                rows.append(shares.mean(1))
        return torch.stack(rows)

    def posterior(self, mixture: Mixture, entry: int, client: int) -> Tensor:
        """Return the posterior of each model, given each training sample: ``[k, n]``.

        Args:
            mixture: Mixture of the clients of a request.
            entry: Position of the client in the request.
            client: Position of the client in the federation.

        Returns:
            ``[k, n]``
        """
        x, y = self.samples["train"].of(client)
        odds = []
        for number, row in enumerate(mixture.models):
            likelihoods = torch.exp(-self.loss(self._outputs(row, x), y))
            if mixture.class_shares is not None:
                likelihoods /= mixture.class_shares[number][self._label_groups(x, y)]
            odds.append(mixture.weights[entry, number] * likelihoods)
        return torch.stack(odds) / torch.stack(odds).sum(0)

    def _label_groups(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the group of each sample by its label: ``[n]``."""
        return y % self._num_outputs(x) if _are_classes(y) else torch.zeros(len(y)).long()

    def _answer_scores(self, request: Scores) -> ClientScores:
        losses, accuracies, sizes = [], [], []
        for entry, client in enumerate(request.clients.tolist()):
            x, y = self._samples_of(client, request.split)
            if isinstance(request.models, Mixture):
                outputs = self._mixed_outputs(request.models, entry, x, y)
            else:
                self.check_rows(request.models, len(request.clients))
                row = request.models[entry].clone()
                if request.personal is not None:
                    mask = _mask(request.personal.coordinates, row)
                    row[mask] = self._personal_of(request.personal, client)
                outputs = self._outputs(row, x)
            losses.append(self.loss(outputs, y).mean().double())
            predicted = correct(outputs, y)
            accuracies.append(None if predicted is None else predicted.double().mean())
            sizes.append(len(x))
        classes = [accuracy for accuracy in accuracies if accuracy is not None]
        accuracy = torch.stack(classes) if len(classes) == len(losses) else None
        return ClientScores(torch.stack(losses), accuracy, torch.tensor(sizes))

    def _mixed_outputs(self, mixture: Mixture, entry: int, x: Tensor, y: Tensor) -> Tensor:
        """Return the weighted mean of outputs, or the logarithm of that of probabilities."""
        self.check_rows(mixture.models)
        require(
            mixture.weights.shape[1] == len(mixture.models) and entry < len(mixture.weights),
            f"weights of shape {tuple(mixture.weights.shape)}",
        )
        total: Tensor = torch.zeros(())
        for weight, row in zip(mixture.weights[entry], mixture.models, strict=True):
            outputs = self._outputs(row, x)
            total = total + weight * (outputs if y.is_floating_point() else outputs.softmax(1))
        return total if y.is_floating_point() else total.log()

    def _answer_subspaces(self, request: Subspaces) -> Tensor:
        bases = []
        for client in request.clients.tolist():
            x, y = self.samples["train"].of(client)
            columns = x.reshape(len(x), -1).T
            if request.num_classes:
                classes = [columns[:, y == label] for label in range(request.num_classes)]
                bases.append(torch.cat([_leading(part, request.rank) for part in classes], dim=1))
                continue
            require(
                1 <= request.rank <= min(columns.shape),
                f"rank must be from 1 to {min(columns.shape)}, not {request.rank}",
            )
            bases.append(torch.linalg.svd(columns).U[:, : request.rank])
        return torch.stack(bases)

    def _answer_sharedsamples(self, request: SharedSamples) -> Tensor:
        require(request.size >= 1, f"size must be at least 1, not {request.size}")
        replies = []
        for client in request.clients.tolist():
            x, y = self.samples["train"].of(client)
            stream = streams(
                Key(request.seed, "shared samples"), client_words([self.client_ids[client]])
            )
            size = min(request.size, len(x))
            chosen = batches(stream, torch.tensor([len(x)]), size, 1)[0, 0].tolist()
            rows = []
            for number in range(request.size):
                at = chosen[number] if number < size else 0
                parts = [x[at].flatten().double()]
                parts += [y[at].flatten().double()] if request.targets else []
                row = torch.cat(parts)
                rows.append(row if number < size else torch.full_like(row, torch.inf))
            replies.append(torch.stack(rows))
        return torch.stack(replies)

    def _answer_outputs(self, request: Outputs) -> Tensor:
        self.check_rows(request.models, len(request.clients))
        like = self.samples["train"].x
        require(
            request.inputs.shape[1] == like[0].numel(),
            f"inputs have {like[0].numel()} numbers, not {request.inputs.shape[1]}",
        )
        x = request.inputs.view(-1, *like.shape[1:]).to(like)
        return torch.stack([self._outputs(row, x).flatten(1) for row in request.models])

    def _answer_collect(self, request: Collect) -> Tensor:
        return torch.stack(
            [self._personal_of(request.personal, client) for client in request.clients.tolist()]
        )

    def _personal_of(self, personal: Personal, client: int) -> Tensor:
        stored = self.personal.get((personal.seed, personal.purpose), {})
        if client not in stored:
            raise InputError(f"client {self.client_ids[client]!r} has no personal coordinates")
        return stored[client]

    def _samples_of(
        self, client: int, split: Split, subsample: Subsample | None = None
    ) -> tuple[Tensor, Tensor]:
        require(split in self.samples, f"the clients have no {split} data")
        x, y = self.samples[split].of(client)
        if subsample is not None:
            key = Key(subsample.seed, f"sample/{split}")
            stream = streams(key, client_words([self.client_ids[client]]))
            size = min(subsample.size, len(x))
            chosen = batches(stream, torch.tensor([len(x)]), size, 1)[0, 0]
            x, y = x[chosen], y[chosen]
        return x, y

    def check_rows(self, rows: Tensor, count: int | None = None) -> None:
        """Raise an ``InputError`` unless rows are ``[count, P]``.

        Args:
            rows: What to check.
            count: How many there must be; None is any number.

        Raises:
            InputError: If they are not.
        """
        expected = (len(rows) if count is None else count, self.layout.length)
        require(
            tuple(rows.shape) == expected,
            f"rows must have the shape {expected}, not {tuple(rows.shape)}",
        )

    def parts(self, row: Tensor) -> dict[str, Tensor]:
        """Return the tensors of a row ``[P]`` by name.

        Args:
            row: ``[P]``
        """
        return {name: part[0] for name, part in self.layout.unstack(row.unsqueeze(0)).items()}

    def module(self, row: Tensor) -> nn.Module:
        """Return a row ``[P]`` as a module.

        Args:
            row: ``[P]``
        """
        return self.layout.load(row, make_module(self.model, seed=0))

    @torch.no_grad()
    def _outputs(self, row: Tensor, x: Tensor) -> Tensor:
        return torch.as_tensor(self.module(row).eval()(x))

    def _stacked(self, rows: list[Tensor]) -> Tensor:
        return torch.stack(rows) if rows else torch.empty(0, self.layout.length)


def _are_classes(y: Tensor) -> bool:
    return y.ndim == 1 and not y.is_floating_point()


def _moments_by_group(values: Tensor, groups: Tensor, num_groups: int) -> list[float]:
    """Return counts, means and scatter of ``[n, d]``, one after another."""
    counts: list[float] = []
    means: list[float] = []
    scatter = torch.zeros(values.shape[1], values.shape[1], dtype=torch.float64)
    for group in range(num_groups):
        part = values[groups == group]
        counts.append(float(len(part)))
        mean = part.mean(0) if len(part) else torch.zeros(values.shape[1], dtype=torch.float64)
        means += mean.tolist()
        scatter += (part - mean).T @ (part - mean)
    return [*counts, *means, *scatter.flatten().tolist()]


def _mask(coordinates: Coordinates, row: Tensor) -> Tensor:
    return coordinates.mask(len(row))


def _take(coordinates: Coordinates, row: Tensor) -> Tensor:
    return row[_mask(coordinates, row)].clone()


def _leading(columns: Tensor, rank: int) -> Tensor:
    """Return the leading left singular vectors ``[f, rank]``, zeros for those that are lacking."""
    vectors = torch.zeros(len(columns), rank, dtype=columns.dtype)
    count = min(rank, *columns.shape)
    if count:
        vectors[:, :count] = torch.linalg.svd(columns).U[:, :count]
    return vectors
