"""RSA: clients' models are tied to the server's by a norm, which bounds what each can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from srfca.federation.algorithms import Descent
from srfca.federation.requests import Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Choices, Range, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained

Norm = Literal["l1", "l2", "max"]


@register
@dataclass(frozen=True, kw_only=True)
class RSA(Method):
    """Minimize ``sum_i F_i(x_i) + lam |x_i - x_0|`` over the models of clients and server.

    Args:
        lam: lambda, the weight of the penalty. In a step of the server, a client moves the model by
            a subgradient of ``lam`` times the norm and the learning rate, whatever it sends.
        norm: Norm of the differences: ``l1``, a client moves each coordinate by at most ``lam``
            times the learning rate; ``l2``, the whole model by so much; ``max``, the largest
            coordinates by so much in total.
        decay: Decay of the server's model: its own loss is ``decay/2 |x_0|^2``.
        server_lr: Factor of the server's step: 1 is the paper's; None is two divided by the number
            of participants, so that the server does not overshoot the clients.
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
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "lam": Range(0.0001, 10.0, log=True),
        "norm": Choices(("l1", "l2")),
    }

    lam: float = constrained(0.05, at_least=0)
    norm: Norm = "l1"
    decay: float = constrained(0.0, at_least=0)
    server_lr: float | None = constrained(None, more_than=0)
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def solve(self, run: Run) -> Answer:
        """In each round: clients train their own models, and the server takes a step to them."""
        local, everyone = self.local, one_cluster(run)
        center = run.initial_model()
        rows = center.repeat(run.num_clients, 1)
        (count,) = num_participants(everyone, self.participation)
        server_lr = 2 / count if self.server_lr is None else self.server_lr
        with run.stage("RSA", count * local.steps):
            for number in range(local.rounds):
                key = run.key("rsa", number)
                clients = participants(run.federation, everyone, self.participation, key)
                starts = rows[torch.as_tensor(clients, device=rows.device)]
                penalty = Descent(corrections=self.lam * subgradient(starts - center, self.norm))
                replies = run.train(Train(clients, starts, local, key, penalty))
                rate, steps = local.rate(local.span(number)[0]), len(local.span(number))
                index = torch.as_tensor(replies.clients, device=rows.device)
                rows[index] = replies.values
                pull = self.lam * subgradient(center - rows[index], self.norm).sum(0)
                center = center - server_lr * steps * rate * (self.decay * center + pull)
                run.end_round("RSA", number, local.rounds, center.unsqueeze(0), everyone.labels)
        answer = Answer(everyone.labels, center.unsqueeze(0))
        run.record("RSA", everyone, answer.client_models)
        return answer


def subgradient(differences: Tensor, norm: Norm) -> Tensor:
    """Return a subgradient of the norm of each row ``[c, P]``; that of a row of zeros is 0.

    >>> subgradient(torch.tensor([[3.0, -4.0], [0.0, 0.0]]), "l2").tolist()
    [[0.6000000238418579, -0.800000011920929], [0.0, 0.0]]
    >>> subgradient(torch.tensor([[3.0, -4.0], [5.0, -5.0]]), "max").tolist()
    [[0.0, -1.0], [0.5, -0.5]]
    """
    if norm == "l1":
        return differences.sign()
    if norm == "l2":
        lengths = differences.norm(dim=1, keepdim=True)
        directions: Tensor = differences / lengths.clamp(min=torch.finfo(differences.dtype).tiny)
        return directions
    sizes = differences.abs()
    largest: Tensor = (sizes == sizes.amax(1, keepdim=True)) * differences.sign()
    return largest / largest.abs().sum(1, keepdim=True).clamp(min=1)
