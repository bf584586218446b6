"""The plainest possible federation: a loop over clients, with torch.optim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn

from srfca.data.client_data import ClientData, Samples, hold_out
from srfca.engine.loss import loss_named
from srfca.federation import (
    ClientScores,
    Descent,
    Gradients,
    LocalTraining,
    Losses,
    Mixture,
    Replies,
    Request,
    Scores,
    Shares,
    Split,
    Subspaces,
    Train,
)
from srfca.federation.replies import T
from srfca.models.rows import Layout
from srfca.random import Key, batches, client_words, integers, streams


class ReferenceFederation:
    """Answers every request client by client; methods on it are compared with the engine."""

    answers_rounds = False

    def __init__(
        self,
        data: ClientData,
        model: Callable[[], nn.Module],
        validation: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.client_ids: Sequence[str] = data.client_ids
        self._model, self._loss = model, loss_named("auto", data.train.y)
        train, held_out = hold_out(data, validation, seed)
        parts: dict[Split, Samples | None] = {
            "train": train,
            "validation": held_out,
            "test": data.test,
        }
        self._layout = Layout.of(self._module(0))
        self._samples = {
            split: part.to(torch.device("cpu"), self._layout.dtype)
            for split, part in parts.items()
            if part is not None
        }
        self._optimizers: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}

    @property
    def sizes(self) -> Tensor:
        return self._samples["train"].sizes

    @property
    def splits(self) -> Sequence[Split]:
        return tuple(self._samples)

    @property
    def layers(self) -> Mapping[str, slice]:
        return self._layout.layers

    def fingerprint(self) -> str:
        return ""

    def initial_model(self, seed: int) -> Tensor:
        return self._layout.row(self._module(seed))

    def ask(self, request: Request[T]) -> Replies[T]:
        return Replies(request.clients, cast(T, self._answer(request)))

    def _answer(self, request: Request[Any]) -> Tensor | ClientScores:
        clients = request.clients.tolist()
        match request:
            case Train():
                return self._train(request)
            case Gradients(models=models):
                return torch.stack(
                    [self._gradient(row, c) for row, c in zip(models, clients, strict=True)]
                )
            case Losses():
                return torch.stack(
                    [
                        torch.stack([self._mean_loss(row, c, request) for row in request.models])
                        for c in clients
                    ]
                )
            case Shares(models=Mixture(models=models, weights=weights)):
                pairs = zip(weights, clients, strict=True)
                return torch.stack([self._posterior(models, w, c).mean(1) for w, c in pairs])
            case Shares(models=Tensor() as models):
                return torch.stack([self._share(models, c) for c in clients])
            case Scores():
                return self._scores(request)
            case Subspaces(rank=rank):
                inputs = (self._samples["train"].of(c)[0].flatten(1).T for c in clients)
                return torch.stack([torch.linalg.svd(x).U[:, :rank] for x in inputs])
        raise AssertionError(f"not in the reference: {request}")

    def _train(self, request: Train) -> Tensor:
        algorithm = request.algorithm
        assert isinstance(algorithm, Descent)
        if request.key.round == 0:
            self._optimizers[request.key.purpose] = {}
        anchors = request.starts if algorithm.anchors is None else algorithm.anchors
        rows = []
        for position, client in enumerate(request.clients.tolist()):
            weights = torch.ones(int(self.sizes[client]), dtype=self._layout.dtype)
            component = 0
            if algorithm.posterior is not None:
                component = int(algorithm.posterior.component[position])
                mixture = algorithm.posterior.mixture
                weights = self._posterior(mixture.models, mixture.weights[position], client)
                weights = weights[component]
            rows.append(
                self._descend(
                    request.starts[position], anchors[position], client, component, weights,
                    request.local, request.key,
                )
            )  # fmt: skip
        return torch.stack(rows)

    def _descend(
        self,
        start: Tensor,
        anchor: Tensor,
        client: int,
        component: int,
        weights: Tensor,
        local: LocalTraining,
        key: Key,
    ) -> Tensor:
        x, y = self._samples["train"].of(client)
        words = client_words([self.client_ids[client]])
        if local.resample:
            stream = streams(Key(key.seed, f"{key.purpose}/resample"), words)
            drawn = integers(stream, len(x), torch.tensor([len(x)]))[0]
            x, y, weights = x[drawn], y[drawn], weights[drawn]
        module = self._layout.load(start, self._module(0)).train()
        fixed = self._layout.load(anchor, self._module(0))
        anchors = [parameter.detach().clone() for parameter in fixed.parameters()]
        optimizer: torch.optim.Optimizer
        if local.optimizer == "adam":
            optimizer = torch.optim.Adam(
                module.parameters(), local.lr, weight_decay=local.weight_decay
            )
        else:
            optimizer = torch.optim.SGD(
                module.parameters(), local.lr, local.momentum, weight_decay=local.weight_decay
            )
        states = self._optimizers.setdefault(key.purpose, {})
        if local.keep_state and (client, component) in states:
            optimizer.load_state_dict(states[client, component])
        size = len(x) if local.batch_size is None else min(local.batch_size, len(x))
        span = local.span(key.round)
        stream = streams(key, words)
        index = batches(stream, torch.tensor([len(x)]), size, len(span))[0]
        for step, batch in zip(span, index, strict=True):
            optimizer.param_groups[0]["lr"] = local.rate(step)
            optimizer.zero_grad()
            loss = (self._loss(module(x[batch]), y[batch]) * weights[batch]).mean()
            if local.mu:
                for parameter, target in zip(module.parameters(), anchors, strict=True):
                    loss = loss + local.mu / 2 * (parameter - target).square().sum()
            loss.backward()
            if local.clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), local.clip)
            optimizer.step()
        if local.keep_state:
            states[client, component] = deepcopy(optimizer.state_dict())
        return self._layout.row(module)

    def _gradient(self, row: Tensor, client: int) -> Tensor:
        module = self._layout.load(row, self._module(0)).train()
        x, y = self._samples["train"].of(client)
        self._loss(module(x), y).mean().backward()
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in module.parameters()
        ]
        return torch.cat([gradient.flatten() for gradient in gradients])

    def _mean_loss(self, row: Tensor, client: int, request: Losses) -> Tensor:
        x, y = self._samples[request.split].of(client)
        if request.subsample is not None:
            key = Key(request.subsample.seed, f"sample/{request.split}")
            stream = streams(key, client_words([self.client_ids[client]]))
            size = min(request.subsample.size, len(x))
            drawn = batches(stream, torch.tensor([len(x)]), size, 1)[0, 0]
            x, y = x[drawn], y[drawn]
        return self._loss(self._outputs(row, x), y).mean()

    def _share(self, models: Tensor, client: int) -> Tensor:
        x, y = self._samples["train"].of(client)
        losses = [self._loss(self._outputs(row, x), y).tolist() for row in models]
        shares = torch.zeros(len(models), dtype=self._layout.dtype)
        for sample in range(len(x)):
            of_sample = [loss[sample] for loss in losses]
            shares[of_sample.index(min(of_sample))] += 1 / len(x)
        return shares

    def _posterior(self, models: Tensor, weights: Tensor, client: int) -> Tensor:
        """Return the posterior of each model, given each sample: ``[k, n]``."""
        x, y = self._samples["train"].of(client)
        odds = torch.stack(
            [
                weight * torch.exp(-self._loss(self._outputs(row, x), y))
                for weight, row in zip(weights, models, strict=True)
            ]
        )
        return odds / odds.sum(0)

    def _scores(self, request: Scores) -> ClientScores:
        samples, clients = self._samples[request.split], request.clients.tolist()
        classes = not samples.y.is_floating_point()
        losses, accuracies = [], []
        for position, client in enumerate(clients):
            x, y = samples.of(client)
            if isinstance(request.models, Mixture):
                outputs = self._mixed(request.models, position, x, classes)
            else:
                outputs = self._outputs(request.models[position], x)
            losses.append(self._loss(outputs, y).mean())
            correct = outputs.argmax(1) == y if classes else torch.zeros(len(y))
            accuracies.append(correct.double().mean())
        return ClientScores(
            torch.stack(losses),
            torch.stack(accuracies) if classes else None,
            samples.sizes[torch.tensor(clients)],
        )

    def _mixed(self, mixture: Mixture, position: int, x: Tensor, classes: bool) -> Tensor:
        parts = []
        for weight, row in zip(mixture.weights[position], mixture.models, strict=True):
            outputs = self._outputs(row, x)
            parts.append(weight * (outputs.softmax(1) if classes else outputs))
        mixed = torch.stack(parts).sum(0)
        return mixed.log() if classes else mixed

    @torch.no_grad()
    def _outputs(self, row: Tensor, x: Tensor) -> Tensor:
        return torch.as_tensor(self._layout.load(row, self._module(0)).eval()(x))

    def _module(self, seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return self._model()
