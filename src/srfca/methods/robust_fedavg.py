"""Robust FedAvg: one model for all clients that a few corrupt clients cannot spoil."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from srfca.aggregation.rules import RobustAggregation, robust_aggregation
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import one_cluster
from srfca.methods._common.run import Run
from srfca.methods.fedavg import fedavg
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class RobustFedAvg(Method):
    """Train one model for all clients with a robust aggregation instead of the mean.

    Args:
        aggregation: ``trimmed_mean`` or ``median``, both coordinate-wise; ``geometric_median``; or
            ``clipped_mean``, the mean of rows whose distance from the median is bounded.
        trim: beta of the trimmed mean, in [0, 1/2): at least the fraction of corrupt clients.
        participation: The fraction of the clients that take part in a round.
    """

    key: ClassVar[str] = "robust-global"
    name: ClassVar[str] = "Robust Global"
    paper: ClassVar[str] = (
        "Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal "
        "Statistical Rates. ICML 2018."
    )
    family: ClassVar[Family] = "baseline"
    clustered: ClassVar[bool] = False

    aggregation: RobustAggregation = "trimmed_mean"
    trim: float = constrained(0.1, at_least=0, less_than=0.5)
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def solve(self, run: Run) -> Answer:
        """Train the model."""
        rule = robust_aggregation(self.aggregation, self.trim)
        return fedavg(run, one_cluster(run), self.local, rule, self.participation)
