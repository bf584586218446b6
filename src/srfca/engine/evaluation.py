"""How models do on clients' data: losses, shares of samples, scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from srfca.data.clients import Samples
from srfca.errors import require
from srfca.federation.base import Focus, Mixture, Scores
from srfca.federation.loss import cross_entropy, right
from srfca.federation.network import Network, arithmetic
from srfca.random import batches


class Evaluation:
    """Passes of a network over clients' data, in parts that the memory allows.

    Args:
        network: What is evaluated.
        activations: Numbers that the layers put out for one sample.
        together: Whether several models go through one pass.
        device: Where the passes are made.
    """

    def __init__(
        self, network: Network, activations: int, together: bool, device: torch.device
    ) -> None:
        self._network, self._device = network, device
        self._activations, self._together = activations, together
        gpu = device.type == "cuda"
        self._row_bytes = 2**30 if gpu else 2**24
        self._outputs = 2**30 if gpu else 2**25
        self._table: tuple[Tensor, Tensor, Tensor] | None = None

    def shrink(self) -> bool:
        """Make passes half as large; False if they are as small as can be."""
        self._row_bytes, self._outputs = self._row_bytes // 2, self._outputs // 2
        return self._outputs > self._activations

    def losses(
        self, models: Tensor, samples: Samples, clients: int, owner: Tensor, index: Tensor
    ) -> Tensor:
        """``[k, c]`` mean loss of every model on the samples at ``index`` [n] of each owner [n]."""
        sums = torch.zeros(len(models), clients, dtype=torch.float64, device=self._device)
        for rows, part, found in self._sample_losses(models, samples, index):
            sums[rows].index_add_(1, owner[part], found.double())
        return (sums / torch.bincount(owner, minlength=clients)).to(models.dtype)

    def shares(
        self, models: Tensor | Mixture, samples: Samples, who: Tensor, owner: Tensor, index: Tensor
    ) -> Tensor:
        """``[c, k]`` the share of each client's samples that each model accounts for."""
        if isinstance(models, Mixture):
            logs = self._log_weights(models, who)[owner]
            rows = models.models
            found = (logs - self._loss_table(rows, samples, index).T).softmax(1)
        else:
            rows = models
            least = self._loss_table(rows, samples, index).argmin(0)
            found = functional.one_hot(least, len(rows)).double()
        sums = torch.zeros(len(who), len(rows), dtype=torch.float64, device=self._device)
        sums.index_add_(0, owner, found)
        return (sums / samples.sizes[who].unsqueeze(1)).to(rows.dtype)

    @torch.no_grad()
    def posterior(
        self, focus: Focus, samples: Samples, who: Tensor
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """The weights of the samples at given places [s, c, b], for some of the clients ``who``."""
        count = len(focus.mixture.models)
        require(
            focus.component.shape == who.shape
            and bool(((focus.component >= 0) & (focus.component < count)).all()),
            f"component must name one of {count} models for each of {len(who)} clients",
        )
        logs = self._log_weights(focus.mixture, who)
        component = focus.component.to(self._device)
        _, index = all_samples(samples, who.unique())
        table = torch.zeros(count, len(samples.x), dtype=torch.float64, device=self._device)
        table[:, index] = self._loss_table(focus.mixture.models, samples, index)

        def weigh(some: Tensor, at: Tensor) -> Tensor:
            posterior = (logs[some].T[:, None, :, None] - table[:, at]).softmax(0)  # [k, s, c, b]
            own = component[some].view(1, 1, -1, 1).expand(1, *at.shape)
            return posterior.gather(0, own)[0].to(self._network.layout.dtype)

        return weigh

    def scores(self, models: Tensor, samples: Samples, who: Tensor) -> Scores:
        """Loss and accuracy of each client's own row ``[c, P]``."""
        sums = torch.zeros(2, len(who), dtype=torch.float64, device=self._device)
        self._network.module.eval()
        order = samples.sizes[who].argsort(stable=True)
        with arithmetic(self._network.precision):
            for block in order.split(self._models_at_once):
                state = self._network.layout.unstack(models[block.to(models.device)])
                state = {name: t.to(self._device) for name, t in state.items()}
                for x, y, inside in self.padded(samples, who[block]):
                    outputs = self._network.outputs(state, x)
                    found = self._loss_and_right(outputs.flatten(0, 1), y.flatten(0, 1))
                    found = found.view(2, len(block), -1) * inside
                    sums[:, block] += found.double().sum(-1)
        return _scores(sums, samples, who)

    def mixture_scores(self, mixture: Mixture, samples: Samples, who: Tensor) -> Scores:
        """Loss and accuracy of each client's mixture."""
        logs = self._log_weights(mixture, who)
        owner, index = all_samples(samples, who)
        sums = torch.zeros(2, len(who), dtype=torch.float64, device=self._device)
        self._network.module.eval()
        states = [self._network.layout.unstack(row.unsqueeze(0)) for row in mixture.models]
        with arithmetic(self._network.precision):
            for part in _slices(len(index), self._at_once(1)):
                x, y = samples.x[index[part]], samples.y[index[part]]
                outputs = torch.cat([self._network.outputs(s, x.unsqueeze(0)) for s in states])
                outputs = outputs.double()
                weights = logs[owner[part]].T.view(len(states), -1, *[1] * (outputs.ndim - 2))
                if self._network.loss is cross_entropy:
                    mixed = (outputs.log_softmax(2) + weights).logsumexp(0)
                else:
                    mixed = (outputs * weights.exp()).sum(0)
                sums.index_add_(1, owner[part], self._loss_and_right(mixed, y).double())
        return _scores(sums, samples, who)

    def padded(
        self, samples: Samples, who: Tensor, whole: bool = False
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All samples of some clients, ``[c, n, ...]`` at a time, and which of them are real."""
        sizes, offsets = samples.sizes[who], samples.offsets[who]
        places = torch.arange(int(sizes.max()), device=self._device)
        for place in [places] if whole else places.split(self._at_once(len(who))):
            inside = place < sizes.unsqueeze(-1)
            at = torch.minimum(place, sizes.unsqueeze(-1) - 1) + offsets.unsqueeze(-1)
            yield samples.x[at], samples.y[at], inside.to(self._network.layout.dtype)

    @property
    def _row_size(self) -> int:
        return self._network.layout.length * self._network.layout.dtype.itemsize

    def _at_once(self, models: int) -> int:
        """How many samples go through ``models`` models in one pass."""
        return max(1, self._outputs // (self._activations * models))

    @property
    def _models_at_once(self) -> int:
        """How many models go through one pass."""
        return max(1, self._row_bytes // self._row_size) if self._together else 1

    def _sample_losses(
        self, models: Tensor, samples: Samples, index: Tensor
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        """Losses [r, s] of the models ``rows`` on the samples ``index[part]``, part by part."""
        self._network.module.eval()
        for rows in _slices(len(models), self._models_at_once):
            state = self._network.layout.unstack(models[rows].to(self._device))
            for part in _slices(len(index), self._at_once(len(models[rows]))):
                x, y = samples.x[index[part]], samples.y[index[part]]
                with arithmetic(self._network.precision):
                    found = self._network.losses_of_all(state, x, y)
                yield rows, part, found

    def _loss_table(self, models: Tensor, samples: Samples, index: Tensor) -> Tensor:
        """The loss of every model on each of the samples at ``index`` [n]: ``[k, n]``.

        The last one is kept: clients are asked for the same once more when they train.
        """
        if self._table is not None:
            of_models, at, table = self._table
            if torch.equal(at, index) and torch.equal(of_models, models):
                return table
        table = torch.empty(len(models), len(index), dtype=torch.float64, device=self._device)
        for rows, part, found in self._sample_losses(models, samples, index):
            table[rows, part] = found.double()
        self._table = (models.clone(), index, table)
        return table

    def _log_weights(self, mixture: Mixture, who: Tensor) -> Tensor:
        expected = (len(who), len(mixture.models))
        require(
            tuple(mixture.weights.shape) == expected,
            f"{len(who)} clients and {len(mixture.models)} models need weights of shape "
            f"{expected}, not {tuple(mixture.weights.shape)}",
        )
        return mixture.weights.to(self._device).double().log()

    def _loss_and_right(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample, and how much of it is right, NaN if not known: ``[2, n]``."""
        losses = self._network.loss(outputs, y)
        share = right(outputs, y)
        return torch.stack([losses, torch.full_like(losses, torch.nan) if share is None else share])


def all_samples(samples: Samples, who: Tensor) -> tuple[Tensor, Tensor]:
    """For every sample of some clients: whose it is (a place in ``who``), and where it lies."""
    sizes = samples.sizes[who]
    owner = torch.arange(len(who), device=who.device).repeat_interleave(sizes)
    start = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    place = torch.arange(len(owner), device=who.device) - start
    return owner, samples.offsets[who].repeat_interleave(sizes) + place


def some_samples(samples: Samples, who: Tensor, own: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The same for at most so many samples of each, drawn by its random stream ``own`` [c]."""
    sizes = samples.sizes[who]
    place = batches(own, sizes, most, 1)[:, 0]  # [c, most]
    inside = torch.arange(most, device=who.device) < sizes.unsqueeze(-1)
    owner = torch.arange(len(who), device=who.device).unsqueeze(-1).expand_as(place)
    return owner[inside], (place + samples.offsets[who].unsqueeze(-1))[inside]


def _slices(count: int, size: int) -> Iterator[slice]:
    yield from (slice(start, start + size) for start in range(0, count, size))


def _scores(sums: Tensor, samples: Samples, who: Tensor) -> Scores:
    n = samples.sizes[who]
    loss, accuracy = sums / n
    classes = not samples.y.is_floating_point() and not bool(accuracy[n > 0].isnan().all())
    return Scores(loss.cpu(), accuracy.cpu() if classes else None, n.cpu())
