"""FedAvg: one model for all clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from srfca.aggregation.rules import Aggregation, Mean
from srfca.clustering.partition import Partition
from srfca.federation.local_training import LocalTraining
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import federated_training, one_cluster
from srfca.methods._common.run import Run
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class FedAvg(Method):
    """Train one model for all clients by federated averaging.

    Args:
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> FedAvg(local=local).fit(federation).models.shape
        torch.Size([1, 6])
    """

    key: ClassVar[str] = "global"
    name: ClassVar[str] = "Global"
    paper: ClassVar[str] = (
        "McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep "
        "Networks from Decentralized Data. AISTATS 2017."
    )
    family: ClassVar[Family] = "baseline"
    clustered: ClassVar[bool] = False

    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def solve(self, run: Run) -> Answer:
        """Train the model."""
        return fedavg(run, one_cluster(run), self.local, Mean(self.weighted), self.participation)


def fedavg(
    run: Run,
    partition: Partition,
    local: LocalTraining,
    aggregation: Aggregation,
    participation: float,
    server_lr: float | None = None,
) -> Answer:
    """Train a model for each cluster of a partition by FedAvg from w0.

    Args:
        run: The run.
        partition: The clusters.
        local: How clients train.
        aggregation: How the rows of a cluster become one row.
        participation: The fraction of each cluster's clients that take part in a round.
        server_lr: If given, clients send gradients.
    """
    starts = run.initial_model().expand(partition.num_clusters, -1)
    models = federated_training(
        run, "FEDAVG", starts, partition, local, aggregation,
        purpose="fedavg", participation=participation, server_lr=server_lr,
    )  # fmt: skip
    answer = Answer(partition.labels, models)
    run.record("FEDAVG", partition, answer.client_models)
    return answer
