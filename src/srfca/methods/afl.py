"""Agnostic federated learning: one model for the worst mixture of the clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from srfca.federation.requests import Losses, Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import one_cluster
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class AFL(Method):
    """Minimize ``max_lambda sum_i lambda_i F_i(w)`` over one model, for weights of sum 1.

    Args:
        lambda_lr: Step size of the clients' weights lambda.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> AFL(local=local).fit(federation).models.shape
        torch.Size([1, 6])
    """

    key: ClassVar[str] = "afl"
    name: ClassVar[str] = "AFL"
    paper: ClassVar[str] = "Mohri, Sivek, Suresh: Agnostic Federated Learning. ICML 2019."
    family: ClassVar[Family] = "baseline"
    clustered: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, SearchSpace]] = {"lambda_lr": Range(0.0001, 1.0, log=True)}

    lambda_lr: float = constrained(0.01, at_least=0)

    def solve(self, run: Run) -> Answer:
        """In each round: ascend in lambda, descend in w."""
        local, everyone = self.local, one_cluster(run)
        w, server = run.initial_model(), ServerUpdate(run, local, local.rounds)
        weights = run.sizes.cpu().double() / float(run.sizes.sum())
        with run.stage("AFL", run.num_clients * local.steps):
            for number in range(local.rounds):
                losses = run.ask(Losses(run.everyone, w.unsqueeze(0)))
                starts = w.expand(run.num_clients, -1)
                request = Train(run.everyone, starts, local, run.key("afl", number))
                replies = run.train(request)
                index = torch.as_tensor(replies.clients)
                if len(index) and float(weights[index].sum()) > 0:
                    share = weights[index] / weights[index].sum()
                    mean = share.to(replies.values) @ replies.values
                    w = server.update(number, w.unsqueeze(0), mean.unsqueeze(0))[0]
                ascent = torch.zeros_like(weights)
                ascent[torch.as_tensor(losses.clients)] = losses.values[:, 0].cpu().double()
                weights = project_to_simplex(weights + self.lambda_lr * ascent)
                run.end_round("AFL", number, local.rounds, w.unsqueeze(0), everyone.labels)
        answer = Answer(everyone.labels, server.result(local.rounds - 1, w.unsqueeze(0)))
        run.record("AFL", everyone, answer.client_models, notes={"lambda": weights.tolist()})
        return answer


def project_to_simplex(values: Tensor) -> Tensor:
    """Return the nearest vector of non-negative numbers with sum 1.

    >>> project_to_simplex(torch.tensor([0.5, 1.5, -1.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    ordered = np.sort(values.numpy())[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    return (values - float(excess[ordered > excess][-1])).clamp(min=0.0)
