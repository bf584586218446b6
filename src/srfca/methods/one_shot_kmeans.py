"""One-shot k-means: cluster the clients' local models once, then train inside the clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.clustering.partition import Partition
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.rounds import (
    Exchange,
    require_clients,
    require_replies,
    resolve_server_lr,
    train_locally,
    trained_part,
)
from srfca.methods._common.run import Run
from srfca.methods.fedavg import fedavg
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class OneShotKMeans(Method):
    """Train every client alone from w0, group the models by k-means, then FedAvg in each group.

    Args:
        k: The number of clusters.
        starts: How often k-means is started; the best is kept.
        exchange: What clients send in FedAvg: ``models`` or ``gradients``, as in ``IFCA``.
        server_lr: The server's learning rate for gradients; None is that of ``local``.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of each cluster's clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> OneShotKMeans(k=2, local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "one-shot-kmeans"
    name: ClassVar[str] = "One-shot k-means"
    paper: ClassVar[str] = (
        "A baseline of Harshvardhan, Ghosh, Mazumdar (TMLR 2024), after the single communication "
        "of Dennis, Li, Smith: Heterogeneity for the Win: One-Shot Federated Clustering. ICML 2021."
    )
    needs_k: ClassVar[bool] = True

    k: int = constrained(2, at_least=1)
    starts: int = constrained(10, at_least=1)
    exchange: Exchange = "models"
    server_lr: float | None = constrained(None, more_than=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """Once alone, and once in the cluster."""
        return 1 + self.participation

    def solve(self, run: Run) -> Answer:
        """Train alone, cluster, and train together."""
        require_clients(run.num_clients, self.k)
        with run.stage("LOCAL", run.num_clients * self.local.steps):
            local_models = train_locally(run, self.local, run.key("local"))
        clients, rows = local_models.clients, local_models.answered
        require_replies(clients, self.k)
        word = run.key("k-means").word() % 2**32
        clusters = cluster_rows(trained_part(run, rows), self.k, self.starts, word)
        partition = clusters.embed(clients, run.num_clients)
        notes = {"empty": self.k - partition.num_clusters}
        run.record("LOCAL", partition, rows, notes=notes, clients=clients)
        server_lr = resolve_server_lr(self.exchange, self.server_lr, self.local)
        return fedavg(
            run, partition, self.local, Mean(self.weighted), self.participation, server_lr
        )


def cluster_rows(rows: Tensor, k: int, starts: int, word: int) -> Partition:
    """Cluster rows ``[m, P]`` into at most k clusters; fewer if fewer rows differ.

    The rows are first expressed in m coordinates, which keeps all distances between them.
    """
    import warnings

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    points = rows.double().cpu().numpy()
    points = points - points.mean(0)
    directions, lengths, _ = np.linalg.svd(points, full_matrices=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = KMeans(k, n_init=starts, random_state=word).fit(directions * lengths)
    return Partition(fitted.labels_)
