"""SCAFFOLD: FedAvg whose clients correct the drift of their steps with control variates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from srfca import progress
from srfca.aggregation.rules import Mean
from srfca.errors import require
from srfca.federation.algorithms import Descent
from srfca.federation.replies import Clients, Replies
from srfca.federation.requests import Gradients, Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class Scaffold(Method):
    """Train one model; client i adds ``c - c_i`` to its gradients, so that all drift alike.

    Args:
        option: How a client renews c_i: ``I`` is its full gradient at the model that it received,
            ``II`` the mean of the gradients of its steps, which costs nothing but needs SGD without
            momentum. ``auto`` is II where that is possible, else I.
        server_lr: eta_g: how far the server goes to the mean of the clients' models.
        weighted: Weight clients by their number of samples; otherwise all alike, as in the paper.
        participation: The fraction of the clients that take part in a round; the others keep c_i.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> Scaffold(local=local).fit(federation).models.shape
        torch.Size([1, 6])
    """

    key: ClassVar[str] = "scaffold"
    name: ClassVar[str] = "SCAFFOLD"
    paper: ClassVar[str] = (
        "Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging "
        "for Federated Learning. ICML 2020."
    )
    family: ClassVar[Family] = "baseline"
    clustered: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, SearchSpace]] = {"server_lr": Range(0.1, 1.5, log=True)}

    option: Literal["auto", "I", "II"] = "auto"
    server_lr: float = constrained(1.0, more_than=0)
    weighted: bool = False
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.option != "II" or self._plain_sgd,
            "option='II' reads gradients off the steps of SGD without momentum or clip, but the "
            f"optimizer is {self.local.optimizer} with momentum={self.local.momentum} and "
            f"clip={self.local.clip} (and compress={self.local.compress}): use option='I'",
        )

    @property
    def trainings(self) -> float:
        """One, and a full gradient in each round of option I."""
        gradients = self.local.rounds / self.local.steps if self._asks_gradients else 0.0
        return self.participation * (1 + gradients)

    @property
    def _plain_sgd(self) -> bool:
        local = self.local
        exact = local.clip is None and local.compress is None
        return local.optimizer == "sgd" and local.momentum == 0 and exact

    @property
    def _asks_gradients(self) -> bool:
        return self.option == "I" or (self.option == "auto" and not self._plain_sgd)

    def solve(self, run: Run) -> Answer:
        """Train the model and the control variates."""
        everyone, w = one_cluster(run), run.initial_model()
        server = ServerUpdate(run, self.local, self.local.rounds)
        variates = w.new_zeros(run.num_clients, len(w))  # c_i
        sizes = (run.sizes if self.weighted else torch.ones_like(run.sizes)).to(w)
        shares = sizes / sizes.sum()  # of the clients in c
        count = sum(num_participants(everyone, self.participation))
        gradients = self.local.rounds if self._asks_gradients else 0
        with run.stage("SCAFFOLD", count * (self.local.steps + gradients)):
            for number in range(self.local.rounds):
                key = run.key("scaffold", number)
                clients = participants(run.federation, everyone, self.participation, key)
                starts = w.expand(len(clients), -1)
                common = shares @ variates  # c
                corrections = common - variates[_index(clients, w)]
                descent = Descent(corrections=corrections)
                trained = run.train(Train(clients, starts, self.local, key, descent))
                renewed = self._renew(run, w, corrections, trained, number)
                variates[_index(renewed.clients, w)] = renewed.values.to(w)
                if len(trained.clients):
                    index = _index(trained.clients, w)
                    mean = Mean(self.weighted)(trained.values.to(w), sizes[index])
                    stepped = w + self.server_lr * (mean - w)
                    w = server.update(number, w.unsqueeze(0), stepped.unsqueeze(0))[0]
                run.end_round(
                    "SCAFFOLD", number, self.local.rounds, w.unsqueeze(0), everyone.labels
                )
        answer = Answer(everyone.labels, server.result(self.local.rounds - 1, w.unsqueeze(0)))
        run.record("SCAFFOLD", everyone, answer.client_models)
        return answer

    def _renew(
        self, run: Run, w: Tensor, corrections: Tensor, trained: Replies[Tensor], number: int
    ) -> Replies[Tensor]:
        """Return the new c_i of the clients that replied: ``[c, P]``.

        With option II they are ``c_i - c + (w - y_i) / sum of rates``, for the trained model y_i:
        the steps of SGD go along the gradients plus ``c - c_i``.
        """
        if self._asks_gradients:
            clients = trained.clients
            replies = run.ask(Gradients(clients, w.expand(len(clients), -1)))
            progress.report(len(clients))
            return replies
        rates = sum(self.local.rate(step) for step in self.local.span(number))
        kept = corrections[torch.as_tensor(trained.answered, device=w.device)]
        values = (w - trained.values.to(w)) / rates - kept
        return Replies(trained.clients, values)


def _index(clients: Clients, rows: Tensor) -> Tensor:
    return torch.as_tensor(clients, device=rows.device)
