"""MAPPER: model interpolation. Clients predict with a mix of a central model and their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.errors import require
from srfca.federation.local_training import LocalTraining
from srfca.federation.replies import Clients
from srfca.federation.requests import Scores, Split, Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.choice import Choice
from srfca.methods._common.rounds import (
    federated_training,
    num_participants,
    one_cluster,
    participants,
)
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class MAPPER(Method):
    """Minimize ``sum_i F_i(lambda_i h_i + (1 - lambda_i) h)`` over h, the h_i and the lambda_i.

    Args:
        grid: The lambda_i are chosen among ``0, 1/grid, ..., (grid - 1)/grid``.
        warm_up: Rounds in which all lambda_i are 0, so that h is trained by FedAvg; None is three
            quarters of the rounds.
        weighted: Weight clients by their number of samples in h; otherwise all alike.
        participation: The fraction of the clients that take part in a round. An h_i starts from the
            h that its client receives first; a client that is never drawn has the last h.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> MAPPER(local=local).fit(federation).individual_models.shape
        torch.Size([8, 6])
    """

    key: ClassVar[str] = "mapper"
    name: ClassVar[str] = "MAPPER"
    paper: ClassVar[str] = (
        "Mansour, Mohri, Ro, Suresh: Three Approaches for Personalization with Applications to "
        "Federated Learning. 2020."
    )
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False
    server_settings: ClassVar[tuple[str, ...]] = ()
    searched: ClassVar[Mapping[str, SearchSpace]] = {"grid": Range(2, 6, integer=True)}

    grid: int = constrained(4, at_least=2)
    warm_up: int | None = constrained(None, at_least=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.warm_up is None or self.warm_up < self.local.rounds,
            f"warm_up must be less than the {self.local.rounds} rounds, not {self.warm_up}",
        )

    @property
    def trainings(self) -> float:
        """One while all lambda_i are 0; then one for each other lambda, and one for h."""
        interpolated = self._interpolated_steps
        steps = self.local.steps - interpolated + self.grid * interpolated
        return self.participation * steps / self.local.steps

    @property
    def _warm_up_rounds(self) -> int:
        return 3 * self.local.rounds // 4 if self.warm_up is None else self.warm_up

    @property
    def _interpolated_steps(self) -> int:
        return self.local.steps - self._warm_up_rounds * self.local.local_steps

    def solve(self, run: Run) -> Answer:
        """Train h alone, then the h_i, the lambda_i and h in turn."""
        everyone, local, first = one_cluster(run), self.local, self._warm_up_rounds
        h = federated_training(
            run, "FEDAVG", run.initial_model().unsqueeze(0), everyone, local, Mean(self.weighted),
            purpose="mapper", participation=self.participation, rounds=range(first),
        )[0]  # fmt: skip
        individual, shares = h.repeat(run.num_clients, 1), h.new_zeros(run.num_clients, 1)
        count = sum(num_participants(everyone, self.participation))
        with run.stage("MAPPER", count * self.grid * self._interpolated_steps):
            for number in range(first, local.rounds):
                key = run.key("mapper", number)
                clients = participants(run.federation, everyone, self.participation, key)
                individual, shares = self._train_individual(
                    run, clients, h, individual, shares, number
                )
                h = self._train_central(run, clients, h, individual, shares, number)
                run.end_round("MAPPER", number, local.rounds, _mix(shares, individual, h))
        mixes = _mix(shares, individual, h)
        run.record("MAPPER", everyone, mixes, notes={"lambda": shares[:, 0].tolist()})
        return Answer(everyone.labels, h.unsqueeze(0), individual_models=mixes)

    def _train_individual(
        self, run: Run, clients: Clients, h: Tensor, individual: Tensor, shares: Tensor, number: int
    ) -> tuple[Tensor, Tensor]:
        """Train the h_i of some clients with every lambda, and keep the best ones.

        Returns:
            The h_i of all clients ``[m, P]``, and their lambda_i ``[m, 1]``.
        """
        split: Split = "validation" if "validation" in run.federation.splits else "train"
        before, choice = torch.where(shares > 0, individual, h), Choice(self.grid, run.num_clients)
        choice.add(0, run.ask(Scores(clients, h.expand(len(clients), -1), split)))
        candidates = [before]
        for place in range(1, self.grid):
            share = place / self.grid
            starts = _mix(share, before[_index(clients, h)], h)
            key = run.key(f"mapper own {place}", number)
            request = Train(clients, starts, self._scaled(share), key, private=True)
            trained = run.train(request, "training of the individual models")
            choice.add(place, run.ask(Scores(trained.clients, trained.values, split)))
            rows = (trained.values.to(h) - (1 - share) * h) / share
            candidates.append(before.index_copy(0, _index(trained.clients, h), rows))
        best, individual, shares = choice.best(), before.clone(), shares.clone()
        for place, rows in enumerate(candidates):
            chosen = _index(np.flatnonzero(best == place), h)
            individual[chosen], shares[chosen] = rows[chosen], place / self.grid
        return individual, shares

    def _train_central(
        self, run: Run, clients: Clients, h: Tensor, individual: Tensor, shares: Tensor, number: int
    ) -> Tensor:
        """Train h on the loss of the clients' mixes, and return it: ``[P]``."""
        places = (shares[_index(clients, h), 0] * self.grid).round().cpu().numpy().astype(np.int64)
        rows, replied = [], []
        for place in np.unique(places):
            share, members = int(place) / self.grid, clients[places == place]
            starts = _mix(share, individual[_index(members, h)], h)
            key = run.key("mapper central", number)
            trained = run.train(Train(members, starts, self._scaled(1 - share), key))
            before = starts[torch.as_tensor(trained.answered, device=h.device)]
            rows.append(h + (trained.values.to(h) - before) / (1 - share))
            replied.append(trained.clients)
        answered = np.concatenate(replied)
        if not len(answered):
            return h
        sizes = run.sizes[_index(answered, run.sizes)].to(h)
        return Mean(self.weighted)(torch.cat(rows), sizes)

    def _scaled(self, share: float) -> LocalTraining:
        """Return how a mix moves when the model of this share in it takes the steps of ``local``.

        The gradient of that model is ``share`` times the gradient of the mix, and the mix moves by
        ``share`` times what the model moves.
        """
        return replace(self.local, lr=share**2 * self.local.lr)


def _mix(shares: Tensor | float, individual: Tensor, h: Tensor) -> Tensor:
    return shares * individual + (1 - shares) * h


def _index(clients: Clients, rows: Tensor) -> Tensor:
    return torch.as_tensor(clients, device=rows.device)
