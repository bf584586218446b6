"""RSA: clients' models are tied to the server's by an l1 penalty, which bounds what each can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from srfca.federation.algorithms import Descent
from srfca.federation.requests import Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class RSA(Method):
    """Minimize ``sum_i F_i(x_i) + lam |x_i - x_0|_1`` over the models of clients and server.

    Args:
        lam: lambda, the weight of the penalty. In a step of the server, a client moves each
            coordinate by at most ``lam`` times the learning rate, whatever it sends.
        decay: Of the server's model: its own loss is ``decay/2 |x_0|^2``.
        participation: The fraction of the clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> RSA(local=local).fit(federation).models.shape
        torch.Size([1, 6])
    """

    key: ClassVar[str] = "rsa"
    name: ClassVar[str] = "RSA"
    paper: ClassVar[str] = (
        "Li, Xu, Chen, Giannakis, Ling: RSA: Byzantine-Robust Stochastic Aggregation Methods for "
        "Distributed Learning from Heterogeneous Datasets. AAAI 2019."
    )
    family: ClassVar[Family] = "baseline"
    clustered: ClassVar[bool] = False
    server_settings: ClassVar[tuple[str, ...]] = ()
    searched: ClassVar[Mapping[str, SearchSpace]] = {"lam": Range(0.0001, 0.1, log=True)}

    lam: float = constrained(0.002, at_least=0)
    decay: float = constrained(0.0, at_least=0)
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def solve(self, run: Run) -> Answer:
        """In each round: clients train their own models, and the server counts signs."""
        local, everyone = self.local, one_cluster(run)
        center = run.initial_model()
        rows = center.repeat(run.num_clients, 1)
        (count,) = num_participants(everyone, self.participation)
        with run.stage("RSA", count * local.steps):
            for number in range(local.rounds):
                key = run.key("rsa", number)
                clients = participants(run.federation, everyone, self.participation, key)
                starts = rows[torch.as_tensor(clients, device=rows.device)]
                penalty = Descent(corrections=self.lam * (starts - center).sign())
                replies = run.train(Train(clients, starts, local, key, penalty))
                rate, steps = local.rate(local.span(number)[0]), len(local.span(number))
                index = torch.as_tensor(replies.clients, device=rows.device)
                signs = (center - rows[index]).sign().sum(0)
                rows[index] = replies.values
                center = center - steps * rate * (self.decay * center + self.lam * signs)
                run.end_round("RSA", number, local.rounds, center.unsqueeze(0), everyone.labels)
        answer = Answer(everyone.labels, center.unsqueeze(0))
        run.record("RSA", everyone, answer.client_models)
        return answer
