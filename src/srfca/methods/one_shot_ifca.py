"""ONE_SHOT + IFCA: IFCA from the clusters that the first stage of SR-FCA finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from srfca.aggregation.rules import Mean
from srfca.clustering.graph import GraphClustering
from srfca.distances import Distance, ModelSet
from srfca.federation.rounds import aggregate_clusters
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.rounds import Exchange, resolve_server_lr, train_locally
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Percentages, SearchSpace
from srfca.methods.ifca import alternate
from srfca.methods.registry import register
from srfca.methods.sr_fca import SRFCA
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class OneShotIFCA(Method):
    """Let ONE_SHOT of SR-FCA find the number of clusters and their starts, then run IFCA.

    Args:
        threshold: lambda of ONE_SHOT, as in ``SRFCA``.
        min_size: t, the smallest number of clients in a cluster of ONE_SHOT.
        distance: As in ``SRFCA``.
        graph: As in ``SRFCA``.
        exchange: What clients send in IFCA: ``models`` or ``gradients``, as in ``IFCA``.
        server_lr: The server's learning rate for gradients; None is that of ``local``.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round of IFCA.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> OneShotIFCA(local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "one-shot-ifca"
    name: ClassVar[str] = "ONE_SHOT + IFCA"
    paper: ClassVar[str] = (
        "A baseline of Harshvardhan, Ghosh, Mazumdar: An Improved Federated Clustering Algorithm "
        "with Model-based Clustering. TMLR 2024."
    )
    searched: ClassVar[Mapping[str, SearchSpace]] = {"threshold": Percentages(5, 95, "auto")}

    threshold: float | str = "auto"
    min_size: int = constrained(2, at_least=1)
    distance: str | Distance = "cross_loss"
    graph: GraphClustering = "correlation"
    exchange: Exchange = "models"
    server_lr: float | None = constrained(None, more_than=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._one_shot_options()

    @property
    def trainings(self) -> float:
        """ONE_SHOT and IFCA."""
        return 1 + self.participation

    def solve(self, run: Run) -> Answer:
        """Run ONE_SHOT, average the models of each cluster, run IFCA."""
        options = self._one_shot_options()
        options.check(run)
        with run.stage("ONE_SHOT", run.num_clients * self.local.steps):
            local_models = train_locally(run, self.local, run.key("one_shot"))
            models = ModelSet.of_clients(run, local_models.answered, local_models.clients)
            grouping = options.rule.one_shot(run, options, models)
        partition = grouping.partition
        run.record(
            "ONE_SHOT", partition, models.models, grouping.distances, grouping.notes(),
            clients=models.clients,
        )  # fmt: skip

        aggregation = Mean(self.weighted)
        clustered = np.intersect1d(np.flatnonzero(partition.labels >= 0), local_models.clients)
        rows = local_models.rows[torch.tensor(clustered, device=local_models.rows.device)]
        starts = aggregate_clusters(
            rows, clustered, partition.labels[clustered],
            run.initial_model().expand(partition.num_clusters, -1), run.sizes, aggregation,
        )  # fmt: skip
        outcome = alternate(
            run, "IFCA", starts, self.local, aggregation,
            purpose="one_shot ifca", participation=self.participation,
            server_lr=resolve_server_lr(self.exchange, self.server_lr, self.local),
        )  # fmt: skip
        run.record("IFCA", outcome.partition, outcome.client_models, notes=outcome.notes)
        return outcome.answer

    def _one_shot_options(self) -> SRFCA:
        """Return the parameters of ONE_SHOT; one REFINE, so that a single cluster is not split."""
        return SRFCA(
            threshold=self.threshold, min_size=self.min_size, distance=self.distance,
            graph=self.graph, local=self.local, refine_steps=1,
        )  # fmt: skip
