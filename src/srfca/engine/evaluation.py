"""How models do on clients' data: losses, shares of samples, scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from srfca.data.client_data import Samples
from srfca.engine.backends.autograd import Network, State, matmul_precision
from srfca.engine.loss import correct, cross_entropy
from srfca.errors import require
from srfca.federation.algorithms import Posterior
from srfca.federation.bootstrap import compare_losses
from srfca.federation.mixture import Mixture
from srfca.federation.moments import client_losses, group_moments
from srfca.federation.replies import ClientScores
from srfca.federation.requests import MIN_CLASS_SAMPLES
from srfca.models.signature import mixed_outputs
from srfca.random import batches

MAX_OUTPUTS = 256
"""Largest number of outputs whose moments are computed: their size grows with its square."""


@dataclass(frozen=True)
class Selection:
    """Some samples of some clients.

    Args:
        samples: Where they are.
        owner: ``[n]`` the client of each, a position in the request.
        index: ``[n]`` the position of each.
    """

    samples: Samples
    owner: Tensor
    index: Tensor


class Evaluation:
    """Passes of a network over clients' data, in parts that fit into memory.

    Args:
        network: What is evaluated.
        activations: Numbers that the layers output for one sample.
        together: Whether several models go through one pass.
        device: Where the passes run.
    """

    def __init__(
        self, network: Network, activations: int, together: bool, device: torch.device
    ) -> None:
        self._network, self._device = network, device
        self._activations, self._together = activations, together
        gpu = device.type == "cuda"
        self._row_bytes = 2**30 if gpu else 2**24
        self._outputs = 2**30 if gpu else 2**25
        self._cache: tuple[Tensor, Tensor, Tensor] | None = None

    def shrink(self) -> bool:
        """Halve the size of passes; False if they cannot be smaller."""
        self._row_bytes, self._outputs = self._row_bytes // 2, self._outputs // 2
        return self._outputs > self._activations

    def losses(
        self, models: Tensor, samples: Samples, num_clients: int, owner: Tensor, index: Tensor
    ) -> Tensor:
        """Return the mean loss of every model on every client's samples: ``[c, k]``.

        Args:
            models: ``[k, P]``
            samples: Where the samples are.
            num_clients: c
            owner: ``[n]`` the client of each sample.
            index: ``[n]`` the position of each sample.
        """
        sums = torch.zeros(len(models), num_clients, dtype=torch.float64, device=self._device)
        for rows, part, losses in self._sample_losses(models, samples, index):
            sums[rows].index_add_(1, owner[part], losses.double())
        return (sums / torch.bincount(owner, minlength=num_clients)).to(models.dtype).T

    def balanced_losses(
        self,
        models: Tensor,
        class_shares: Tensor,
        samples: Samples,
        num_clients: int,
        owner: Tensor,
        index: Tensor,
    ) -> Tensor:
        """Return the class-balanced loss of every model on every client's samples: ``[c, k]``.

        Args:
            models: ``[k, P]``
            class_shares: ``[k, C]``, 0 for classes to leave out.
            samples: Where the samples are.
            num_clients: c
            owner: ``[n]`` the client of each sample.
            index: ``[n]`` the position of each sample.
        """
        shares, labels = class_shares.to(self._device).double(), samples.y[index]
        counts = count_by_class(samples, num_clients, owner, index, shares.shape[1])
        in_model, at_client = shares > 0, counts >= MIN_CLASS_SAMPLES
        adjust = (-shares.log()).masked_fill(~in_model, -torch.inf).to(models.dtype)
        exclude = torch.zeros_like(counts, dtype=models.dtype)
        exclude = exclude.masked_fill(~at_client, -torch.inf)
        weights = at_client[owner, labels] / counts[owner, labels].double()
        sums = torch.zeros(len(models), num_clients, dtype=torch.float64, device=self._device)
        for rows, part, logits in self._sample_logits(models, samples, index, shares.shape[1]):
            logits = logits.add(adjust[rows].unsqueeze(1)).add_(exclude[owner[part]])
            y = labels[part].expand(len(logits), -1)
            losses = cross_entropy(logits.flatten(0, 1), y.flatten()).view(y.shape).double()
            losses = losses.nan_to_num(torch.inf, torch.inf) * weights[part]
            losses = losses.masked_fill(~in_model[rows][:, labels[part]] | (weights[part] == 0), 0)
            sums[rows].index_add_(1, owner[part], losses)
        shared = in_model.double() @ at_client.double().T
        balanced = sums / (shared * shared.log())
        return balanced.masked_fill(shared < 2, torch.nan).to(models.dtype).T

    def loss_moments(
        self,
        models: Tensor,
        scales: Tensor,
        selections: Sequence[Selection],
        num_clients: int,
        num_groups: int,
    ) -> Tensor:
        """Return what clients report of every model's losses: ``[c, k, 3 + 2 g]``.

        Args:
            models: ``[k, P]``
            scales: ``[k]`` a typical loss of each model.
            selections: The samples of all clients.
            num_clients: c
            num_groups: g; the group of a sample is its label modulo g.
        """
        losses = torch.cat([self._losses_by_sample(models, s) for s in selections], dim=1)
        owner = torch.cat([s.owner for s in selections])
        groups = torch.zeros_like(owner)
        if num_groups > 1:
            groups = torch.cat([s.samples.y[s.index] for s in selections]) % num_groups
        reported = client_losses(losses, scales, owner, groups, num_clients, num_groups)
        return reported.pack()

    def output_moments(
        self, models: Tensor, selections: Sequence[Selection], num_clients: int, num_outputs: int
    ) -> Tensor:
        """Return what clients report of every model's outputs: ``[c, k, d + 2 d d]``.

        Args:
            models: ``[k, P]``
            selections: The inputs of all clients.
            num_clients: c
            num_outputs: d

        Raises:
            InputError: If there are too many outputs.
        """
        require(
            num_outputs <= MAX_OUTPUTS,
            f"moments of outputs are for at most {MAX_OUTPUTS} outputs, not {num_outputs}",
        )
        owner = torch.cat([s.owner for s in selections])
        if not num_clients:
            width = num_outputs + 2 * num_outputs**2
            return torch.zeros(0, len(models), width, dtype=torch.float64, device=self._device)
        reports = []
        for row in models:
            values, groups = self._outputs_by_sample(row, selections)
            moments = group_moments(
                values.unsqueeze(0), owner, groups.unsqueeze(0), num_clients, num_outputs
            )
            reports.append(moments.pack())
        return torch.cat(reports, dim=1)

    def outputs(self, models: Tensor, x: Tensor, num_outputs: int) -> Tensor:
        """Return the outputs ``[k, n, d]`` of models ``[k, P]`` on the same inputs ``[n, ...]``."""
        self._network.eval()
        table = models.new_empty(len(models), len(x), num_outputs, device=self._device)
        for row, outputs in zip(models, table, strict=True):
            state = self._network.layout.unstack(row.unsqueeze(0).to(self._device))
            for part in _slices(len(x), self._samples_per_pass(1)):
                with matmul_precision(self._network.precision):
                    values = self._network.outputs(state, x[part].unsqueeze(0))[0]
                outputs[part] = values.reshape(len(values), -1)
        return table

    def bootstrap_losses(
        self, models: Tensor, selections: Sequence[Selection], draws: Tensor, replicates: int
    ) -> Tensor:
        """Return what clients report of every model's losses and of resamples: ``[c, k, 3 + k]``.

        Args:
            models: ``[k, P]``
            selections: The samples of all clients.
            draws: ``[c]`` a random stream of each client.
            replicates: How many resamples.
        """
        losses = torch.cat([self._losses_by_sample(models, s) for s in selections], dim=1)
        owner = torch.cat([s.owner for s in selections])
        sizes = torch.bincount(owner, minlength=len(draws)).tolist()
        by_client = losses[:, owner.argsort(stable=True)].split(sizes, dim=1)
        reports = [
            compare_losses(part, stream, replicates).pack()
            for part, stream in zip(by_client, draws, strict=True)
        ]
        empty = losses.new_empty(0, len(models), 3 + len(models))
        return torch.cat([empty, *reports])

    def shares(
        self,
        models: Tensor | Mixture,
        samples: Samples,
        clients: Tensor,
        num_groups: int = 1,
    ) -> Tensor:
        """Return the share of each client's samples that each model accounts for: ``[c, k, g]``.

        Args:
            models: ``[k, P]``, or the clients' mixtures.
            samples: All samples.
            clients: ``[c]``
            num_groups: g, to tell shares by label modulo g.
        """
        owner, index = all_samples(samples, clients)
        if isinstance(models, Mixture):
            log_weights = self._log_weights(models, clients)[owner]
            rows = models.models
            shares = (log_weights + self._log_likelihoods(models, samples, index).T).softmax(1)
        else:
            rows = models
            best = self._loss_table(rows, samples, index).argmin(0)
            shares = functional.one_hot(best, len(rows)).double()
        cells = owner * num_groups + label_groups(samples, index, num_groups)
        sums = shares.new_zeros(len(clients) * num_groups, len(rows)).index_add_(0, cells, shares)
        sums = sums.view(len(clients), num_groups, len(rows)).transpose(1, 2)
        return (sums / samples.sizes[clients].view(-1, 1, 1)).to(rows.dtype)

    @torch.no_grad()
    def posterior(
        self, posterior: Posterior, samples: Samples, clients: Tensor
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Return a function from entries [c] and positions of samples [s, c, b] to weights."""
        mixture, component = posterior.mixture, posterior.component
        count = len(mixture.models)
        require(
            component.shape == clients.shape
            and bool(((component >= 0) & (component < count)).all()),
            f"component must name one of {count} models for each of {len(clients)} clients",
        )
        log_weights = self._log_weights(mixture, clients)
        component = component.to(self._device)
        _, index = all_samples(samples, clients.unique())
        table = torch.zeros(count, len(samples.x), dtype=torch.float64, device=self._device)
        table[:, index] = self._log_likelihoods(mixture, samples, index)

        def weigh(entries: Tensor, positions: Tensor) -> Tensor:
            logits = log_weights[entries].T[:, None, :, None] + table[:, positions]
            chosen = component[entries].view(1, 1, -1, 1).expand(1, *positions.shape)
            return logits.softmax(0).gather(0, chosen)[0].to(self._network.layout.dtype)

        return weigh

    def scores(self, models: Tensor, samples: Samples, clients: Tensor) -> ClientScores:
        """Return loss and accuracy of each client's model ``[c, P]``."""
        sums = torch.zeros(2, len(clients), dtype=torch.float64, device=self._device)
        self._network.eval()
        order = samples.sizes[clients].argsort(stable=True)
        with matmul_precision(self._network.precision):
            for block in order.split(self._models_per_pass):
                state = self._network.layout.unstack(models[block.to(models.device)])
                state = {name: t.to(self._device) for name, t in state.items()}
                for x, y, inside in self.padded(samples, clients[block]):
                    outputs = self._network.outputs(state, x)
                    values = self._loss_and_correct(outputs.flatten(0, 1), y.flatten(0, 1))
                    values = values.view(2, len(block), -1) * inside
                    sums[:, block] += values.double().sum(-1)
        return _scores(sums, samples, clients)

    def mixture_scores(self, mixture: Mixture, samples: Samples, clients: Tensor) -> ClientScores:
        """Return loss and accuracy of each client's mixture."""
        log_weights = self._log_weights(mixture, clients)
        owner, index = all_samples(samples, clients)
        sums = torch.zeros(2, len(clients), dtype=torch.float64, device=self._device)
        self._network.eval()
        models = mixture.models.to(self._device)
        states = [self._network.layout.unstack(row.unsqueeze(0)) for row in models]
        with matmul_precision(self._network.precision):
            for part in _slices(len(index), self._samples_per_pass(1)):
                x, y = samples.x[index[part]], samples.y[index[part]]
                outputs = torch.cat([self._network.outputs(s, x.unsqueeze(0)) for s in states])
                outputs = outputs.double()
                weights = log_weights[owner[part]].T
                weights = weights.view(len(states), -1, *[1] * (outputs.ndim - 2))
                mixed = mixed_outputs(outputs, weights, self._network.loss is cross_entropy)
                sums.index_add_(1, owner[part], self._loss_and_correct(mixed, y).double())
        return _scores(sums, samples, clients)

    def padded(
        self, samples: Samples, clients: Tensor, in_one_pass: bool = False
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield inputs and targets ``[c, n, ...]`` of some clients, and which of them are real."""
        sizes, offsets = samples.sizes[clients], samples.offsets[clients]
        if not len(clients):
            return
        positions = torch.arange(int(sizes.max()), device=self._device)
        per_pass = self._samples_per_pass(len(clients))
        for position in [positions] if in_one_pass else positions.split(per_pass):
            inside = position < sizes.unsqueeze(-1)
            index = torch.minimum(position, sizes.unsqueeze(-1) - 1) + offsets.unsqueeze(-1)
            yield samples.x[index], samples.y[index], inside.to(self._network.layout.dtype)

    def _samples_per_pass(self, models: int) -> int:
        return max(1, self._outputs // (self._activations * models))

    @property
    def _models_per_pass(self) -> int:
        row_size = self._network.layout.length * self._network.layout.dtype.itemsize
        return max(1, self._row_bytes // row_size) if self._together else 1

    def _sample_losses(
        self, models: Tensor, samples: Samples, index: Tensor
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield the losses [r, s] of some models (a slice) on some samples (a slice of index)."""
        for rows, part, state in self._passes(models, index, self._activations):
            x, y = samples.x[index[part]], samples.y[index[part]]
            with matmul_precision(self._network.precision):
                losses = self._network.losses_of_all(state, x, y)
            yield rows, part, losses

    def _sample_logits(
        self, models: Tensor, samples: Samples, index: Tensor, num_classes: int
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield the logits [r, s, C] of some models on some samples, with room for three more."""
        for rows, part, state in self._passes(models, index, self._activations + 3 * num_classes):
            with matmul_precision(self._network.precision):
                logits = self._network.outputs_of_all(state, samples.x[index[part]])
            yield rows, part, logits

    def _passes(
        self, models: Tensor, index: Tensor, numbers: int
    ) -> Iterator[tuple[slice, slice, State]]:
        """Yield some models (a slice, and their state) and some samples (a slice of index).

        ``numbers`` is the memory that a sample takes for each model.
        """
        self._network.eval()
        for rows in _slices(len(models), self._models_per_pass):
            state = self._network.layout.unstack(models[rows].to(self._device))
            per_pass = max(1, self._outputs // (numbers * len(models[rows])))
            for part in _slices(len(index), per_pass):
                yield rows, part, state

    def _loss_table(self, models: Tensor, samples: Samples, index: Tensor) -> Tensor:
        """Return the loss of every model on each sample: ``[k, n]``.

        The last table is cached: FedEM asks for it once for shares and once for training.
        """
        if self._cache is not None:
            cached_models, cached_index, table = self._cache
            same_device = cached_models.device == models.device
            if (
                same_device
                and torch.equal(cached_index, index)
                and torch.equal(cached_models, models)
            ):
                return table
        table = self._losses_by_sample(models, Selection(samples, index, index))
        self._cache = (models.clone(), index, table)
        return table

    def _log_likelihoods(self, mixture: Mixture, samples: Samples, index: Tensor) -> Tensor:
        """Return ``-loss`` of every model on each sample, less that of its class: ``[k, n]``."""
        values, shares = -self._loss_table(mixture.models, samples, index), mixture.class_shares
        if shares is None:
            return values
        groups = label_groups(samples, index, shares.shape[1])
        return values - shares.to(values).log()[:, groups]

    def _losses_by_sample(self, models: Tensor, chosen: Selection) -> Tensor:
        """Return the loss of every model on each sample: ``[k, n]``, in double precision."""
        count = len(chosen.index)
        table = torch.empty(len(models), count, dtype=torch.float64, device=self._device)
        for rows, part, losses in self._sample_losses(models, chosen.samples, chosen.index):
            table[rows, part] = losses.double()
        return table

    def _outputs_by_sample(
        self, row: Tensor, selections: Sequence[Selection]
    ) -> tuple[Tensor, Tensor]:
        """Return a model's outputs ``[n, d]`` on each sample, and the group of each ``[n]``."""
        self._network.eval()
        state = self._network.layout.unstack(row.unsqueeze(0).to(self._device))
        values, groups = [], []
        with matmul_precision(self._network.precision):
            for chosen in selections:
                for part in _slices(len(chosen.index), self._samples_per_pass(1)):
                    x = chosen.samples.x[chosen.index[part]]
                    outputs = self._network.outputs(state, x.unsqueeze(0))[0].double()
                    predicts = self._network.loss is cross_entropy and outputs.ndim == 2
                    values.append(outputs.log_softmax(1) if predicts else outputs.flatten(1))
                    zeros = torch.zeros(len(x), dtype=torch.int64, device=self._device)
                    groups.append(outputs.argmax(1) if predicts else zeros)
        return torch.cat(values), torch.cat(groups)

    def _log_weights(self, mixture: Mixture, clients: Tensor) -> Tensor:
        expected = (len(clients), len(mixture.models))
        require(
            tuple(mixture.weights.shape) == expected,
            f"{len(clients)} clients and {len(mixture.models)} models need weights of shape "
            f"{expected}, not {tuple(mixture.weights.shape)}",
        )
        return mixture.weights.to(self._device).double().log()

    def _loss_and_correct(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return loss and correctness of each sample, NaN if it is not defined: ``[2, n]``."""
        losses = self._network.loss(outputs, y)
        share = correct(outputs, y)
        return torch.stack([losses, torch.full_like(losses, torch.nan) if share is None else share])


def label_groups(samples: Samples, index: Tensor, num_groups: int) -> Tensor:
    """Return the label of each sample modulo a number of groups; 0 if there is one: ``[n]``."""
    return samples.y[index] % num_groups if num_groups > 1 else torch.zeros_like(index)


def all_samples(samples: Samples, clients: Tensor) -> tuple[Tensor, Tensor]:
    """Return owner (a position in ``clients``) and position of every sample of some clients."""
    sizes = samples.sizes[clients]
    owner = torch.arange(len(clients), device=clients.device).repeat_interleave(sizes)
    start = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    position = torch.arange(len(owner), device=clients.device) - start
    return owner, samples.offsets[clients].repeat_interleave(sizes) + position


def count_by_class(
    samples: Samples, num_clients: int, owner: Tensor, index: Tensor, num_classes: int
) -> Tensor:
    """Return the number of samples of each class, by client: ``[c, C]``.

    Args:
        samples: Where the samples are.
        num_clients: c
        owner: ``[n]`` the client of each sample.
        index: ``[n]`` the position of each sample.
        num_classes: C
    """
    cells = owner * num_classes + samples.y[index]
    counts = torch.bincount(cells, minlength=num_clients * num_classes)
    return counts.view(num_clients, num_classes)


def subsampled(
    samples: Samples, clients: Tensor, draws: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """Return owner and position of at most ``size`` samples of each client.

    Args:
        samples: Where the samples are.
        clients: ``[c]``
        draws: ``[c]`` a random stream of each client.
        size: Largest number of samples.
    """
    sizes = samples.sizes[clients]
    position = batches(draws, sizes, size, 1)[:, 0]  # [c, size]
    inside = torch.arange(size, device=clients.device) < sizes.unsqueeze(-1)
    owner = torch.arange(len(clients), device=clients.device).unsqueeze(-1).expand_as(position)
    return owner[inside], (position + samples.offsets[clients].unsqueeze(-1))[inside]


def _slices(count: int, size: int) -> Iterator[slice]:
    yield from (slice(start, start + size) for start in range(0, count, size))


def _scores(sums: Tensor, samples: Samples, clients: Tensor) -> ClientScores:
    n = samples.sizes[clients]
    loss, accuracy = sums / n
    classes = not samples.y.is_floating_point() and not bool(accuracy[n > 0].isnan().all())
    return ClientScores(loss.cpu(), accuracy.cpu() if classes else None, n.cpu())
