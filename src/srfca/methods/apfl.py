"""APFL: each client predicts with a mix of a global model and its own, and learns the mix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.federation.algorithms.interpolated import AlphaDescent, InterpolatedDescent
from srfca.federation.coordinates import Coordinates
from srfca.federation.replies import Clients
from srfca.federation.requests import Round, Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class APFL(Method):
    """Train w by FedAvg; client i trains v_i on the loss of ``alpha_i v_i + (1 - alpha_i) w``.

    Args:
        alpha: The share of a client's own model; with ``adaptive`` where it starts.
        adaptive: Clients learn alpha_i: a step on one batch at the start of a round.
        alpha_lr: Learning rate of alpha_i. It is apart from that of ``local``, which suits
            models: an alpha_i is a share, whatever the size of the model.
        weighted: Weight clients by their number of samples in w; otherwise all alike.
        participation: The fraction of the clients that take part in a round. A v_i starts from the
            w that its client receives first; a client that is never drawn has the last w.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> APFL(local=local).fit(federation).individual_models.shape
        torch.Size([8, 6])
    """

    key: ClassVar[str] = "apfl"
    name: ClassVar[str] = "APFL"
    paper: ClassVar[str] = "Deng, Kamani, Mahdavi: Adaptive Personalized Federated Learning. 2020."
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "alpha": Range(0.1, 0.9),
        "alpha_lr": Range(0.001, 1.0, log=True),
    }

    alpha: float = constrained(0.5, at_least=0, at_most=1)
    adaptive: bool = True
    alpha_lr: float = constrained(0.01, more_than=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """That of w, that of the v_i, and a step of alpha_i in each round."""
        alphas = self.local.rounds / self.local.steps if self.adaptive else 0.0
        return self.participation * (2 + alphas)

    def solve(self, run: Run) -> Answer:
        """Train w, the v_i and the alpha_i."""
        everyone, w = one_cluster(run), run.initial_model().unsqueeze(0)
        v = w.repeat(run.num_clients, 1)
        alphas = torch.full_like(v[:, :1], self.alpha)  # [m, 1]
        started = torch.zeros_like(alphas, dtype=torch.bool)
        rounds, server = self.local.rounds, ServerUpdate(run, self.local, self.local.rounds)
        steps = 2 * self.local.steps + (rounds if self.adaptive else 0)
        with run.stage("APFL", sum(num_participants(everyone, self.participation)) * steps):
            for number in range(rounds):
                key = run.key("apfl", number)
                clients = participants(run.federation, everyone, self.participation, key)
                v = torch.where(started, v, w)
                at = torch.as_tensor(clients, device=w.device)
                received = w.expand(len(clients), -1)
                if self.adaptive:
                    alphas = self._learn_alphas(run, clients, received, v, alphas, number)
                steps_of_v = InterpolatedDescent(
                    models=received, alphas=alphas[at].expand_as(received)
                )
                request = Train(clients, v[at], self.local, key, steps_of_v, private=True)
                replies = run.train(request, "training of the individual models")
                labels = everyone.labels[clients]
                aggregation = Mean(self.weighted)
                aggregated = run.round(Round(clients, w, labels, self.local, key, aggregation))
                w = server.update(number, w, aggregated)
                replied = torch.as_tensor(replies.clients, device=w.device)
                v[replied] = replies.values.to(w)
                started[replied] = True
                run.end_round("APFL", number, rounds, _mix(alphas, torch.where(started, v, w), w))
            w = server.result(rounds - 1, w)
            mixed = _mix(alphas, torch.where(started, v, w), w)
        run.record("APFL", everyone, mixed, notes={"alpha": alphas[:, 0].tolist()})
        return Answer(everyone.labels, w, individual_models=mixed)

    def _learn_alphas(
        self, run: Run, clients: Clients, received: Tensor, v: Tensor, alphas: Tensor, number: int
    ) -> Tensor:
        """Return alpha of all clients ``[m, 1]`` after a step of some of them."""
        one_step = replace(self.local, steps=self.local.rounds, local_steps=1, lr=self.alpha_lr)
        at = torch.as_tensor(clients, device=v.device)
        step = AlphaDescent(models=received, individual_models=v[at])
        starts, key = alphas[at].expand_as(received), run.key("apfl alpha", number)
        replies = run.train(Train(clients, starts, one_step, key, step, private=True), "alpha")
        trained, _ = Coordinates.trained(run.layers).ranges[0]
        alphas = alphas.clone()
        replied = torch.as_tensor(replies.clients, device=v.device)
        alphas[replied] = replies.values[:, trained : trained + 1].to(v)
        return alphas


def _mix(alphas: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return alphas * v + (1 - alphas) * w
