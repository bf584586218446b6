"""q-FFL: one model that does more evenly well on all clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from srfca.federation.requests import Losses, Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained

MIN_LOSS = 1e-10
"""Added to a loss before it is raised to a power."""


@register
@dataclass(frozen=True, kw_only=True)
class QFFL(Method):
    """Minimize ``sum_i p_i F_i(w)^(q+1) / (q+1)`` over one model, by q-FedAvg.

    Args:
        q: How much more clients of large loss count; 0 is FedAvg.
        weighted: The p_i are the clients' shares of the samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> QFFL(q=1.0, local=local).fit(federation).models.shape
        torch.Size([1, 6])
    """

    key: ClassVar[str] = "q-ffl"
    name: ClassVar[str] = "q-FFL"
    paper: ClassVar[str] = (
        "Li, Sanjabi, Beirami, Smith: Fair Resource Allocation in Federated Learning. ICLR 2020."
    )
    family: ClassVar[Family] = "baseline"
    clustered: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, SearchSpace]] = {"q": Range(0.001, 10.0, log=True)}

    q: float = constrained(1.0, at_least=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def solve(self, run: Run) -> Answer:
        """Run q-FedAvg."""
        local, everyone = self.local, one_cluster(run)
        w, server = run.initial_model(), ServerUpdate(run, local, local.rounds)
        (count,) = num_participants(everyone, self.participation)
        with run.stage("QFFL", count * local.steps):
            for number in range(local.rounds):
                key = run.key("q-ffl", number)
                clients = participants(run.federation, everyone, self.participation, key)
                losses = run.ask(Losses(clients, w.unsqueeze(0)))
                request = Train(clients, w.expand(len(clients), -1), local, key)
                replies = run.train(request)
                both = np.intersect1d(losses.clients, replies.clients)
                if len(both):
                    rows = replies.values[np.searchsorted(replies.clients, both)]
                    values = losses.values[np.searchsorted(losses.clients, both), 0]
                    p = run.sizes.to(w.device)[torch.as_tensor(both)].to(w)
                    stepped = q_step(
                        w, rows, values.to(w), p if self.weighted else torch.ones_like(p),
                        self.q, 1 / local.lr,
                    )  # fmt: skip
                    w = server.update(number, w.unsqueeze(0), stepped.unsqueeze(0))[0]
                run.end_round("QFFL", number, local.rounds, w.unsqueeze(0), everyone.labels)
        answer = Answer(everyone.labels, server.result(local.rounds - 1, w.unsqueeze(0)))
        run.record("QFFL", everyone, answer.client_models)
        return answer


def q_step(
    w: Tensor, rows: Tensor, losses: Tensor, p: Tensor, q: float, lipschitz: float
) -> Tensor:
    """Return the server's model after a round of q-FedAvg: ``[P]``.

    Args:
        w: ``[P]`` the model that the clients received.
        rows: ``[c, P]`` their trained models.
        losses: ``[c]`` their losses with w.
        p: ``[c]`` their weights.
        q: The exponent.
        lipschitz: L, the inverse of the learning rate.
    """
    exact, p = losses.double() + MIN_LOSS, p.double() / p.double().sum()
    updates = lipschitz * (w - rows).double()
    steps = p * exact**q
    curvature = q * exact ** (q - 1) * updates.square().sum(1) + lipschitz * exact**q
    return (w - (steps @ updates) / (p * curvature).sum()).to(w.dtype)
