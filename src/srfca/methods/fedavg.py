"""Global: one model for everybody by FedAvg.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data. AISTATS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.base import Work
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.rounds import (
    Aggregate,
    everybody,
    federated_training,
    plain_mean,
    weighted_mean,
)
from srfca.methods.run import Run


@dataclass(frozen=True, kw_only=True)
class Global(Method):
    """FedAvg over all clients.

    Args:
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of the clients that take part in a round.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "Global"
    clustered: ClassVar[bool] = False

    weighted: bool = True
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share(self.participation)

    def solve(self, run: Run) -> Answer:
        """Train the one model."""
        aggregate = weighted_mean if self.weighted else plain_mean
        return fedavg(run, everybody(run.federation), self.work, aggregate, self.participation)


def fedavg(
    run: Run,
    partition: Partition,
    work: Work,
    aggregate: Aggregate,
    participation: float,
    server_lr: float | None = None,
) -> Answer:
    """FedAvg from w0 inside each cluster of a partition; of gradients with a ``server_lr``."""
    starts: Tensor = run.federation.initial(run.seed).expand(partition.num_clusters, -1)
    models = federated_training(
        run, "FEDAVG", starts, partition, work, aggregate,
        purpose="fedavg", participation=participation, server_lr=server_lr,
    )  # fmt: skip
    answer = Answer(partition.labels, models)
    run.record("FEDAVG", partition, answer.client_models)
    return answer
