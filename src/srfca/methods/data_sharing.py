"""Data sharing: FedAvg whose clients have a common sample of the data beside their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.errors import require
from srfca.federation.algorithms.shared_data import SharedDataDescent
from srfca.federation.replies import Clients
from srfca.federation.requests import Train
from srfca.federation.rounds import aggregate_clusters
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.pool import deal, shared_pool
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained
from srfca.random import Key

SHARED = 0.1
"""The part of the clients' samples that is shared by default."""
FRACTION = 0.5
"""The part of the shared samples that each client is sent by default, at most."""


@register
@dataclass(frozen=True, kw_only=True)
class DataSharing(Method):
    """Train one model by FedAvg, each client on its samples and on some that all have shared.

    Args:
        shared: Samples that each client gives away; together they are G. None is a tenth of a
            client's samples on average, as in the paper.
        fraction: alpha in the paper: the fraction of G that each client is sent, drawn at random.
            None is a half, as in the paper, but no more samples than a client has on average, lest
            all clients train mostly on the same few.
        warm_up: Rounds in which clients train on G alone.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> DataSharing(local=local).fit(federation).models.shape
        torch.Size([1, 6])
    """

    key: ClassVar[str] = "data-sharing"
    name: ClassVar[str] = "Data sharing"
    paper: ClassVar[str] = (
        "Zhao, Li, Lai, Suda, Civin, Chandra: Federated Learning with Non-IID Data. 2018."
    )
    family: ClassVar[Family] = "baseline"
    clustered: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, SearchSpace]] = {"fraction": Range(0.05, 1.0, log=True)}

    shared: int | None = constrained(None, at_least=1)
    fraction: float | None = constrained(None, more_than=0, at_most=1)
    warm_up: int = constrained(0, at_least=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.warm_up < self.local.rounds,
            f"warm_up must be less than the {self.local.rounds} rounds, not {self.warm_up}",
        )

    @property
    def resolved(self) -> Mapping[str, float]:
        """The fraction that few clients are sent."""
        return {"fraction": FRACTION}

    def solve(self, run: Run) -> Answer:
        """Collect the samples, deal them out, and train."""
        everyone, local, model = one_cluster(run), self.local, run.initial_model().unsqueeze(0)
        own = float(run.sizes.double().mean())
        pool = shared_pool(run, self.shared or max(1, round(own * SHARED)), targets=True)
        fraction = self.fraction or min(FRACTION, own / len(pool))
        samples = deal(pool, fraction, run.num_clients, run.key("data sharing deal"))
        sizes = run.sizes.cpu().double()
        shares = (samples.shape[1] / (sizes + samples.shape[1])).unsqueeze(1)
        server = ServerUpdate(run, local, local.rounds)
        steps = sum(num_participants(everyone, self.participation)) * local.steps
        with run.stage("DATA_SHARING", steps):
            for number in range(local.rounds):
                key = run.key("data sharing", number)
                clients = participants(run.federation, everyone, self.participation, key)
                weights = torch.ones_like(shares) if number < self.warm_up else shares
                request = self._request(clients, model, samples, weights, key)
                replies = run.train(request, "a round")
                aggregated = aggregate_clusters(
                    replies.values, replies.clients, 0 * replies.clients, model, run.sizes,
                    Mean(self.weighted),
                )  # fmt: skip
                model = server.step(model, aggregated)
                server.add(number, model)
                run.end_round("DATA_SHARING", number, local.rounds, model, everyone.labels)
        answer = Answer(everyone.labels, server.result(local.rounds - 1, model))
        run.record("DATA_SHARING", everyone, answer.client_models, notes={"shared": len(pool)})
        return answer

    def _request(
        self, clients: Clients, model: Tensor, samples: Tensor, shares: Tensor, key: Key
    ) -> Train:
        """Return the training of some clients."""
        index = torch.as_tensor(clients)
        chosen = samples if len(clients) == len(samples) else samples[index]
        steps = SharedDataDescent(samples=chosen, shares=shares[index])
        return Train(clients, model.expand(len(clients), -1), self.local, key, steps)
