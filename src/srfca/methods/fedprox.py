"""FedProx: FedAvg with a proximal term that keeps clients near the global model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from srfca.aggregation.rules import Mean
from srfca.methods._common.base import Answer
from srfca.methods._common.rounds import one_cluster
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.fedavg import FedAvg, fedavg
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """Train one model; in round t each client minimizes ``F_i(w) + mu/2 |w - w_t|^2``.

    Args:
        mu: Weight of the proximal term; that of ``local`` is not used. FedProx with 0 is FedAvg.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> FedProx(mu=0.1, local=local).fit(federation).models.shape
        torch.Size([1, 6])
    """

    key: ClassVar[str] = "fedprox"
    name: ClassVar[str] = "FedProx"
    paper: ClassVar[str] = (
        "Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous "
        "Networks. MLSys 2020."
    )
    searched: ClassVar[Mapping[str, SearchSpace]] = {"mu": Range(0.001, 1.0, log=True)}

    mu: float = constrained(0.1, more_than=0)

    def solve(self, run: Run) -> Answer:
        """Train the model."""
        local = replace(self.local, mu=self.mu)
        return fedavg(run, one_cluster(run), local, Mean(self.weighted), self.participation)
