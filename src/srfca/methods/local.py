"""Local: every client trains alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from srfca.clustering.partition import Partition
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import train_locally
from srfca.methods._common.run import Run
from srfca.methods.registry import register


@register
@dataclass(frozen=True, kw_only=True)
class Local(Method):
    """Train every client alone from the common start.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> Local(local=local).fit(federation).models.shape
        torch.Size([8, 6])
    """

    key: ClassVar[str] = "local"
    name: ClassVar[str] = "Local"
    paper: ClassVar[str] = "Baseline without communication."
    family: ClassVar[Family] = "baseline"
    clustered: ClassVar[bool] = False

    def solve(self, run: Run) -> Answer:
        """Train a model for each client."""
        with run.stage("LOCAL", run.num_clients * self.local.steps):
            models = train_locally(run, self.local, run.key("local"), private=True)
        alone = Partition(run.everyone)
        run.record("LOCAL", alone, models.answered, clients=models.clients)
        return Answer(alone.labels, models.rows)
