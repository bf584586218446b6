"""Clusters and their models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition


@dataclass(frozen=True, eq=False)
class Clusters:
    """A partition and the model of each of its clusters, always in the same order.

    Args:
        partition: Which client is in which cluster.
        models: ``[k, P]``
    """

    partition: Partition
    models: Tensor

    @classmethod
    def of(cls, labels: NDArray[np.int64], models: Tensor) -> Clusters:
        """Return clusters from labels that number the models, or are -1.

        A model without clients disappears, and clusters are renumbered together with their models.
        """
        partition = Partition(labels)
        return cls(partition, models[[int(labels[members[0]]) for members in partition]])

    @property
    def client_models(self) -> Tensor:
        """``[c, P]`` the model of each client that is in a cluster, in order."""
        labels = self.partition.labels
        return self.models[torch.tensor(labels[labels >= 0], device=self.models.device)]

    def relabel(self, labels: NDArray[np.int64]) -> Clusters:
        """Return the same models with other clients in the clusters."""
        return Clusters.of(labels, self.models)


def onto_ball(models: Tensor, center: Tensor, diameter: float) -> Tensor:
    """Return the nearest points ``[k, P]`` of the ball of this diameter around ``center``."""
    offset = models - center
    norm = offset.norm(dim=1, keepdim=True).clamp(min=torch.finfo(models.dtype).tiny)
    return torch.as_tensor(center + offset * (diameter / 2 / norm).clamp(max=1.0))
