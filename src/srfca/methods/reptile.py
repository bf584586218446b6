"""Reptile: FedAvg as meta-learning, and a few steps of each client in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from srfca.aggregation.rules import Mean
from srfca.federation.algorithms import Descent
from srfca.methods._common.averaging import average_rounds, personalize
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class Reptile(Method):
    """Train w by FedAvg with a rate of the server; each client adapts it by a few steps.

    Args:
        server_lr: How far the server goes to the mean of the clients' models.
        adaptation_steps: How many steps a client adapts its model by in the end.
        inner_lr: Learning rate of the adaptation; None is that of ``local``.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> Reptile(local=local).fit(federation).individual_models.shape
        torch.Size([8, 6])
    """

    key: ClassVar[str] = "reptile"
    name: ClassVar[str] = "Reptile"
    paper: ClassVar[str] = (
        "Jiang, Konecny, Rush, Kannan: Improving Federated Learning Personalization via Model "
        "Agnostic Meta Learning. 2019."
    )
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "server_lr": Range(0.1, 1.5, log=True),
        "inner_lr": Range(0.001, 1.0, log=True),
    }

    server_lr: float = constrained(1.0, more_than=0)
    adaptation_steps: int = constrained(10, at_least=1)
    inner_lr: float | None = constrained(None, more_than=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """That of w, and the adaptation."""
        return self.participation + self.adaptation_steps / self.local.steps

    def solve(self, run: Run) -> Answer:
        """Train w, and adapt it to each client."""
        w = average_rounds(
            run, "REPTILE", "reptile", self.local, Descent(), Mean(self.weighted),
            self.participation, self.server_lr,
        )  # fmt: skip
        lr, steps = self.local.lr if self.inner_lr is None else self.inner_lr, self.adaptation_steps
        adapt = replace(self.local, steps=steps, local_steps=steps, lr=lr, schedule="constant")
        return personalize(run, "ADAPT", "reptile adaptation", w, adapt, Descent())
