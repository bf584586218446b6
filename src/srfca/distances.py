"""Distances between models: of two clients, of a client and a cluster, of two clusters.

All three are the same question about two ``Side``s: models, and the clients whose data stand for
them. A client's model stands on its own data, a cluster's on the data of its clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import InputError, require, unknown
from srfca.federation.base import Federation


@dataclass(frozen=True)
class Side:
    """k models ``[k, P]`` with the clients that stand for each: ``members`` is ``[k, m]``."""

    federation: Federation
    models: Tensor
    members: Tensor

    @classmethod
    def clients(cls, federation: Federation, models: Tensor) -> Side:
        """Every client with a model of its own."""
        return cls(federation, models, torch.eye(len(models), dtype=torch.bool))

    @classmethod
    def clusters(cls, federation: Federation, models: Tensor, partition: Partition) -> Side:
        """Every cluster with its model and its clients."""
        return cls(federation, models, torch.as_tensor(partition.membership()))

    @cached_property
    def losses(self) -> Tensor:
        """``[k, m]`` loss of each model on each client's training data."""
        every: Sequence[int] = range(len(self.federation.clients))
        return self.federation.losses(self.models, every).cpu().double()

    def loss_on(self, other: Side) -> Tensor:
        """``[k, l]`` loss of each model on the other side's data: the mean over its clients."""
        weights = other.members.double()
        return self.losses @ (weights / weights.sum(1, keepdim=True)).T


Distance = Callable[[Side, Side], np.ndarray]
"""From two sides of k and l models to ``[k, l]`` distances."""


def lq(q: float) -> Distance:
    """The l_q norm of the difference of two models, q >= 1."""
    require(q >= 1, f"l_q needs q >= 1, not {q}")

    def distance(a: Side, b: Side) -> np.ndarray:
        return torch.cdist(a.models.double(), b.models.double(), p=q).cpu().numpy()

    return distance


def cosine(a: Side, b: Side) -> np.ndarray:
    """One minus the cosine of the angle between two models."""
    u, v = (torch.nn.functional.normalize(s.models.double(), dim=1) for s in (a, b))
    return (1 - u @ v.T).cpu().numpy()


def cross_loss(a: Side, b: Side) -> np.ndarray:
    """The mean of the loss of a's model on b's data and of b's model on a's data."""
    return ((a.loss_on(b) + b.loss_on(a).T) / 2).numpy()


def one_sided_loss(a: Side, b: Side) -> np.ndarray:
    """The loss of b's model on a's data alone: nobody but b's owner has to send a model."""
    return b.loss_on(a).T.numpy()


DISTANCES: dict[str, Distance] = {
    "cross_loss": cross_loss,
    "one_sided_loss": one_sided_loss,
    "cosine": cosine,
    "l1": lq(1),
    "l2": lq(2),
    "linf": lq(float("inf")),
}


def distance_named(name: str | Distance) -> Distance:
    """A distance by name: one of ``DISTANCES``, or ``l3``, ``l1.5``, ... for any l_q."""
    if not isinstance(name, str):
        return name
    if name in DISTANCES:
        return DISTANCES[name]
    try:
        return lq(float(name.removeprefix("l")))
    except InputError:
        raise
    except ValueError:
        raise unknown("distance", name, [*DISTANCES, "l3"]) from None
