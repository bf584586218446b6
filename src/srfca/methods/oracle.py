"""Oracle: FedAvg inside the true clusters, the ceiling for every method that has to find them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from srfca.clustering.partition import Partition
from srfca.errors import InputError, require
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.fedavg import fedavg
from srfca.methods.rounds import plain_mean, weighted_mean
from srfca.methods.run import Run


@dataclass(frozen=True, kw_only=True)
class Oracle(Method):
    """FedAvg inside clusters that it is told.

    Args:
        truth: The clusters; None, where they are not known, is refused when it is run.
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of each cluster's clients that take part in a round.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "Oracle"
    clustered: ClassVar[bool] = False

    truth: Partition | None
    weighted: bool = True
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share(self.participation)
        require(self.truth is None or not len(self.truth.left_out), "truth must place every client")

    def solve(self, run: Run) -> Answer:
        """Train a model for each cluster."""
        if self.truth is None:
            raise InputError("oracle needs the true clusters, which these data do not have")
        m = len(run.federation.clients)
        require(len(self.truth) == m, f"truth is for {len(self.truth)} clients, not for {m}")
        aggregate = weighted_mean if self.weighted else plain_mean
        return fedavg(run, self.truth, self.work, aggregate, self.participation)
