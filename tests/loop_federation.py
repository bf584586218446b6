"""The reference: the plainest possible loop over clients, with torch.optim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from srfca.data.client_data import ClientData, Samples, hold_out
from srfca.federation.augment import AUGMENTATIONS, Augmentation
from srfca.federation.base import Focus, Mixture, Sample, Scores, Split, Tick, Wire, Work, silent
from srfca.federation.loss import Loss, loss_named
from srfca.models.rows import Layout
from srfca.random import Key, batches, bits, client_words, integers, streams


class LoopFederation:
    wire = Wire()

    def __init__(
        self,
        data: ClientData,
        model: Callable[[], nn.Module],
        loss: str | Loss = "auto",
        augment: str | Augmentation = "none",
        validation: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.clients: Sequence[str] = data.client_ids
        self.model = model
        self.loss = loss_named(loss, data.train.y)
        self.augment = AUGMENTATIONS[augment] if isinstance(augment, str) else augment
        kept, held_out = hold_out(data, validation, seed)
        parts: dict[Split, Samples | None] = {
            "train": kept,
            "validation": held_out,
            "test": data.test,
        }
        self.layout = Layout.of(self._fresh(0))
        self.samples = {
            split: part.to(torch.device("cpu"), self.layout.dtype)
            for split, part in parts.items()
            if part is not None
        }
        self.optimizers: dict[str, dict[tuple[int, int], dict[str, object]]] = {}

    @property
    def sizes(self) -> Tensor:
        return self.samples["train"].sizes

    @property
    def splits(self) -> Sequence[Split]:
        return tuple(self.samples)

    def fingerprint(self) -> str:
        return ""

    def initial(self, seed: int) -> Tensor:
        return self.layout.row(self._fresh(seed))

    @property
    def layers(self) -> Mapping[str, slice]:
        return self.layout.layers

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
        if key.round == 0:
            self.optimizers[key.purpose] = {}
        pulled_to = starts if anchors is None else anchors
        rows = []
        for place, (start, anchor, client) in enumerate(
            zip(starts, pulled_to, clients, strict=True)
        ):
            weights = torch.ones(int(self.sizes[client]), dtype=self.layout.dtype)
            component = 0
            if focus is not None:
                component = int(focus.component[place])
                mixture = focus.mixture
                weights = self._posterior(mixture.models, mixture.weights[place], client)
                weights = weights[component]
            rows.append(self._fit(start, anchor, client, component, weights, work, key))
        return torch.stack(rows)

    def _fit(
        self,
        start: Tensor,
        pulled_to: Tensor,
        client: int,
        component: int,
        weights: Tensor,
        work: Work,
        key: Key,
    ) -> Tensor:
        x, y = self.samples["train"].of(client)
        if work.resample:
            words = client_words([self.clients[client]])
            stream = streams(Key(key.seed, f"{key.purpose}/resample"), words)
            drawn = integers(stream, len(x), torch.tensor([len(x)]))[0]
            x, y, weights = x[drawn], y[drawn], weights[drawn]
        module = self.layout.load(start, self._fresh(0)).train()
        centre = self.layout.load(pulled_to, self._fresh(0))
        anchor = [p.detach().clone() for p in centre.parameters()]
        if work.optimizer == "adam":
            optimizer: torch.optim.Optimizer = torch.optim.Adam(
                module.parameters(), work.lr, weight_decay=work.weight_decay
            )
        else:
            optimizer = torch.optim.SGD(
                module.parameters(), work.lr, work.momentum, weight_decay=work.weight_decay
            )
        if work.keep_state and (client, component) in self.optimizers[key.purpose]:
            optimizer.load_state_dict(self.optimizers[key.purpose][client, component])
        size = len(x) if work.batch_size is None else min(work.batch_size, len(x))
        span = work.span(key.round)
        words = client_words([self.clients[client]])
        stream = streams(key, words)
        change = streams(Key(key.seed, f"{key.purpose}/augment", key.round), words)
        with torch.random.fork_rng():
            torch.manual_seed(int(stream[0]))
            index = batches(stream, torch.tensor([len(x)]), size, len(span))[0]
            for step, batch, own in zip(span, index, bits(change, len(span))[0], strict=True):
                optimizer.param_groups[0]["lr"] = work.rate(step)
                optimizer.zero_grad()
                images = self.augment(x[batch].unsqueeze(0), own.unsqueeze(0))[0]
                loss = (self.loss(module(images), y[batch]) * weights[batch]).mean()
                if work.prox:
                    for p, a in zip(module.parameters(), anchor, strict=True):
                        loss = loss + work.prox / 2 * (p - a).square().sum()
                loss.backward()
                if work.clip is not None:
                    nn.utils.clip_grad_norm_(module.parameters(), work.clip)
                optimizer.step()
        if work.keep_state:
            self.optimizers[key.purpose][client, component] = deepcopy(optimizer.state_dict())
        return self.layout.row(module)

    def gradients(self, at: Tensor, clients: Sequence[int]) -> Tensor:
        rows = []
        for row, client in zip(at, clients, strict=True):
            module = self.layout.load(row, self._fresh(0)).train()
            x, y = self.samples["train"].of(client)
            self.loss(module(x), y).mean().backward()
            rows.append(
                torch.cat(
                    [
                        torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten()
                        for p in module.parameters()
                    ]
                )
            )
        return torch.stack(rows)

    def subspaces(self, clients: Sequence[int], rank: int) -> Tensor:
        inputs = (self.samples["train"].of(client)[0] for client in clients)
        columns = (x.reshape(len(x), -1).T for x in inputs)
        return torch.stack([torch.linalg.svd(x).U[:, :rank] for x in columns])

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Split = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        if sample is not None:
            return torch.stack([self._sampled(row, clients, split, sample) for row in models])
        return torch.stack(
            [torch.stack([self._evaluate(row, c, split)[0] for c in clients]) for row in models]
        )

    def _sampled(self, row: Tensor, clients: Sequence[int], split: Split, sample: Sample) -> Tensor:
        found = []
        for client in clients:
            x, y = self.samples[split].of(client)
            own = streams(Key(sample.seed, f"sample/{split}"), client_words([self.clients[client]]))
            some = batches(own, torch.tensor([len(x)]), min(sample.size, len(x)), 1)[0, 0]
            found.append(self.loss(self._outputs(row, x[some]), y[some]).mean())
        return torch.stack(found)

    def shares(self, models: Tensor | Mixture, clients: Sequence[int]) -> Tensor:
        if isinstance(models, Mixture):
            rows = zip(models.weights, clients, strict=True)
            return torch.stack([self._posterior(models.models, w, c).mean(1) for w, c in rows])
        found = torch.zeros(len(clients), len(models), dtype=self.layout.dtype)
        for place, client in enumerate(clients):
            x, y = self.samples["train"].of(client)
            losses = [self.loss(self._outputs(row, x), y).tolist() for row in models]
            for sample in range(len(x)):
                of_sample = [loss[sample] for loss in losses]
                found[place, of_sample.index(min(of_sample))] += 1 / len(x)
        return found

    def _posterior(self, models: Tensor, weights: Tensor, client: int) -> Tensor:
        """``[k, n]``"""
        x, y = self.samples["train"].of(client)
        odds = torch.stack(
            [
                weight * torch.exp(-self.loss(self._outputs(row, x), y))
                for weight, row in zip(weights, models, strict=True)
            ]
        )
        return odds / odds.sum(0)

    def scores(
        self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
    ) -> Scores:
        if isinstance(models, Mixture):
            rows = zip(models.weights, clients, strict=True)
            found = [self._evaluate_mixture(models.models, w, c, split) for w, c in rows]
        else:
            found = [self._evaluate(row, c, split) for row, c in zip(models, clients, strict=True)]
        classes = not self.samples[split].y.is_floating_point()
        return Scores(
            torch.stack([loss for loss, _ in found]),
            torch.stack([right for _, right in found]) if classes else None,
            self.samples[split].sizes[torch.tensor(list(clients))],
        )

    @torch.no_grad()
    def _evaluate(self, row: Tensor, client: int, split: Split) -> tuple[Tensor, Tensor]:
        x, y = self.samples[split].of(client)
        return self._judge(self._outputs(row, x), y)

    @torch.no_grad()
    def _evaluate_mixture(
        self, models: Tensor, weights: Tensor, client: int, split: Split
    ) -> tuple[Tensor, Tensor]:
        x, y = self.samples[split].of(client)
        mixed: Tensor | float = 0.0
        for weight, row in zip(weights, models, strict=True):
            outputs = self._outputs(row, x)
            mixed = mixed + weight * (outputs if y.is_floating_point() else outputs.softmax(1))
        mixed = torch.as_tensor(mixed)
        return self._judge(mixed if y.is_floating_point() else mixed.log(), y)

    def _judge(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        right = outputs.argmax(1) == y if outputs.ndim > y.ndim else torch.zeros(len(y))
        return self.loss(outputs, y).mean(), right.double().mean()

    @torch.no_grad()
    def _outputs(self, row: Tensor, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layout.load(row, self._fresh(0)).eval()(x))

    def _fresh(self, seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return self.model()
