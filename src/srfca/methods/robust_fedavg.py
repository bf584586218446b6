"""Robust FedAvg: one model for all clients that a few corrupt clients cannot spoil."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from srfca.aggregation.rules import RobustAggregation, robust_aggregation
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import one_cluster
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.fedavg import fedavg
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class RobustFedAvg(Method):
    """Train one model for all clients with a robust aggregation instead of the mean.

    Args:
        aggregation: ``trimmed_mean`` or ``median``, both coordinate-wise; ``geometric_median``;
            ``clipped_mean``, the mean of rows whose distance from the median is bounded, or
            ``centered_clipping``, from that mean itself; ``krum``, ``multi_krum`` or ``bulyan``.
        trim: beta of the rules that drop clients, in [0, 1/2): at least the fraction of corrupt
            clients.
        participation: The fraction of the clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> RobustFedAvg(aggregation="median", local=local).fit(federation).models.shape
        torch.Size([1, 6])
    """

    key: ClassVar[str] = "robust-global"
    name: ClassVar[str] = "Robust Global"
    paper: ClassVar[str] = (
        "Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal "
        "Statistical Rates. ICML 2018."
    )
    family: ClassVar[Family] = "baseline"
    clustered: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, SearchSpace]] = {"trim": Range(0.0, 0.4)}

    aggregation: RobustAggregation = "trimmed_mean"
    trim: float = constrained(0.1, at_least=0, less_than=0.5)
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def solve(self, run: Run) -> Answer:
        """Train the model."""
        rule = robust_aggregation(self.aggregation, self.trim, at_least=1)
        return fedavg(run, one_cluster(run), self.local, rule, self.participation)
