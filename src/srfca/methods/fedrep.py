"""FedRep: a body that all clients share, and a head for each client that stays at home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from srfca.aggregation.rules import Mean
from srfca.errors import require
from srfca.federation.algorithms import Descent, Phase
from srfca.federation.local_training import LocalTraining
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import split_layers
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Layers, Range, SearchSpace
from srfca.methods._common.shared_body import train_body
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class FedRep(Method):
    """Train a shared body by FedAvg; each client trains a head for it, which it never sends.

    In a round a client trains its head with the body fixed, then the body with its head fixed.

    Args:
        head_layers: The number of last layers that are the head; the others are the body.
        head_steps: Steps of a round that train the head; None is half of the local steps.
        body_steps: Steps of a round that train the body; None is what ``head_steps`` leave of the
            local steps. With both, a round may have more steps than ``local.local_steps``.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round. A client that never
            takes part has the head of the initial model.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> digits = data.rotated_digits(num_clients=8, rotations=2)
        >>> federation, local = Simulation(digits, models.mlp(64, 8, 10)), LocalTraining(steps=30)
        >>> FedRep(local=local).fit(federation).individual_models.shape
        torch.Size([8, 610])
    """

    key: ClassVar[str] = "fedrep"
    name: ClassVar[str] = "FedRep"
    paper: ClassVar[str] = (
        "Collins, Hassani, Mokhtari, Shakkottai: Exploiting Shared Representations for "
        "Personalized Federated Learning. ICML 2021."
    )
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False

    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "head_layers": Layers(3),
        "head_steps": Range(1, 30, integer=True),
        "body_steps": Range(1, 10, integer=True),
    }

    head_layers: int = constrained(1, at_least=1)
    head_steps: int | None = constrained(None, at_least=0)
    body_steps: int | None = constrained(None, at_least=1)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = len(self.local.span(0))
        require(
            self.head_steps is None or self.body_steps is not None or self.head_steps < steps,
            f"head_steps must be less than the {steps} local steps of a round, not "
            f"{self.head_steps}: the body trains in the others; set body_steps for longer rounds",
        )

    @property
    def trainings(self) -> float:
        """More than one if a round has more steps than ``local.local_steps``."""
        return self.participation * self._longer.steps / self.local.steps

    @property
    def resolved(self) -> Mapping[str, float]:
        """The steps of the head and of the body in a round."""
        steps = len(self.local.span(0))
        head = steps // 2 if self.head_steps is None else self.head_steps
        return {"head_steps": head, "body_steps": self.body_steps or steps - head}

    @property
    def _longer(self) -> LocalTraining:
        """As many rounds as ``local`` has, each of the steps of the head and of the body."""
        if self.body_steps is None:
            return self.local
        steps = int(sum(self.resolved.values()))
        return replace(self.local, steps=steps * self.local.rounds, local_steps=steps)

    def solve(self, run: Run) -> Answer:
        """Train the body and the heads."""
        body, head = split_layers(run, self.head_layers)
        head_steps = int(self.resolved["head_steps"])
        descent = Descent(phases=(Phase(head, head_steps), Phase(body)))
        return train_body(
            run, "FEDREP", "fedrep", self._longer, head, descent, Mean(self.weighted),
            self.participation,
        )  # fmt: skip
