"""One-shot k-means: cluster the clients' own models once, then train inside the clusters.

The baseline of Harshvardhan, Ghosh, Mazumdar: An Improved Federated Clustering Algorithm with
Model-based Clustering (TMLR, 02/2024), after the one communication of Dennis, Li, Smith:
Heterogeneity for the Win: One-Shot Federated Clustering (k-FED). ICML 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.fedavg import fedavg
from srfca.methods.ifca import check_average, server_rate
from srfca.methods.rounds import (
    heard,
    local_training,
    plain_mean,
    require_answers,
    require_clients,
    trained_part,
    weighted_mean,
)
from srfca.methods.run import Run
from srfca.random import Key


@dataclass(frozen=True, kw_only=True)
class OneShotKMeans(Method):
    """Every client trains alone from w0, k-means groups the models, FedAvg from w0 in each group.

    Args:
        k: The number of clusters.
        starts: How often k-means is begun anew; the best is kept.
        average: What clients send in FedAvg: ``models`` or ``gradients``, as of ``IFCA``.
        server_lr: The server's rate when gradients are sent; None is the rate of ``work``.
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of each cluster's clients that take part in a round.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "One-shot k-means"

    k: int = 2
    starts: int = 10
    average: str = "models"
    server_lr: float | None = None
    weighted: bool = True
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("k", "starts"):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1, not {value}")
        check_average(self.average, self.server_lr)
        require_share(self.participation)

    @property
    def trainings(self) -> float:
        """Once alone, and once in the cluster."""
        return 1 + self.participation

    def solve(self, run: Run) -> Answer:
        """Train alone, cluster, and train together."""
        federation = run.federation
        m = len(federation.clients)
        require_clients(m, self.k)
        with run.stage("LOCAL", m * self.work.steps) as tick:
            w0, key = federation.initial(run.seed), Key(run.seed, "local")
            w = local_training(federation, w0, self.work, key, tick)
        word = Key(run.seed, "k-means").word() % 2**32
        here = np.flatnonzero(heard(federation, w, range(m)))
        require_answers(here, self.k)
        sent = w if len(here) == m else w[torch.tensor(here, device=w.device)]
        found = k_means(trained_part(federation, sent), self.k, self.starts, word)
        partition = found.spread(here, m)
        run.record("LOCAL", partition, w, notes={"empty": self.k - partition.num_clusters})
        aggregate = weighted_mean if self.weighted else plain_mean
        server_lr = server_rate(self.average, self.server_lr, self.work)
        return fedavg(run, partition, self.work, aggregate, self.participation, server_lr)


def k_means(rows: Tensor, k: int, starts: int, word: int) -> Partition:
    """Cluster rows ``[m, P]`` into at most k clusters; fewer if fewer rows differ.

    The rows are first written in m coordinates, which keeps all distances between them.
    """
    import warnings

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    points = rows.double().cpu().numpy()
    points = points - points.mean(0)
    left, sizes, _ = np.linalg.svd(points, full_matrices=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(k, n_init=starts, random_state=word).fit(left * sizes)
    return Partition(found.labels_)
