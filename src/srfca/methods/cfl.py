"""CFL: Clustered Federated Learning.

Sattler, Mueller, Samek: Clustered Federated Learning: Model-Agnostic Distributed Multi-Task
Optimization under Privacy Constraints. IEEE Transactions on Neural Networks and Learning Systems,
2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.linkage import LINKAGES, agglomerate, groups_seen
from srfca.clustering.partition import Partition
from srfca.errors import InputError, require, unknown
from srfca.methods.base import Answer, Method
from srfca.methods.result import models_of_clients
from srfca.methods.rounds import (
    aggregate_clusters,
    answered,
    everybody,
    plain_mean,
    trained_part,
    weighted_mean,
)
from srfca.methods.run import Run
from srfca.random import Key

_COLUMNS = 2**12
"""Coordinates of the updates that are multiplied at once, in double precision."""


@dataclass(frozen=True)
class Look:
    """What was seen of a cluster after a round, and whether it is split."""

    cluster: int
    mean_norm: float
    """The norm of the mean of the clients' updates."""
    max_norm: float
    """The largest norm of a client's update."""
    alpha_cross_max: float | None = None
    """The largest similarity across the best split, if one was looked for."""
    why: str = ""
    parts: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    """The places of the two parts among the cluster's clients, if it is split."""
    groups: Partition | None = None
    """The groups that its clients' similarities show, if that was asked."""

    def notes(self) -> dict[str, object]:
        """What is written down of it."""
        seen = ("cluster", "mean_norm", "max_norm", "alpha_cross_max", "why")
        return {name: getattr(self, name) for name in seen}


@dataclass(frozen=True, kw_only=True)
class CFL(Method):
    """FedAvg in clusters that are split in two where it stands still while their clients do not.

    Args:
        eps1: A cluster may be split when the norm of its mean update is below this: a number, or
            a percentage of the mean norm of its clients' updates in the same round.
        eps2: It may be split when its largest update is above this: a number, or a percentage of
            the mean norm of all clients' updates in the first round.
        gamma_max: What a split must pass. A number in [0, 1] is the paper's: it must be less than
            ``sqrt((1 - alpha_cross_max) / 2)``. ``auto`` asks whether the similarities show groups,
            the same as in the round before, that it does not cut through.
        warm_up: Rounds before the first split.
        min_size: The least number of clients of a part; ``auto`` sees groups of two or more.
        linkage: How the similarities are cut in two: ``single`` is the optimal bipartition,
            ``complete`` that of the authors' code; also ``average`` and ``ward``.
        weighted: Weigh clients by their samples, else all alike.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "CFL"

    eps1: float | str = "60%"
    eps2: float | str = "20%"
    gamma_max: float | str = "auto"
    warm_up: int = 3
    min_size: int = 2
    linkage: str = "single"
    weighted: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("eps1", "eps2"):
            limit(getattr(self, name), 1.0, name)
        require(
            self.gamma_max == "auto"
            or (isinstance(self.gamma_max, float | int) and 0 <= self.gamma_max <= 1),
            f"gamma_max must be 'auto' or in [0, 1], not {self.gamma_max!r}",
        )
        require(self.warm_up >= 0, f"warm_up must not be negative, but is {self.warm_up}")
        require(self.min_size >= 1, f"min_size must be at least 1, not {self.min_size}")
        if self.linkage not in LINKAGES:
            raise unknown("linkage", self.linkage, LINKAGES)

    def solve(self, run: Run) -> Answer:
        """Train the clusters, and split them."""
        federation, work = run.federation, self.work
        aggregate = weighted_mean if self.weighted else plain_mean
        partition = everybody(federation)
        models = federation.initial(run.seed).unsqueeze(0)
        first, seen = 0.0, dict[bytes, Partition | None]()
        with run.stage("CFL", len(federation.clients) * work.steps) as tick:
            for number in range(work.rounds):
                who = np.flatnonzero(partition.labels >= 0)
                starts = models_of_clients(models, partition.labels[who])
                key = Key(run.seed, "cfl", number)
                rows = federation.fit(starts, who.tolist(), work, key, tick)
                _, here = answered(federation, rows, who, "federated training")
                updates = trained_part(federation, rows - starts)
                first = first or float(updates[np.searchsorted(who, here)].norm(dim=1).mean())
                looks = []
                if number >= self.warm_up:
                    sizes = federation.sizes.to(updates.device)
                    asked = [np.intersect1d(members, here) for members in partition]
                    looks = [
                        self.look(
                            c, updates[np.searchsorted(who, members)], sizes[members], first,
                            seen.get(members.tobytes()), run.seed,
                        )
                        for c, members in enumerate(asked) if len(members)
                    ]  # fmt: skip
                    seen = {asked[x.cluster].tobytes(): x.groups for x in looks}
                before, partition = partition, split(partition, looks, here)
                whole = [int(before.labels[members[0]]) for members in partition]
                models = aggregate_clusters(
                    federation, rows, who, partition.labels[who], models[whole], aggregate
                )
                answer = Answer(partition.labels, models)
                splits = [look.notes() for look in looks if look.parts is not None]
                if splits:
                    notes = {"round": number, "splits": splits}
                    run.record(f"SPLIT {number}", partition, answer.client_models, notes=notes)
        run.record("CFL", partition, answer.client_models)
        return answer

    def look(
        self,
        cluster: int,
        updates: Tensor,
        sizes: Tensor,
        first: float,
        before: Partition | None,
        seed: int,
    ) -> Look:
        """Whether to split a cluster, from its clients' updates ``[J, P]`` and sizes ``[J]``.

        ``first`` is the mean norm of all clients' updates in the first round, ``before`` the groups
        that were seen in this cluster a round ago.
        """
        norms = updates.norm(dim=1)
        aggregate = weighted_mean if self.weighted else plain_mean
        mean_norm, max_norm = float(aggregate(updates, sizes).norm()), float(norms.max())
        least = max(self.min_size, 2) if self.gamma_max == "auto" else self.min_size
        if len(updates) < 2 * least:
            return Look(cluster, mean_norm, max_norm, why="too few clients for two parts")
        if mean_norm >= limit(self.eps1, float(norms.mean()), "eps1"):
            return Look(cluster, mean_norm, max_norm, why="still learning together")
        if max_norm <= limit(self.eps2, first, "eps2"):
            return Look(cluster, mean_norm, max_norm, why="no client has anything left to learn")
        alpha = similarities(updates)
        parts = bipartition(alpha, self.linkage, least)
        cross = float(alpha[np.ix_(*parts)].max())
        if min(len(part) for part in parts) < least:
            return Look(cluster, mean_norm, max_norm, cross, "a part would be too small")
        groups = None
        if isinstance(self.gamma_max, str):
            groups, why = groups_seen(1 - alpha, least, seed)
            worth = groups == before and keeps_whole(parts, groups)
        else:
            bound = float(np.sqrt((1 - cross) / 2))
            worth = self.gamma_max < bound
            why = f"gamma_max {self.gamma_max:.3g} against {bound:.3g}"
        return Look(cluster, mean_norm, max_norm, cross, why, parts if worth else None, groups)


def limit(eps: float | str, reference: float, name: str) -> float:
    """A limit that is a number, or a percentage of a reference."""
    try:
        value = float(eps.removesuffix("%")) if isinstance(eps, str) else float(eps)
    except ValueError:
        value = -1.0
    if not value >= 0 or (isinstance(eps, str) and not eps.endswith("%")):
        raise InputError(f"{name} must be a number or a percentage such as '50%', not {eps!r}")
    return value / 100 * reference if isinstance(eps, str) else value


def similarities(updates: Tensor) -> NDArray[np.float64]:
    """Cosines ``[J, J]`` between updates ``[J, P]``; an update of zero is similar to none."""
    products = torch.zeros(len(updates), len(updates), dtype=torch.float64, device=updates.device)
    for part in updates.split(_COLUMNS, dim=1):
        exact = part.double()
        products += exact @ exact.T
    norms = products.diagonal().sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    alpha = np.clip((products / norms / norms.unsqueeze(1)).cpu().numpy(), -1.0, 1.0)
    np.fill_diagonal(alpha, 1.0)
    return np.asarray((alpha + alpha.T) / 2)


def bipartition(
    alpha: NDArray[np.float64], linkage: str = "single", min_size: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut similarities ``[J, J]`` in two; ``single`` makes the largest one across least.

    A part of less than ``min_size`` is set aside, and the rest cut in its place; in the end those
    that were set aside go with whom they are most similar to.
    """
    rest = np.arange(len(alpha))
    while True:
        cut = agglomerate(1 - alpha[np.ix_(rest, rest)], k=2, linkage=linkage).partition
        small = min(cut, key=len)
        if len(small) >= min_size or len(rest) - len(small) < 2:
            break
        rest = np.delete(rest, small)
    labels = cut.labels[alpha[:, rest].argmax(1)]
    labels[rest] = cut.labels
    parts = Partition(labels)
    return parts.members(0), parts.members(1)


def keeps_whole(parts: tuple[NDArray[np.int64], NDArray[np.int64]], groups: Partition) -> bool:
    """Whether every group lies in one of two parts, and each part has a group."""
    sides = [set(groups.labels[part]) - {-1} for part in parts]
    return all(sides) and not sides[0] & sides[1]


def split(partition: Partition, looks: list[Look], here: NDArray[np.int64]) -> Partition:
    """The same partition with each cluster in two whose look says so.

    Looks are at the clients that are ``here``; others of such a cluster are in none from then on.
    """
    labels = partition.labels.copy()
    for look in looks:
        if look.parts is not None:
            members = partition.members(look.cluster)
            labels[np.setdiff1d(members, here)] = -1
            labels[np.intersect1d(members, here)[look.parts[1]]] = labels.max() + 1
    return Partition(labels)
