"""Oracle: FedAvg inside the true clusters, the ceiling for every method that has to find them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from srfca.aggregation.rules import Mean
from srfca.clustering.partition import Partition
from srfca.errors import InputError, require
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.run import Run
from srfca.methods.fedavg import fedavg
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class Oracle(Method):
    """Train a model for each true cluster by FedAvg.

    Args:
        truth: The true clusters; None, if they are not known, is refused when the method runs.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of each cluster's clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> Oracle(truth=regressions.truth, local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "oracle"
    name: ClassVar[str] = "Oracle"
    paper: ClassVar[str] = "FedAvg (McMahan et al., AISTATS 2017) in each true cluster."
    family: ClassVar[Family] = "baseline"
    clustered: ClassVar[bool] = False
    needs_truth: ClassVar[bool] = True

    truth: Partition | None
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.truth is None or not len(self.truth.unclustered), "truth must place every client"
        )

    def solve(self, run: Run) -> Answer:
        """Train a model for each cluster."""
        if self.truth is None:
            raise InputError("oracle needs the true clusters, which this data does not have")
        require(
            len(self.truth) == run.num_clients,
            f"truth is for {len(self.truth)} clients, not for {run.num_clients}",
        )
        return fedavg(run, self.truth, self.local, Mean(self.weighted), self.participation)
