"""FedAvgM: FedAvg with momentum at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from srfca.federation import Round
from srfca.methods import Answer, Method, Run, register
from srfca.methods.toolbox import one_cluster
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class FedAvgM(Method):
    """Train one model for all clients, with momentum at the server.

    Args:
        momentum: Of the server; with 0 it is FedAvg.
        server_lr: The server's learning rate.
    """

    key: ClassVar[str] = "fedavgm"
    name: ClassVar[str] = "FedAvgM"
    paper: ClassVar[str] = (
        "Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated "
        "Visual Classification. 2019."
    )
    family: ClassVar[Literal["baseline"]] = "baseline"
    clustered: ClassVar[bool] = False

    momentum: float = constrained(0.9, at_least=0, less_than=1)
    server_lr: float = constrained(1.0, more_than=0)

    def solve(self, run: Run) -> Answer:
        """Train the model."""
        everyone = one_cluster(run)
        model = run.initial_model().unsqueeze(0)  # [1, P]
        velocity = torch.zeros_like(model)
        with run.stage("FEDAVGM", run.num_clients * self.local.steps):
            for number in range(self.local.rounds):
                key = run.key("fedavgm", number)
                request = Round(run.everyone, model, everyone.labels, self.local, key)
                velocity = self.momentum * velocity + (run.round(request) - model)
                model = model + self.server_lr * velocity
        answer = Answer(everyone.labels, model)
        run.record("FEDAVGM", everyone, answer.client_models)
        return answer
