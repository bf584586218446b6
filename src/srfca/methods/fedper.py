"""FedPer: FedAvg whose last layers stay with the clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from srfca.aggregation.rules import Mean
from srfca.federation.algorithms import Descent
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import split_layers
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Layers, SearchSpace
from srfca.methods._common.shared_body import train_body
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class FedPer(Method):
    """Train a shared body and the clients' heads at once; a client never sends its head.

    Args:
        head_layers: The number of last layers that are the head (the personalization layers).
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round. A client that never
            takes part has the head of the initial model.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> digits = data.rotated_digits(num_clients=8, rotations=2)
        >>> federation, local = Simulation(digits, models.mlp(64, 8, 10)), LocalTraining(steps=30)
        >>> FedPer(local=local).fit(federation).individual_models.shape
        torch.Size([8, 610])
    """

    key: ClassVar[str] = "fedper"
    name: ClassVar[str] = "FedPer"
    paper: ClassVar[str] = (
        "Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers. "
        "2019."
    )
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False

    searched: ClassVar[Mapping[str, SearchSpace]] = {"head_layers": Layers(3)}

    head_layers: int = constrained(1, at_least=1)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def solve(self, run: Run) -> Answer:
        """Train the body and the heads."""
        _, head = split_layers(run, self.head_layers)
        mean = Mean(self.weighted)
        return train_body(
            run, "FEDPER", "fedper", self.local, head, Descent(), mean, self.participation
        )
