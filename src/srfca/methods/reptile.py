"""Reptile: FedAvg as meta-learning, and a few steps of each client in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from srfca.aggregation.rules import Mean
from srfca.errors import require
from srfca.federation.algorithms import Descent
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining, OptimizerName
from srfca.methods._common.averaging import ServerAdam, average_rounds, personalize
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class Reptile(Method):
    """Train w by FedAvg, fine-tune it by rounds of few steps; each client adapts it in the end.

    Args:
        server_lr: How far the server goes to the mean of the clients' models in FedAvg.
        fine_tune_rounds: How many of the rounds, the last ones, are Reptile: of few local steps,
            and with an optimizer at the server.
        fine_tune_local_steps: Local steps of such a round.
        server_optimizer: ``adam`` or ``sgd``: the server's optimizer in these rounds.
        fine_tune_server_lr: Its learning rate.
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
    fine_tune_rounds: int = constrained(0, at_least=0)
    fine_tune_local_steps: int = constrained(5, at_least=1)
    server_optimizer: OptimizerName = "adam"
    fine_tune_server_lr: float = constrained(0.001, more_than=0)
    adaptation_steps: int = constrained(10, at_least=1)
    inner_lr: float | None = constrained(None, more_than=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.fine_tune_rounds < self.local.rounds,
            f"fine_tune_rounds={self.fine_tune_rounds} must be less than the {self.local.rounds} "
            "rounds of the training",
        )

    @property
    def trainings(self) -> float:
        """That of w, and the adaptation."""
        steps = self._fedavg_steps + self._fine_tuning.steps * (self.fine_tune_rounds > 0)
        return (self.participation * steps + self.adaptation_steps) / self.local.steps

    @property
    def _fedavg_steps(self) -> int:
        rounds = self.local.rounds - self.fine_tune_rounds
        return min(self.local.steps, rounds * self.local.local_steps)

    @property
    def _fine_tuning(self) -> LocalTraining:
        """How clients train in the last rounds."""
        steps = self.fine_tune_local_steps
        return replace(self.local, steps=max(1, self.fine_tune_rounds) * steps, local_steps=steps)

    def solve(self, run: Run) -> Answer:
        """Train w, fine-tune it, and adapt it to each client."""
        mean = Mean(self.weighted)
        w = average_rounds(
            run, "REPTILE", "reptile", self.local, Descent(), mean,
            self.participation, self.server_lr, rounds=self.local.rounds - self.fine_tune_rounds,
        )  # fmt: skip
        if self.fine_tune_rounds:
            rate, trained = self.fine_tune_server_lr, Coordinates.trained(run.layers)
            w = average_rounds(
                run, "FINE_TUNE", "reptile fine-tuning", self._fine_tuning, Descent(), mean,
                self.participation, rate, start=w,
                server=ServerAdam(rate, trained) if self.server_optimizer == "adam" else None,
            )  # fmt: skip
        lr, steps = self.local.lr if self.inner_lr is None else self.inner_lr, self.adaptation_steps
        adapt = replace(self.local, steps=steps, local_steps=steps, lr=lr, schedule="constant")
        return personalize(run, "ADAPT", "reptile adaptation", w, adapt, Descent())
