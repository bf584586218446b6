"""Clusters and their models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.replies import Clients, ClientScores


@dataclass(frozen=True, eq=False)
class Clusters:
    """A partition and the model of each of its clusters, always in the same order.

    Args:
        partition: Which client is in which cluster.
        models: ``[k, P]``
        midway: How the clients' models did on held-out data after a part of the training, if that
            was measured: ``[m]``.
        averaged: Whether a model is an average of others, and has not been trained since.
        individual_models: ``[m, P]``, if each client fine-tuned its cluster's model.
        rounds_done: Rounds of TrimmedMeanGD that the models have been trained for.
    """

    partition: Partition
    models: Tensor
    midway: ClientScores | None = None
    averaged: bool = False
    individual_models: Tensor | None = None
    rounds_done: int = 0

    @classmethod
    def of(cls, labels: NDArray[np.int64], models: Tensor) -> Clusters:
        """Return clusters from labels that number the models, or are -1.

        A model without clients disappears, and clusters are renumbered together with their models.
        """
        partition = Partition(labels)
        return cls(partition, models[[int(labels[members[0]]) for members in partition]])

    @classmethod
    def untrained(cls, partition: Partition, model: Tensor) -> Clusters:
        """Return clusters that all have the same model ``[P]``."""
        return cls(partition, model.expand(partition.num_clusters, -1))

    @property
    def client_models(self) -> Tensor:
        """``[c, P]`` the model of each client that is in a cluster, in order."""
        labels = self.partition.labels
        if self.individual_models is not None:
            return self.individual_models[torch.tensor(labels >= 0, device=self.models.device)]
        return self.models[torch.tensor(labels[labels >= 0], device=self.models.device)]

    def relabel(self, labels: NDArray[np.int64]) -> Clusters:
        """Return the same models with other clients in the clusters."""
        clusters = Clusters.of(labels, self.models)
        return replace(clusters, midway=self.midway, averaged=self.averaged)

    def without(self, clients: Clients) -> Clusters:
        """Return the clusters without some clients; all clients if a cluster had no others."""
        labels = self.partition.labels.copy()
        labels[clients] = -1
        clusters = self.relabel(labels)
        return clusters if clusters.partition.num_clusters == len(self.models) else self

    def with_members_of(self, other: Clusters) -> Clusters:
        """Return these models with the clients of the clusters that these are a part of.

        Args:
            other: The clusters with all of their clients (``without``).
        """
        labels, kept = other.partition.labels, self.partition.labels
        number = np.full(len(other.models) + 1, -1)
        number[labels[kept >= 0]] = kept[kept >= 0]
        return Clusters.of(number[labels], self.models)

    def drop_smaller_than(self, min_size: int) -> Clusters:
        """Return the clusters of at least ``min_size`` clients, or all if none is that large.

        The clients of the others become unclustered.
        """
        kept = self.partition.drop_smaller_than(min_size)
        if kept.num_clusters in (0, self.partition.num_clusters):
            return self
        labels = np.where(kept.labels >= 0, self.partition.labels, -1)
        return self.relabel(labels)

    def with_alone(self, clients: Clients, models: Tensor) -> Clusters:
        """Return the clusters with some clients in clusters of their own.

        Args:
            clients: ``[c]``
            models: ``[c, P]``
        """
        if not len(clients):
            return self
        labels, models = self.partition.labels.copy(), models.to(self.models)
        labels[clients] = len(self.models) + np.arange(len(clients))
        individual_models = self.individual_models
        if individual_models is not None:
            index = torch.as_tensor(clients, device=models.device)
            individual_models = individual_models.index_copy(0, index, models)
        return replace(
            Clusters.of(labels, torch.cat([self.models, models])),
            midway=self.midway,
            individual_models=individual_models,
        )


def onto_ball(models: Tensor, center: Tensor, diameter: float) -> Tensor:
    """Return the nearest points ``[k, P]`` of the ball of this diameter around ``center``."""
    offset = models - center
    norm = offset.norm(dim=1, keepdim=True).clamp(min=torch.finfo(models.dtype).tiny)
    return torch.as_tensor(center + offset * (diameter / 2 / norm).clamp(max=1.0))
