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

    Both parts go on from the model of their group and the updates of their own clients.

    Args:
        rounds_between: Rounds of FedAvg in the groups before each round of cuts; None is a tenth of
            all rounds.
        max_levels: How often groups may be cut.
        min_size: The smallest number of clients of a part.
        metric: Distance of two updates: ``l2``, ``l1`` or ``cosine``.
        linkage: How the distances are cut in two: ``single``, ``complete``, ``average`` or
            ``ward``.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of each group's clients that take part in a round; in a round of
            cuts all do.
    """

    key: ClassVar[str] = "top-down"
    name: ClassVar[str] = "Top-down"
    paper: ClassVar[str] = (
        "Hierarchical top-down clustering, as Harshvardhan, Ghosh, Mazumdar (TMLR 2024) describe "
        "it; bottom-up it is that of Briggs, Fan, Andras (IJCNN 2020)."
    )
    searched: ClassVar[Mapping[str, SearchSpace]] = {"metric": Choices(("cosine", "l2"))}

    rounds_between: int | None = constrained(None, at_least=0)
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
        """All clients take part in the rounds of cuts."""
        cuts = len(self._cut_rounds)
        return self.participation + (1 - self.participation) * cuts / self.local.rounds

    @property
    def _cut_rounds(self) -> list[int]:
        """The rounds in which groups may be cut; the last round is none of them."""
        rounds = self.local.rounds
        between = rounds // 10 if self.rounds_between is None else self.rounds_between
        return list(range(between, rounds - 1, between + 1))[: self.max_levels]

    def solve(self, run: Run) -> Answer:
        """Train, and cut, from the root to the leaves."""
        partition, models = one_cluster(run), run.initial_model().unsqueeze(0)
        done, parents = 0, list[list[int]]()
        for number in self._cut_rounds:
            models = self._train(run, partition, models, range(done, number))
            with run.stage("CUT", run.num_clients * len(self.local.span(number))):
                before = partition
                partition, models, distances = self._cut(run, partition, models, number)
            parents.append([int(before.labels[group[0]]) for group in partition])
            run.end_round("CUT", number, self.local.rounds, models, partition.labels)
            answer = Answer(partition.labels, models)
            notes = {"round": number, "parents": parents[-1]}
            run.record(f"LEVEL {len(parents)}", partition, answer.client_models, distances, notes)
            done = number + 1
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

    def _cut(
        self, run: Run, partition: Partition, models: Tensor, number: int
    ) -> tuple[Partition, Tensor, np.ndarray]:
        """Train for a round, and cut the groups whose updates show several groups.

        Members of a group that is cut become unclustered if they did not reply.

        Returns:
            The groups, their models, and the distances ``[m, m]`` of updates within them.
        """
        clients = np.flatnonzero(partition.labels >= 0)
        starts = models_of_clients(models, partition.labels[clients])
        replies = run.train(Train(clients, starts, self.local, run.key("top-down", number)))
        clients, rows = replies.clients, replies.values
        answered = torch.as_tensor(replies.answered, device=starts.device)
        updates = trained_part(run, rows - starts[answered].to(rows))
        labels, distances = partition.labels.copy(), np.full((run.num_clients,) * 2, np.nan)
        for group in partition:
            members = np.intersect1d(group, clients)
            if len(members) < 2 * self.min_size:
                continue
            positions = torch.as_tensor(np.searchsorted(clients, members), device=rows.device)
            among = update_distances(run, updates[positions], self.metric)
            distances[np.ix_(members, members)] = among
            parts = self.halves(among, run.seed)
            if parts is not None:
                labels[np.setdiff1d(group, members)] = -1
                labels[members[parts[1]]] = labels.max() + 1
        cut = Partition(labels)
        parents = [int(partition.labels[group[0]]) for group in cut]
        models = aggregate_clusters(
            rows, clients, cut.labels[clients], models[parents], run.sizes, Mean(self.weighted)
        )
        return cut, models, distances

    def halves(self, distances: np.ndarray, seed: int = 0) -> tuple[Clients, Clients] | None:
        """Return the two parts of a group, None if it stays whole.

        It is cut if its distances ``[c, c]`` show several groups, and the cut goes through none.
        """
        groups, _ = find_groups(distances, max(2, self.min_size), seed)
        if groups.num_clusters < 2:
            return None
        parts = bipartition(1 - distances, self.linkage, self.min_size)
        whole = min(map(len, parts)) >= self.min_size and keeps_groups_whole(parts, groups)
        return parts if whole else None
