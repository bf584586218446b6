"""FL+HC: federated learning with hierarchical clustering of local updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.clustering.linkage import Linkage, agglomerate, check_cut
from srfca.distances import ModelSet, distance_named
from srfca.errors import require
from srfca.federation.requests import Train
from srfca.federation.rounds import aggregate_clusters
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.rounds import (
    federated_training,
    one_cluster,
    require_clients,
    require_replies,
    trained_part,
)
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Choices, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained

UpdateMetric = Literal["l2", "l1", "cosine"]


@register
@dataclass(frozen=True, kw_only=True)
class Hierarchical(Method):
    """FedAvg over all clients, one clustering of their updates, then FedAvg inside the clusters.

    Args:
        global_rounds: n, the rounds of FedAvg over all clients before the round of clustering; None
            is a tenth of all rounds.
        threshold: Clusters of updates farther apart are not joined: a number, or ``auto``.
        k: The number of clusters, instead of a threshold.
        linkage: ``ward``, ``average``, ``complete`` or ``single``.
        metric: Distance of two updates: ``l2``, ``l1`` or ``cosine``; ``ward`` needs l2.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of each cluster's clients that take part in a round; in the
            round of clustering all do.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> Hierarchical(k=2, global_rounds=1, local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "hierarchical"
    name: ClassVar[str] = "Hierarchical"
    paper: ClassVar[str] = (
        "Briggs, Fan, Andras: Federated learning with hierarchical clustering of local updates to "
        "improve training on non-IID data. IJCNN 2020."
    )
    searched: ClassVar[Mapping[str, SearchSpace]] = {"metric": Choices(("cosine", "l2"))}

    global_rounds: int | None = constrained(None, at_least=0)
    threshold: float | Literal["auto"] = "auto"
    k: int | None = None
    linkage: Linkage = "average"
    metric: UpdateMetric = "cosine"
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cut(self.threshold, self.k, self.linkage)
        require(
            self.linkage != "ward" or self.metric == "l2",
            f"linkage 'ward' needs the metric 'l2', not {self.metric!r}",
        )

    @property
    def trainings(self) -> float:
        """All clients take part in the round of clustering."""
        return self.participation + (1 - self.participation) / self.local.rounds

    def solve(self, run: Run) -> Answer:
        """Train, cluster, and train on."""
        local, aggregation, m = self.local, Mean(self.weighted), run.num_clients
        n = local.rounds // 10 if self.global_rounds is None else self.global_rounds
        require(
            n < local.rounds, f"global_rounds must be less than the {local.rounds} rounds, not {n}"
        )
        require_clients(m, self.k)
        model = federated_training(
            run, "FEDAVG", run.initial_model().unsqueeze(0), one_cluster(run), local, aggregation,
            purpose="hierarchical", participation=self.participation, rounds=range(n),
        )  # fmt: skip

        with run.stage("CLUSTER", m * len(local.span(n))):
            request = Train(run.everyone, model.expand(m, -1), local, run.key("hierarchical", n))
            replies = run.train(request, "a round")
            clients, rows = replies.clients, replies.values
            require_replies(clients, self.k)
            updates = trained_part(run, rows - model.expand(len(rows), -1))
            among = update_distances(run, updates, self.metric)
            cut = agglomerate(
                among, threshold=self.threshold, k=self.k, linkage=self.linkage, seed=run.seed
            )
            partition = cut.partition.embed(clients, m)
            starts = model.expand(partition.num_clusters, -1)
            models = aggregate_clusters(
                rows, clients, partition.labels[clients], starts, run.sizes, aggregation
            )
            distances = np.full((m, m), np.nan)
            distances[np.ix_(clients, clients)] = among
        answer = Answer(partition.labels, models)
        notes = {"reason": cut.reason, "heights": cut.heights.tolist()}
        run.record("CLUSTER", partition, answer.client_models, distances, notes)

        models = federated_training(
            run, "FEDAVG in clusters", models, partition, local, aggregation,
            purpose="hierarchical", participation=self.participation,
            rounds=range(n + 1, local.rounds),
        )  # fmt: skip
        answer = Answer(partition.labels, models)
        run.record("FEDAVG in clusters", partition, answer.client_models)
        return answer


def update_distances(run: Run, updates: Tensor, metric: UpdateMetric) -> np.ndarray:
    """Return distances ``[c, c]`` between updates ``[c, P]``, zero on the diagonal."""
    models = ModelSet.of_clients(run, updates)
    distances = np.maximum(distance_named(metric)(models, models), 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances
