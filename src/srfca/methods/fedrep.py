"""FedRep: a body that all clients share, and a head for each client that stays at home."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from srfca.aggregation.rules import Mean
from srfca.errors import require
from srfca.federation.algorithms import Descent, Phase
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import split_layers
from srfca.methods._common.run import Run
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
        head_steps: How many of the local steps of a round train the head; None is half of them.
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

    head_layers: int = constrained(1, at_least=1)
    head_steps: int | None = constrained(None, at_least=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = len(self.local.span(0))
        require(
            self.head_steps is None or self.head_steps < steps,
            f"head_steps must be less than the {steps} local steps of a round, not "
            f"{self.head_steps}: the body trains in the others",
        )

    def solve(self, run: Run) -> Answer:
        """Train the body and the heads."""
        body, head = split_layers(run, self.head_layers)
        head_steps = len(self.local.span(0)) // 2 if self.head_steps is None else self.head_steps
        descent = Descent(phases=(Phase(head, head_steps), Phase(body)))
        return train_body(
            run, "FEDREP", "fedrep", self.local, head, descent, Mean(self.weighted),
            self.participation,
        )  # fmt: skip
