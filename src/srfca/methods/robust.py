"""Byzantine-robust Global: one model for everybody that a few wrong clients cannot spoil.

Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates. ICML 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from srfca.aggregation import trim_count
from srfca.errors import unknown
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.fedavg import fedavg
from srfca.methods.rounds import aggregate_named, everybody
from srfca.methods.run import Run


@dataclass(frozen=True, kw_only=True)
class RobustGlobal(Method):
    """FedAvg over all clients with a trimmed mean or a median in the place of the mean.

    Args:
        aggregate: ``trimmed_mean`` or ``median``, both coordinate by coordinate.
        trim: beta of the trimmed mean, in [0, 1/2): at least the fraction of wrong clients.
        participation: The fraction of the clients that take part in a round.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "Robust Global"
    clustered: ClassVar[bool] = False

    aggregate: str = "trimmed_mean"
    trim: float = 0.1
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aggregate not in ("trimmed_mean", "median"):
            raise unknown("aggregate", self.aggregate, ["trimmed_mean", "median"])
        trim_count(1, self.trim)
        require_share(self.participation)

    def solve(self, run: Run) -> Answer:
        """Train the one model."""
        partition, aggregate = everybody(run.federation), aggregate_named(self.aggregate, self.trim)
        return fedavg(run, partition, self.work, aggregate, self.participation)
