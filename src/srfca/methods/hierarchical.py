"""FL+HC: federated learning with hierarchical clustering of local updates.

Briggs, Fan, Andras: Federated learning with hierarchical clustering of local updates to improve
training on non-IID data. IJCNN 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from srfca.clustering.linkage import agglomerate, check_cut
from srfca.distances import Side, distance_named
from srfca.errors import require, unknown
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.rounds import (
    aggregate_clusters,
    answered,
    everybody,
    federated_training,
    plain_mean,
    require_answers,
    require_clients,
    trained_part,
    weighted_mean,
)
from srfca.methods.run import Run
from srfca.random import Key

METRICS = ("l2", "l1", "cosine")


@dataclass(frozen=True, kw_only=True)
class Hierarchical(Method):
    """FedAvg over all clients, one clustering of their updates, then FedAvg inside the clusters.

    Args:
        global_rounds: n, the rounds of FedAvg over all clients before the round of clustering; None
            is a tenth of all rounds.
        threshold: Clusters of updates farther apart are not joined: a number, or ``auto``.
        k: The number of clusters, in the place of a threshold.
        linkage: ``ward``, ``average``, ``complete`` or ``single``.
        metric: Distance of two updates: ``l2``, ``l1`` or ``cosine``; ``ward`` goes with l2 alone.
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of each cluster's clients that take part in a round; in the
            round of clustering all do.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "Hierarchical"

    global_rounds: int | None = None
    threshold: float | str = "auto"
    k: int | None = None
    linkage: str = "average"
    metric: str = "cosine"
    weighted: bool = True
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.global_rounds is None or self.global_rounds >= 0,
            f"global_rounds must not be negative, but is {self.global_rounds}",
        )
        check_cut(self.threshold, self.k, self.linkage)
        if self.metric not in METRICS:
            raise unknown("metric", self.metric, METRICS)
        require(
            self.linkage != "ward" or self.metric == "l2",
            f"linkage 'ward' needs the metric 'l2', not {self.metric!r}",
        )
        require_share(self.participation)

    @property
    def trainings(self) -> float:
        """All take part in the round of clustering."""
        return self.participation + (1 - self.participation) / self.work.rounds

    def solve(self, run: Run) -> Answer:
        """Train, cluster, and train on."""
        federation, work = run.federation, self.work
        n = work.rounds // 10 if self.global_rounds is None else self.global_rounds
        require(
            n < work.rounds, f"global_rounds must be less than the {work.rounds} rounds, not {n}"
        )
        require_clients(len(federation.clients), self.k)
        aggregate = weighted_mean if self.weighted else plain_mean
        together = everybody(federation)
        start = federation.initial(run.seed).unsqueeze(0)
        model = federated_training(
            run, "FEDAVG", start, together, work, aggregate, purpose="hierarchical",
            participation=self.participation, rounds=range(n),
        )  # fmt: skip

        who = np.arange(len(federation.clients))
        with run.stage("CLUSTER", len(who) * len(work.span(n))) as tick:
            starts = model.expand(len(who), -1)
            key = Key(run.seed, "hierarchical", n)
            rows = federation.fit(starts, who.tolist(), work, key, tick)
            _, here = answered(federation, rows, who, "a round")
            require_answers(here, self.k)
            updates = trained_part(federation, rows - starts)
            distances = update_distances(run, updates, self.metric)
            cut = agglomerate(
                distances[np.ix_(here, here)], threshold=self.threshold, k=self.k,
                linkage=self.linkage, seed=run.seed,
            )  # fmt: skip
            partition = cut.partition.spread(here, len(who))
            empty = model.expand(partition.num_clusters, -1)
            models = aggregate_clusters(federation, rows, who, partition.labels, empty, aggregate)
        answer = Answer(partition.labels, models)
        notes = {"why": cut.why, "heights": cut.heights.tolist()}
        run.record("CLUSTER", partition, answer.client_models, distances, notes)

        models = federated_training(
            run, "FEDAVG in clusters", models, partition, work, aggregate, purpose="hierarchical",
            participation=self.participation, rounds=range(n + 1, work.rounds),
        )  # fmt: skip
        answer = Answer(partition.labels, models)
        run.record("FEDAVG in clusters", partition, answer.client_models)
        return answer


def update_distances(run: Run, updates: Tensor, metric: str) -> np.ndarray:
    """Distances ``[m, m]`` between updates ``[m, P]``, zero from each to itself."""
    side = Side.clients(run.federation, updates)
    distances = np.maximum(distance_named(metric)(side, side), 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances
