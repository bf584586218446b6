"""Distances between models: of two clients, of a client and a cluster, of two clusters.

All three are the same question about two ``Side``s: models, and the clients whose data stand for
them. A client's model stands on its own data, a cluster's on the data of its clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import InputError, require, unknown
from srfca.federation.base import Federation, Sample
from srfca.random import Key, client_words, streams

Indices = NDArray[np.int64]

_BLOCK = 2**23
"""Numbers of two sets of models whose differences are taken at once."""


@dataclass(frozen=True)
class Side:
    """k models ``[k, P]``, and the clients whose data stand for each of them."""

    federation: Federation
    models: Tensor
    who: Indices
    """``[n]`` the clients."""
    stand_for: Indices
    """``[n]`` the model that each of them stands for."""
    sample: Sample | None = None
    """Losses are measured on so many of each client's samples, or on all."""
    _known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def clients(cls, federation: Federation, models: Tensor, sample: Sample | None = None) -> Side:
        """Every client with a model of its own."""
        every = np.arange(len(models))
        return cls(federation, models, every, every, sample)

    @classmethod
    def clusters(
        cls,
        federation: Federation,
        models: Tensor,
        partition: Partition,
        most: int | None = None,
        sample: Sample | None = None,
    ) -> Side:
        """Every cluster with its model and its clients, or ``most`` of them, always the same."""
        who = np.flatnonzero(partition.labels >= 0)
        if most is not None:
            lots = streams(Key(0, "stand"), client_words(federation.clients)).numpy()
            who = np.sort(np.concatenate([c[np.argsort(lots[c])[:most]] for c in partition]))
        return cls(federation, models, who, partition.labels[who], sample)

    def take(self, which: Indices) -> Side:
        """Some of the models, each with the client of the same number that stands for it."""
        return replace(
            self, models=self.models[which], who=self.who[which], stand_for=np.arange(len(which)),
            _known={},
        )  # fmt: skip

    def losses_on(self, clients: Indices) -> Tensor:
        """``[k, c]`` loss of each model on each client's training data; what is known is kept.

        A client that did not answer is asked again the next time.
        """
        columns = self._known.setdefault("columns", {})
        known = self._known.setdefault("losses", self.models.new_empty(len(self.models), 0).cpu())
        new = [client for client in clients.tolist() if client not in columns]
        if new:
            found = self.federation.losses(self.models, new, sample=self.sample).cpu()
            columns.update({client: known.shape[1] + i for i, client in enumerate(new)})
            known = self._known["losses"] = torch.cat([known, found], dim=1)
        losses: Tensor = known[:, [columns[c] for c in clients.tolist()]]
        for client in clients[losses.isnan().all(0).numpy()].tolist():
            del columns[client]
        return losses

    def loss_on(self, other: Side) -> Tensor:
        """``[k, l]`` loss of each model on the other side's data: the mean over its clients.

        Over those that answered; NaN if nobody did.
        """
        clients, place = np.unique(other.who, return_inverse=True)
        stand_for, count = torch.tensor(other.stand_for), len(other.models)
        losses = self.losses_on(clients).double()[:, torch.tensor(place)]
        nothing = losses.new_zeros(len(losses), count)
        known = nothing.index_add(1, stand_for, (~losses.isnan()).double())
        shares = (losses / known[:, stand_for]).masked_fill(losses.isnan(), 0.0)
        return nothing.index_add(1, stand_for, shares).masked_fill(known == 0, torch.nan)


Distance = Callable[[Side, Side], np.ndarray]
"""From two sides of k and l models to ``[k, l]`` distances."""


def lq(q: float) -> Distance:
    """The l_q norm of the difference of two models, q >= 1."""
    require(q >= 1, f"l_q needs q >= 1, not {q}")

    def distance(a: Side, b: Side) -> np.ndarray:
        return norms(a.models, b.models, q).cpu().numpy()

    return distance


def norms(a: Tensor, b: Tensor, q: float, block: int | None = None) -> Tensor:
    """The l_q norms ``[k, l]`` of the differences of rows ``[k, P]`` and ``[l, P]``, in float64.

    ``block`` coordinates at a time: the rows are never copied whole.
    """
    block = block or max(1, _BLOCK // (len(a) + len(b)))
    parts = (
        torch.cdist(u.double(), v.double(), p=q)
        for u, v in zip(a.split(block, 1), b.split(block, 1), strict=True)
    )
    if q == torch.inf:
        return reduce(torch.maximum, parts)
    return reduce(torch.add, (part**q for part in parts)) ** (1 / q)


def cosine(a: Side, b: Side) -> np.ndarray:
    """One minus the cosine of the angle between two models."""
    u, v = (torch.nn.functional.normalize(s.models.double(), dim=1) for s in (a, b))
    return (1 - u @ v.T).cpu().numpy()


def cross_loss(a: Side, b: Side) -> np.ndarray:
    """The mean of the loss of a's model on b's data and of b's model on a's data.

    Where one of the two is not known, because a client did not answer, it is the other.
    """
    there, back = a.loss_on(b), b.loss_on(a).T
    there = torch.where(there.isnan(), back, there)
    return ((there + torch.where(back.isnan(), there, back)) / 2).numpy()


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
