"""CFL: Clustered Federated Learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.clustering.linkage import Linkage, agglomerate, find_groups
from srfca.clustering.partition import Partition
from srfca.errors import InputError, require
from srfca.federation.replies import Clients
from srfca.federation.requests import Train
from srfca.federation.rounds import aggregate_clusters
from srfca.methods._common.base import Answer, Method, Variant
from srfca.methods._common.result import models_of_clients
from srfca.methods._common.rounds import one_cluster, trained_part
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Percentages, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained

_COLUMNS = 2**12
"""Coordinates of the updates that are multiplied at once; double precision adds the products."""


@dataclass(frozen=True, eq=False)
class SplitCheck:
    """What was measured of a cluster after a round, and whether it is split.

    Args:
        cluster: Its number.
        mean_norm: Norm of the mean of the clients' updates.
        max_norm: Largest norm of a client's update.
        alpha_cross_max: Largest similarity across the best split, if one was computed.
        reason: Why it is split or not.
        parts: Positions of the two parts among the cluster's clients, if it is split.
        groups: The groups that the clients' similarities show, if they were computed.
    """

    cluster: int
    mean_norm: float
    max_norm: float
    alpha_cross_max: float | None = None
    reason: str = ""
    parts: tuple[Clients, Clients] | None = None
    groups: Partition | None = None

    def notes(self) -> dict[str, object]:
        """Return what the history says of it."""
        names = ("cluster", "mean_norm", "max_norm", "alpha_cross_max", "reason")
        return {name: getattr(self, name) for name in names}


@register
@dataclass(frozen=True, kw_only=True)
class CFL(Method):
    """Train clusters by FedAvg, and split one when it has converged but its clients have not.

    Args:
        eps1: A cluster may be split when the norm of its mean update is below this: a number, or a
            percentage of the mean norm of its clients' updates in the same round.
        eps2: It may be split when its largest update is above this: a number, or a percentage of
            the mean norm of all clients' updates in the first round.
        gamma_max: What a split must satisfy. A number in [0, 1] is the paper's: it must be less
            than ``sqrt((1 - alpha_cross_max) / 2)``. ``auto`` asks whether the similarities show
            groups, the same as in the round before, that the split does not cut through.
        warm_up: Rounds before the first split.
        min_size: The smallest number of clients of a part; with ``auto`` at least two.
        linkage: How the similarities are cut in two: ``single`` is the optimal bipartition,
            ``complete`` that of the authors' code; also ``average`` and ``ward``.
        weighted: Weight clients by their number of samples; otherwise all alike.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> CFL(local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "cfl"
    name: ClassVar[str] = "CFL"
    paper: ClassVar[str] = (
        "Sattler, Mueller, Samek: Clustered Federated Learning: Model-Agnostic Distributed "
        "Multi-Task Optimization under Privacy Constraints. IEEE TNNLS 2020."
    )
    variants: ClassVar[Mapping[str, Variant]] = {
        "paper": Variant("the paper's rule", ("gamma_max=0", "eps1=25%", "min_size=1"))
    }
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "eps1": Percentages(10, 100),
        "eps2": Percentages(5, 60),
    }

    eps1: float | str = "60%"
    eps2: float | str = "20%"
    gamma_max: float | Literal["auto"] = "auto"
    warm_up: int = constrained(3, at_least=0)
    min_size: int = constrained(2, at_least=1)
    linkage: Linkage = "single"
    weighted: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("eps1", "eps2"):
            resolve_limit(getattr(self, name), 1.0, name)
        require(
            self.gamma_max == "auto"
            or (isinstance(self.gamma_max, float | int) and 0 <= self.gamma_max <= 1),
            f"gamma_max must be 'auto' or in [0, 1], not {self.gamma_max!r}",
        )

    def solve(self, run: Run) -> Answer:
        """Train the clusters, and split them."""
        local, aggregation = self.local, Mean(self.weighted)
        partition, models = one_cluster(run), run.initial_model().unsqueeze(0)
        first_norm, groups_before = 0.0, dict[bytes, Partition | None]()
        server = ServerUpdate(run, local, local.rounds)
        with run.stage("CFL", run.num_clients * local.steps):
            for number in range(local.rounds):
                clients = np.flatnonzero(partition.labels >= 0)
                starts = models_of_clients(models, partition.labels[clients])
                request = Train(clients, starts, local, run.key("cfl", number))
                replies = run.train(request, "federated training")
                answered = torch.as_tensor(replies.answered, device=starts.device)
                clients, rows = replies.clients, replies.values
                starts = starts if not replies.missing else starts[answered]
                updates = trained_part(run, rows - starts)
                first_norm = first_norm or float(updates.norm(dim=1).mean())
                checks = []
                if number >= self.warm_up:
                    sizes = run.sizes.to(updates.device)
                    members = [np.intersect1d(cluster, clients) for cluster in partition]
                    checks = [
                        self.check_split(
                            cluster, updates[np.searchsorted(clients, group)], sizes[group],
                            first_norm, groups_before.get(group.tobytes()), run.seed,
                        )
                        for cluster, group in enumerate(members) if len(group)
                    ]  # fmt: skip
                    groups_before = {members[c.cluster].tobytes(): c.groups for c in checks}
                before, partition = partition, split(partition, checks, clients)
                parents = [int(before.labels[cluster[0]]) for cluster in partition]
                aggregated = aggregate_clusters(
                    rows, clients, partition.labels[clients], models[parents], run.sizes,
                    aggregation,
                )  # fmt: skip
                models = server.step(models[parents], aggregated)
                server.add(number, models)
                answer = Answer(partition.labels, models)
                run.end_round("CFL", number, local.rounds, models, partition.labels)
                splits = [check.notes() for check in checks if check.parts is not None]
                if splits:
                    notes = {"round": number, "splits": splits}
                    run.record(f"SPLIT {number}", partition, answer.client_models, notes=notes)
        answer = Answer(partition.labels, server.result(local.rounds - 1, models))
        run.record("CFL", partition, answer.client_models)
        return answer

    def check_split(
        self,
        cluster: int,
        updates: Tensor,
        sizes: Tensor,
        first_norm: float,
        groups_before: Partition | None,
        seed: int,
    ) -> SplitCheck:
        """Decide whether to split a cluster.

        Args:
            cluster: Its number.
            updates: ``[J, P]`` of its clients.
            sizes: ``[J]`` their training samples.
            first_norm: Mean norm of all clients' updates in the first round.
            groups_before: The groups that this cluster showed in the round before.
            seed: Seed of the graph clustering.

        Returns:
            The parts, or why it stays whole.
        """
        norms = updates.norm(dim=1)
        mean = Mean(self.weighted)(updates, sizes)
        mean_norm, max_norm = float(mean.norm()), float(norms.max())
        minimum = max(self.min_size, 2) if self.gamma_max == "auto" else self.min_size
        measured = cluster, mean_norm, max_norm
        if len(updates) < 2 * minimum:
            return SplitCheck(*measured, reason="too few clients for two parts")
        if mean_norm >= resolve_limit(self.eps1, float(norms.mean()), "eps1"):
            return SplitCheck(*measured, reason="the cluster still learns together")
        if max_norm <= resolve_limit(self.eps2, first_norm, "eps2"):
            return SplitCheck(*measured, reason="all clients have converged")
        alpha = similarities(updates)
        parts = bipartition(alpha, self.linkage, minimum)
        cross = float(alpha[np.ix_(*parts)].max())
        if min(len(part) for part in parts) < minimum:
            return SplitCheck(*measured, cross, "a part would be too small")
        groups = None
        if isinstance(self.gamma_max, str):
            groups, reason = find_groups(1 - alpha, minimum, seed)
            accepted = groups == groups_before and keeps_groups_whole(parts, groups)
        else:
            bound = float(np.sqrt((1 - cross) / 2))
            accepted = self.gamma_max < bound
            reason = f"gamma_max {self.gamma_max:.3g} against {bound:.3g}"
        return SplitCheck(*measured, cross, reason, parts if accepted else None, groups)


def resolve_limit(eps: float | str, reference: float, name: str) -> float:
    """Return a limit that is a number, or a percentage of a reference.

    Raises:
        InputError: If it is neither.
    """
    try:
        value = float(eps.removesuffix("%")) if isinstance(eps, str) else float(eps)
    except ValueError:
        value = -1.0
    if not value >= 0 or (isinstance(eps, str) and not eps.endswith("%")):
        raise InputError(f"{name} must be a number or a percentage such as '50%', not {eps!r}")
    return value / 100 * reference if isinstance(eps, str) else value


def similarities(updates: Tensor) -> NDArray[np.float64]:
    """Return cosines ``[J, J]`` between updates ``[J, P]``; a zero update is similar to none."""
    products = torch.zeros(len(updates), len(updates), dtype=torch.float64, device=updates.device)
    for part in updates.split(_COLUMNS, dim=1):
        products += part @ part.T
    norms = products.diagonal().sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    alpha = np.clip((products / norms / norms.unsqueeze(1)).cpu().numpy(), -1.0, 1.0)
    np.fill_diagonal(alpha, 1.0)
    return np.asarray((alpha + alpha.T) / 2)


def bipartition(
    alpha: NDArray[np.float64], linkage: Linkage = "single", min_size: int = 1
) -> tuple[Clients, Clients]:
    """Cut similarities ``[J, J]`` in two; ``single`` minimizes the largest one across.

    A part of less than ``min_size`` is set aside, and the rest is cut instead; in the end, those
    set aside join the part that they are most similar to.
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


def keeps_groups_whole(parts: tuple[Clients, Clients], groups: Partition) -> bool:
    """Tell whether every group lies in one of two parts, and each part has a group."""
    sides = [set(groups.labels[part]) - {-1} for part in parts]
    return all(sides) and not sides[0] & sides[1]


def split(partition: Partition, checks: list[SplitCheck], clients: Clients) -> Partition:
    """Return the partition with each cluster split that passed its check.

    Checks are of the clients that replied; other members of a split cluster become unclustered.
    """
    labels = partition.labels.copy()
    for check in checks:
        if check.parts is not None:
            members = partition.members(check.cluster)
            labels[np.setdiff1d(members, clients)] = -1
            labels[np.intersect1d(members, clients)[check.parts[1]]] = labels.max() + 1
    return Partition(labels)
