"""ONE_SHOT + IFCA: IFCA from the clusters that the first stage of SR-FCA finds.

Harshvardhan, Avishek Ghosh, Arya Mazumdar: An Improved Federated Clustering Algorithm with
Model-based Clustering. Transactions on Machine Learning Research, 02/2024 (as a baseline).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from srfca.distances import Distance, Side
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.ifca import alternate, check_average, server_rate
from srfca.methods.one_shot import choice_notes, one_shot
from srfca.methods.rounds import aggregate_clusters, local_training, plain_mean, weighted_mean
from srfca.methods.run import Run
from srfca.methods.sr_fca import SRFCA, check_federation
from srfca.random import Key


@dataclass(frozen=True, kw_only=True)
class OneShotIFCA(Method):
    """ONE_SHOT of SR-FCA tells how many clusters there are and where they start; then IFCA.

    Args:
        threshold: lambda of ONE_SHOT, as of ``SRFCA``.
        min_size: t, the least number of clients of a cluster of ONE_SHOT.
        distance: As of ``SRFCA``.
        graph: As of ``SRFCA``.
        average: What clients send in IFCA: ``models`` or ``gradients``, as of ``IFCA``.
        server_lr: The server's rate when gradients are sent; None is the rate of ``work``.
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of the clients that take part in a round of IFCA.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "ONE_SHOT + IFCA"

    threshold: float | str = "auto"
    min_size: int = 2
    distance: str | Distance = "cross_loss"
    graph: str = "correlation"
    average: str = "models"
    server_lr: float | None = None
    weighted: bool = True
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._one_shot()
        check_average(self.average, self.server_lr)
        require_share(self.participation)

    @property
    def trainings(self) -> float:
        """ONE_SHOT and IFCA."""
        return 1 + self.participation

    def solve(self, run: Run) -> Answer:
        """ONE_SHOT, the mean of each cluster's models, IFCA."""
        federation, seed, options = run.federation, run.seed, self._one_shot()
        check_federation(options, federation)
        m = len(federation.clients)
        w0 = federation.initial(seed)
        with run.stage("ONE_SHOT", m * self.work.steps) as tick:
            w = local_training(federation, w0, self.work, Key(seed, "one_shot"), tick)
            partition, choice, distances = one_shot(options, Side.clients(federation, w), w0, seed)
        run.record("ONE_SHOT", partition, w, distances, choice_notes(choice))

        aggregate = weighted_mean if self.weighted else plain_mean
        placed = np.flatnonzero(partition.labels >= 0)
        starts = aggregate_clusters(
            federation, w[torch.tensor(placed, device=w.device)], placed, partition.labels[placed],
            w0.expand(partition.num_clusters, -1), aggregate,
        )  # fmt: skip
        found = alternate(
            run, "IFCA", starts, self.work, aggregate,
            purpose="one_shot ifca", participation=self.participation,
            server_lr=server_rate(self.average, self.server_lr, self.work),
        )  # fmt: skip
        run.record("IFCA", found.partition, found.client_models, notes=found.notes)
        return found.answer

    def _one_shot(self) -> SRFCA:
        """The options of ONE_SHOT."""
        return SRFCA(
            threshold=self.threshold, min_size=self.min_size, distance=self.distance,
            graph=self.graph, work=self.work,
        )  # fmt: skip
