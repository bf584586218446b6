"""Per-FedAvg: a model that is good after one step on a client's data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from srfca.aggregation.rules import Mean
from srfca.federation.algorithms import Descent
from srfca.federation.algorithms.meta import MetaDescent
from srfca.methods._common.averaging import average_rounds, personalize
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Choices, Range, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class PerFedAvg(Method):
    """Train w so that ``F_i(w - a grad F_i(w))`` is small; each client takes that step in the end.

    Args:
        hessian: How the gradient of that loss is approximated: ``first_order`` leaves its Hessian
            out (2 gradients a step), ``hessian_free`` takes a difference of gradients (4).
        inner_lr: a (alpha in the paper), the learning rate of the adaptation; that of ``local`` is
            beta, of w.
        delta: How far apart the gradients of the difference are.
        adaptation_steps: How many full gradient steps a client adapts its model by in the end.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> PerFedAvg(local=local).fit(federation).individual_models.shape
        torch.Size([8, 6])
    """

    key: ClassVar[str] = "per-fedavg"
    name: ClassVar[str] = "Per-FedAvg"
    paper: ClassVar[str] = (
        "Fallah, Mokhtari, Ozdaglar: Personalized Federated Learning with Theoretical Guarantees: "
        "A Model-Agnostic Meta-Learning Approach. NeurIPS 2020."
    )
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "inner_lr": Range(0.001, 1.0, log=True),
        "hessian": Choices(("first_order", "hessian_free")),
    }

    hessian: Literal["first_order", "hessian_free"] = "hessian_free"
    inner_lr: float = constrained(0.01, more_than=0)
    delta: float = constrained(0.001, more_than=0)
    adaptation_steps: int = constrained(1, at_least=1)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """The gradients of a step of w, and the adaptation."""
        adaptation = self.adaptation_steps / self.local.steps
        return self.participation * self._algorithm.num_gradients + adaptation

    @property
    def _algorithm(self) -> MetaDescent:
        delta = self.delta if self.hessian == "hessian_free" else 0.0
        return MetaDescent(inner_lr=self.inner_lr, delta=delta)

    def solve(self, run: Run) -> Answer:
        """Train w, and adapt it to each client."""
        algorithm, local = self._algorithm, self.local
        count = algorithm.num_gradients
        in_gradients = replace(
            local, steps=count * local.steps, local_steps=count * local.local_steps
        )
        w = average_rounds(
            run, "PER_FEDAVG", "per-fedavg", in_gradients, algorithm, Mean(self.weighted),
            self.participation,
        )  # fmt: skip
        steps = self.adaptation_steps
        adapt = replace(
            local, steps=steps, local_steps=steps, lr=self.inner_lr, batch_size=None,
            optimizer="sgd", momentum=0.0, schedule="constant",
        )  # fmt: skip
        return personalize(run, "ADAPT", "per-fedavg adaptation", w, adapt, Descent())
