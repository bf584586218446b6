"""Top-down hierarchical clustering: groups are cut in two, level by level, while they train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.clustering.linkage import Linkage, find_groups
from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.replies import Clients
from srfca.federation.requests import Train
from srfca.federation.rounds import aggregate_clusters
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.result import models_of_clients
from srfca.methods._common.rounds import federated_training, one_cluster, trained_part
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Choices, SearchSpace
from srfca.methods.cfl import bipartition, keeps_groups_whole
from srfca.methods.hierarchical import UpdateMetric, update_distances
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class TopDown(Method):
    """FedAvg over all clients; every few rounds, groups whose updates differ are cut in two.

    A group is cut if its updates show the same halves in two rounds. Both parts continue from the
    model of their group and the updates of their own clients.

    Args:
        rounds_between: Rounds of FedAvg in the groups before each round of cuts, at least one; None
            is a tenth of all rounds.
        max_levels: Levels of the tree below the root: no round has cuts after that many had some.
        min_size: The smallest number of clients of a part.
        metric: Distance of two updates: ``l2``, ``l1`` or ``cosine``.
        linkage: How the distances are cut in two: ``single``, ``complete``, ``average`` or
            ``ward``.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of each group's clients that take part in a round; in a round of
            cuts, and the one before, all do.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> TopDown(local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "top-down"
    name: ClassVar[str] = "Top-down"
    paper: ClassVar[str] = (
        "A top-down variant of Briggs, Fan, Andras: Federated learning with hierarchical "
        "clustering of local updates to improve training on non-IID data. IJCNN 2020."
    )
    server_settings: ClassVar[tuple[str, ...]] = ("server_momentum",)
    searched: ClassVar[Mapping[str, SearchSpace]] = {"metric": Choices(("cosine", "l2"))}

    rounds_between: int | None = constrained(None, at_least=1)
    max_levels: int = constrained(5, at_least=1)
    min_size: int = constrained(2, at_least=1)
    metric: UpdateMetric = "cosine"
    linkage: Linkage = "average"
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.linkage != "ward" or self.metric == "l2",
            f"linkage 'ward' needs the metric 'l2', not {self.metric!r}",
        )

    @property
    def trainings(self) -> float:
        """All clients take part in the rounds of cuts, and in those before them."""
        looks = 2 * len(self._cut_rounds)
        return self.participation + (1 - self.participation) * looks / self.local.rounds

    @property
    def _cut_rounds(self) -> list[int]:
        """The rounds in which groups may be cut; the last round is none of them."""
        rounds = self.local.rounds
        between = max(1, rounds // 10) if self.rounds_between is None else self.rounds_between
        return list(range(between, rounds - 1, between + 1))

    def solve(self, run: Run) -> Answer:
        """Train, and cut, from the root to the leaves."""
        partition, models = one_cluster(run), run.initial_model().unsqueeze(0)
        done, parents = 0, list[list[int]]()
        for number in self._cut_rounds:
            if len(parents) == self.max_levels:
                break
            models = self._train(run, partition, models, range(done, number - 1))
            first = self._look(run, partition, models, number - 1)
            models = first.aggregate(run, partition, models, self.weighted)
            second = self._look(run, partition, models, number)
            before, partition = partition, cut(partition, first, second)
            of_parts = [int(before.labels[group[0]]) for group in partition]
            models = second.aggregate(run, partition, models[of_parts], self.weighted)
            run.end_round("LOOK", number, self.local.rounds, models, partition.labels)
            done = number + 1
            if partition == before:
                continue
            parents.append(of_parts)
            notes = {"round": number, "parents": of_parts}
            rows = Answer(partition.labels, models).client_models
            run.record(f"LEVEL {len(parents)}", partition, rows, second.distances, notes)
        models = self._train(run, partition, models, range(done, self.local.rounds))
        answer = Answer(partition.labels, models)
        run.record("TOP_DOWN", partition, answer.client_models, notes={"parents": parents})
        return answer

    def _train(self, run: Run, partition: Partition, models: Tensor, rounds: range) -> Tensor:
        """Train the groups for some rounds."""
        if not rounds:
            return models
        return federated_training(
            run, "FEDAVG in groups", models, partition, self.local, Mean(self.weighted),
            purpose="top-down", participation=self.participation, rounds=rounds,
        )  # fmt: skip

    def _look(self, run: Run, partition: Partition, models: Tensor, number: int) -> Look:
        """Train all clients for a round, and find the halves that their updates show."""
        clients = np.flatnonzero(partition.labels >= 0)
        starts = models_of_clients(models, partition.labels[clients])
        with run.stage("LOOK", len(clients) * len(self.local.span(number))):
            replies = run.train(Train(clients, starts, self.local, run.key("top-down", number)))
        clients, rows = replies.clients, replies.values
        answered = torch.as_tensor(replies.answered, device=starts.device)
        updates = trained_part(run, rows - starts[answered].to(rows))
        distances = np.full((run.num_clients, run.num_clients), np.nan)
        halves = np.full(run.num_clients, -1)
        for group in partition:
            members = np.intersect1d(group, clients)
            if len(members) < 2 * self.min_size:
                continue
            positions = torch.as_tensor(np.searchsorted(clients, members), device=rows.device)
            among = update_distances(run, updates[positions], self.metric)
            distances[np.ix_(members, members)] = among
            halves[members] = self.halves(among, run.seed)
        return Look(clients, rows, distances, halves)

    def halves(self, distances: np.ndarray, seed: int = 0) -> Clients:
        """Return the half of each client of a group, -1 for all if the group stays whole.

        It is cut if its distances ``[c, c]`` show several groups, and the cut goes through none.

        Args:
            distances: ``[c, c]`` of the clients' updates.
            seed: Seed of the graph clustering.
        """
        half = np.full(len(distances), -1)
        groups, _ = find_groups(distances, max(2, self.min_size), seed)
        if groups.num_clusters < 2:
            return half
        parts = bipartition(1 - distances, self.linkage, self.min_size)
        if min(map(len, parts)) >= self.min_size and keeps_groups_whole(parts, groups):
            for number, part in enumerate(parts):
                half[part] = number
        return half


def cut(partition: Partition, first: Look, second: Look) -> Partition:
    """Cut the groups that fall into the same halves in two rounds.

    Members of a group that is cut become unclustered if they did not reply in the second round.
    """
    labels = partition.labels.copy()
    for group in partition:
        halves, before = second.halves[group], first.halves[group]
        both = (halves >= 0) & (before >= 0)
        if both.any() and Partition(halves[both]) == Partition(before[both]):
            labels[group[halves < 0]] = -1
            labels[group[halves == 1]] = labels.max() + 1
    return Partition(labels)


@dataclass(frozen=True, eq=False)
class Look:
    """What all clients sent in a round, and the halves of the groups that it shows.

    Args:
        clients: ``[c]`` those that replied.
        rows: ``[c, P]`` their models.
        distances: ``[m, m]`` between updates in the same group, else NaN.
        halves: ``[m]`` the half of its group that each client is in, -1 if it stays whole, or the
            client did not reply.
    """

    clients: Clients
    rows: Tensor
    distances: np.ndarray
    halves: Clients

    def aggregate(self, run: Run, partition: Partition, models: Tensor, weighted: bool) -> Tensor:
        """Return the mean of each group's rows; a group without any keeps its model: ``[k, P]``."""
        labels = partition.labels[self.clients]
        inside = labels >= 0
        return aggregate_clusters(
            self.rows[torch.as_tensor(inside, device=self.rows.device)], self.clients[inside],
            labels[inside], models, run.sizes, Mean(weighted),
        )  # fmt: skip
