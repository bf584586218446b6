"""DAPPER: data interpolation. Clients train on a mix of their own samples and those of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.errors import require
from srfca.federation.algorithms.shared_data import SharedDataDescent
from srfca.federation.requests import Scores, Split, Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.choice import Choice
from srfca.methods._common.pool import deal, shared_pool
from srfca.methods._common.rounds import federated_training, num_participants, one_cluster
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class DAPPER(Method):
    """Client i minimizes ``lambda_i F_i(w) + (1 - lambda_i) F_C(w)``, C a sample of all data.

    Args:
        grid: The lambda_i are chosen among ``0, 1/grid, ..., 1``; 0 is the central model.
        shared: Samples of each client that make up C.
        central_rounds: Rounds of FedAvg for the central model, from which the clients start; None
            is three quarters of the rounds.
        weighted: Weight clients by their number of samples in FedAvg; otherwise all alike.
        participation: The fraction of the clients that take part in a round of FedAvg.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> DAPPER(local=local).fit(federation).individual_models.shape
        torch.Size([8, 6])
    """

    key: ClassVar[str] = "dapper"
    name: ClassVar[str] = "DAPPER"
    paper: ClassVar[str] = (
        "Mansour, Mohri, Ro, Suresh: Three Approaches for Personalization with Applications to "
        "Federated Learning. 2020."
    )
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False
    server_settings: ClassVar[tuple[str, ...]] = ("server_momentum",)
    searched: ClassVar[Mapping[str, SearchSpace]] = {"grid": Range(2, 6, integer=True)}

    grid: int = constrained(4, at_least=1)
    shared: int = constrained(5, at_least=1)
    central_rounds: int | None = constrained(None, at_least=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.central_rounds is None or self.central_rounds < self.local.rounds,
            f"central_rounds must be less than the {self.local.rounds} rounds, not "
            f"{self.central_rounds}",
        )

    @property
    def trainings(self) -> float:
        """That of the central model, then one of all clients for each lambda but 0."""
        personal = self._personal_steps
        central = self.local.steps - personal
        return (self.participation * central + self.grid * personal) / self.local.steps

    @property
    def _central_rounds(self) -> int:
        if self.central_rounds is None:
            return 3 * self.local.rounds // 4
        return self.central_rounds

    @property
    def _personal_steps(self) -> int:
        return self.local.steps - self._central_rounds * self.local.local_steps

    def solve(self, run: Run) -> Answer:
        """Train the central model, then the clients' models with every lambda."""
        everyone, first = one_cluster(run), self._central_rounds
        pool = shared_pool(run, self.shared, targets=True)
        samples = deal(pool, 1.0, run.num_clients, run.key("dapper deal"))
        central = federated_training(
            run, "FEDAVG", run.initial_model().unsqueeze(0), everyone, self.local,
            Mean(self.weighted), purpose="dapper", participation=self.participation,
            rounds=range(first),
        )  # fmt: skip
        count = sum(num_participants(everyone, 1.0))
        with run.stage("DAPPER", count * self.grid * self._personal_steps):
            individual, lambdas = self._interpolate(run, samples, central[0])
        notes = {"lambda": lambdas.tolist(), "shared": len(pool)}
        run.record("DAPPER", everyone, individual, notes=notes)
        return Answer(everyone.labels, central, individual_models=individual)

    def _interpolate(self, run: Run, samples: Tensor, central: Tensor) -> tuple[Tensor, Tensor]:
        """Train the clients with every lambda, and keep their best models.

        Returns:
            The models ``[m, P]``, and the lambda_i ``[m]``.
        """
        split: Split = "validation" if "validation" in run.federation.splits else "train"
        choice, candidates = Choice(self.grid + 1, run.num_clients), list[Tensor]()
        for place in range(self.grid + 1):
            models = central.repeat(run.num_clients, 1)
            shares = torch.full((run.num_clients, 1), 1 - place / self.grid)
            steps = SharedDataDescent(samples=samples, shares=shares)
            for number in range(self._central_rounds, self.local.rounds) if place else ():
                key = run.key(f"dapper {place}", number)
                request = Train(run.everyone, models, self.local, key, steps, private=True)
                models = run.train(request, "training of the individual models").fill(models)
                run.end_round(f"DAPPER {place}", number, self.local.rounds, models)
            choice.add(place, run.ask(Scores(run.everyone, models, split)))
            candidates.append(models)
        best = torch.as_tensor(choice.best().clip(min=0))
        individual = torch.stack(candidates)[best, torch.arange(run.num_clients)]
        return individual, best.double() / self.grid
