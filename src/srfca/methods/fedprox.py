"""FedProx: FedAvg with a proximal term that keeps clients near the model they were sent.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks.
MLSys 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from srfca.errors import require
from srfca.methods.base import Answer
from srfca.methods.fedavg import Global, fedavg
from srfca.methods.rounds import everybody, plain_mean, weighted_mean
from srfca.methods.run import Run


@dataclass(frozen=True, kw_only=True)
class FedProx(Global):
    """One model for everybody, each client minimising ``F_i(w) + mu/2 |w - w_t|^2`` in round t.

    Args:
        mu: Weight of the proximal term, more than 0.
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of the clients that take part in a round.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train; its own ``prox`` is not used.
    """

    name: ClassVar[str] = "FedProx"

    mu: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.mu > 0, f"mu must be positive, not {self.mu}: FedProx with 0 is Global")

    def solve(self, run: Run) -> Answer:
        """Train the one model."""
        work = replace(self.work, prox=self.mu)
        aggregate = weighted_mean if self.weighted else plain_mean
        return fedavg(run, everybody(run.federation), work, aggregate, self.participation)
