"""What a shard does in a round: train, and reduce its rows as far as that goes without others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.outliers import change_lengths, norm_bound, scales_to, shorten_changes
from srfca.aggregation.rules import Aggregation
from srfca.engine.simulation import Simulation
from srfca.federation.local_training import LocalTraining
from srfca.federation.replies import Clients
from srfca.federation.requests import Gradients, Train
from srfca.random import Key

Block = tuple[Sequence[int], int, int]
"""Clusters, and the first and the last coordinate (exclusive)."""
_BLOCK = 2**22
"""Numbers that are summed in double precision at once."""


@dataclass(frozen=True)
class Participants:
    """The clients of a shard that take part in a round, cluster by cluster.

    Args:
        clients: ``[c]`` their positions in the shard.
        counts: ``[k]`` how many of them each cluster has.
        sizes: ``[c]`` the samples that they count with.
    """

    clients: Clients
    counts: NDArray[np.int64]
    sizes: Tensor

    @property
    def labels(self) -> NDArray[np.int64]:
        """The cluster of each, ascending: ``[c]``."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def without(self, positions: NDArray[np.int64]) -> Participants:
        """Return the others than those at some positions."""
        keep = np.ones(len(self.clients), dtype=bool)
        keep[positions] = False
        counts = np.bincount(self.labels[keep], minlength=len(self.counts))
        return Participants(self.clients[keep], counts, self.sizes[torch.from_numpy(keep)])


@dataclass(frozen=True)
class ShardTraining:
    """How the participants of a round train.

    Args:
        models: ``[k, P]`` of the clusters.
        local: How clients train.
        key: The training and its round.
        server_lr: If given, clients compute gradients, and the step is taken along these.
    """

    models: Tensor
    local: LocalTraining
    key: Key
    server_lr: float | None


@dataclass(frozen=True)
class TrainedRows:
    """The rows that the participants of a shard have trained.

    Args:
        rows: ``[c, P]``, cluster by cluster.
        models: ``[k, P]`` that they started from.
        participants: The clients.
    """

    rows: Tensor
    models: Tensor
    participants: Participants

    @property
    def not_finite(self) -> NDArray[np.int64]:
        """The positions of rows that are infinite or NaN."""
        if not self.rows.numel():
            return np.empty(0, dtype=np.int64)
        finite = self.rows.abs().amax(1).isfinite()  # NaN is the largest of all
        return np.flatnonzero(~finite.cpu().numpy())

    def without(self, positions: NDArray[np.int64]) -> TrainedRows:
        """Return the others than the rows at some positions."""
        if not len(positions):
            return self
        keep = np.setdiff1d(np.arange(len(self.rows)), positions)
        rows = self.rows[torch.from_numpy(keep).to(self.rows.device)]
        return replace(self, rows=rows, participants=self.participants.without(positions))

    def lengths(self) -> list[Tensor]:
        """Return the lengths of the changes of each cluster's model: k tensors."""
        parts = zip(self._by_cluster(), self.models, strict=True)
        return [change_lengths(rows, model).cpu() for rows, model in parts]

    def shortened(self, bounds: Sequence[Tensor], lengths: Sequence[Tensor]) -> TrainedRows:
        """Return the rows; changes, of these lengths, are shortened to their cluster's bound."""
        parts = [
            shorten_changes(rows, model, scales_to(bound, of_cluster))
            for rows, model, bound, of_cluster in zip(
                self._by_cluster(), self.models, bounds, lengths, strict=True
            )
        ]
        return replace(self, rows=torch.cat(parts))

    def sums(self, weighted: bool) -> ShardSums:
        """Return the sum of each cluster's rows, weighted by the clients' sizes or not."""
        sizes = self.participants.sizes.double().to(self.rows.device)
        weights = sizes if weighted else torch.ones_like(sizes)
        sums = [
            _weighted_sum(rows, part)
            for rows, part in zip(
                self._by_cluster(), weights.split(self.participants.counts.tolist()), strict=True
            )
        ]
        labels = torch.from_numpy(self.participants.labels)
        of_cluster = torch.zeros(len(self.models), dtype=torch.float64)
        return ShardSums(
            torch.stack(sums).cpu(), of_cluster.index_add(0, labels, weights.cpu()),
        )  # fmt: skip

    def part(self, clusters: Sequence[int], start: int, stop: int) -> list[ClusterPart]:
        """Return some coordinates of the rows of some clusters."""
        rows = self._by_cluster()
        sizes = self.participants.sizes.split(self.participants.counts.tolist())
        return [
            ClusterPart(rows[cluster][:, start:stop].cpu().contiguous(), sizes[cluster])
            for cluster in clusters
        ]

    def _by_cluster(self) -> tuple[Tensor, ...]:
        parts: tuple[Tensor, ...] = self.rows.split(self.participants.counts.tolist())
        return parts


@dataclass(frozen=True)
class ShardSums:
    """Sums over the clients of a shard, in double precision.

    Args:
        sums: ``[k, P]`` of rows times weights.
        weights: ``[k]``
    """

    sums: Tensor
    weights: Tensor

    def __add__(self, other: ShardSums) -> ShardSums:
        return ShardSums(self.sums + other.sums, self.weights + other.weights)

    @property
    def together(self) -> ShardSums:
        """The sums over all clusters, as those of one."""
        return ShardSums(self.sums.sum(0, keepdim=True), self.weights.sum(0, keepdim=True))

    def means(self, models: Tensor) -> Tensor:
        """Return the means ``[k, P]``; a cluster without weight keeps its model ``[k, P]``."""
        weights = self.weights.unsqueeze(1)
        means = (self.sums / weights).to(models.dtype)
        return torch.where(weights > 0, means, models.cpu())


@dataclass(frozen=True)
class ClusterPart:
    """Coordinates of the rows of one cluster's clients in one shard.

    Args:
        rows: ``[c, p]``
        sizes: ``[c]``
    """

    rows: Tensor
    sizes: Tensor


def train(
    simulation: Simulation, training: ShardTraining, participants: Participants
) -> TrainedRows:
    """Train the participants of a shard."""
    labels = torch.from_numpy(participants.labels)
    models = training.models
    starts = models.expand(len(labels), -1) if len(models) == 1 else models[labels]
    if training.server_lr is None:
        request = Train(participants.clients, starts, training.local, training.key)
        rows = simulation.ask(request).values
    else:
        rate = replace(training.local, lr=training.server_lr).rate(training.key.round)
        gradients = simulation.ask(Gradients(participants.clients, starts)).values
        rows = starts.to(gradients) - rate * gradients
    return TrainedRows(rows, models.to(rows.device), participants)


def change_bounds(shards: Sequence[Sequence[Tensor]], max_change: float) -> list[Tensor]:
    """Return the bound on the changes of each cluster's model.

    Args:
        shards: The ``lengths`` of each shard.
        max_change: The limit, in multiples of the cluster's median.
    """
    clusters = (torch.cat(parts) for parts in zip(*shards, strict=True))
    return [norm_bound(lengths, max_change) for lengths in clusters]


def aggregate_parts(
    shards: Sequence[Sequence[ClusterPart]],
    models: Tensor,
    aggregation: Aggregation,
    shared: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Aggregate coordinates of the rows of some clusters.

    Args:
        shards: A part for each cluster, from each shard, in the order of the shards.
        models: ``[k, p]`` of these clusters; one without rows keeps its model.
        aggregation: How rows become one row.
        shared: Whether all rows are also aggregated together.

    Returns:
        ``[k, p]``, and if asked for what all rows together give: ``[p]``.
    """
    clusters = [
        (torch.cat([part.rows for part in parts]), torch.cat([part.sizes for part in parts]))
        for parts in zip(*shards, strict=True)
    ]
    means = [
        aggregation(rows, sizes) if len(rows) else model
        for (rows, sizes), model in zip(clusters, models, strict=True)
    ]
    if not shared:
        return torch.stack(means), None
    everything = torch.cat([rows for rows, _ in clusters])
    sizes = torch.cat([sizes for _, sizes in clusters])
    common = aggregation(everything, sizes) if len(everything) else models[0]
    return torch.stack(means), common


def _weighted_sum(rows: Tensor, weights: Tensor) -> Tensor:
    """Return the sum of rows ``[c, P]`` times weights ``[c]``, in double precision: ``[P]``."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    length = max(1, _BLOCK // max(1, rows.shape[1]))
    for part, of_part in zip(rows.split(length), weights.split(length), strict=True):
        total += of_part @ part.double()
    return total
