"""FLSC: IFCA with clusters that overlap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.replies import Clients
from srfca.federation.requests import Losses, Train
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.init import Start, check_start_steps, starting_models
from srfca.methods._common.rounds import (
    argmin_loss,
    num_participants,
    one_cluster,
    participants,
    require_replies,
)
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Choices, Range, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class FLSC(Method):
    """In each round, clients train the mean of the few of k models that fit their data best.

    Args:
        k: Number of clusters.
        clusters_per_client: Clusters that each client is in, at most k; 1 is IFCA.
        start: ``random`` (k random models, as in the paper), ``clients`` (the models of k clients
            drawn at random that train alone from w0) or ``distant`` (of k clients that do badly
            with each other's models).
        start_steps: How long those clients train; None is one round of ``local``.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round.

    >>> from srfca import LocalTraining, Simulation, data, models
    >>> fed = Simulation(data.rotated_digits(num_clients=20, rotations=2), models.mlp(64, 32, 10))
    >>> local = LocalTraining(steps=60, batch_size=10, lr=0.5)
    >>> result = FLSC(k=4, local=local).fit(fed, seed=0)
    >>> result.individual_models.shape
    torch.Size([20, 2410])
    """

    key: ClassVar[str] = "flsc"
    name: ClassVar[str] = "FLSC"
    paper: ClassVar[str] = (
        "Li, Li, Varshney: Federated Learning With Soft Clustering. IEEE Internet of Things "
        "Journal 9, 2022."
    )
    needs_k: ClassVar[bool] = True
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "clusters_per_client": Range(1, 3, integer=True),
        "start": Choices(("random", "clients", "distant")),
    }

    k: int = constrained(2, at_least=1)
    clusters_per_client: int = constrained(2, at_least=1)
    start: Start = "random"
    start_steps: int | None = None
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_start_steps(self.start_steps, self.local)

    @property
    def trainings(self) -> float:
        """One, of the participants."""
        return self.participation

    def solve(self, run: Run) -> Answer:
        """In each round: clients choose clusters, train the mean of their models, aggregate."""
        everyone, local = one_cluster(run), self.local
        steps = self.start_steps or min(local.local_steps, local.steps)
        models, _ = starting_models(run, self.k, self.start, local, steps, "flsc start")
        server = ServerUpdate(run, local, local.rounds)
        sizes = run.sizes.double() if self.weighted else torch.ones(run.num_clients).double()
        joined = torch.zeros(run.num_clients, self.k, dtype=torch.bool)
        with run.stage("FLSC", sum(num_participants(everyone, self.participation)) * local.steps):
            for number in range(local.rounds):
                key = run.key("flsc", number)
                clients = participants(run.federation, everyone, self.participation, key)
                replies = run.ask(Losses(clients, models))
                self._choose(joined, replies.clients, replies.values)
                starts = fuse(models, joined[torch.as_tensor(replies.clients)])
                trained = run.train(Train(replies.clients, starts, local, key))
                index = torch.as_tensor(trained.clients)
                weights = joined[index] * sizes.cpu()[index].unsqueeze(1)
                models = server.step(models, cluster_means(trained.values, weights, models))
                server.add(number, models)
                run.end_round("FLSC", number, local.rounds, fuse(models, joined))
            models = server.result(local.rounds - 1, models)
            last = run.ask(Losses(run.everyone, models))
        self._choose(joined, last.clients, last.values)
        require_replies(np.flatnonzero(joined.any(1).numpy()))
        labels = torch.where(joined.any(1), joined.int().argmax(1), -1).numpy().copy()
        labels[last.clients] = argmin_loss(last.values)
        answer = Answer.canonical(labels, models, fuse(models, joined))
        notes = {"clusters": [row.nonzero().flatten().tolist() for row in joined]}
        run.record("FLSC", Partition(labels), answer.client_models, notes=notes)
        return answer

    def _choose(self, joined: Tensor, clients: Clients, losses: Tensor) -> None:
        """Put clients into the clusters of least loss, among losses ``[c, k]``."""
        order = losses.cpu().nan_to_num(nan=torch.inf).argsort(dim=1, stable=True)
        rows = torch.zeros(len(clients), self.k, dtype=torch.bool)
        joined[torch.as_tensor(clients)] = rows.scatter(
            1, order[:, : self.clusters_per_client], True
        )


def fuse(models: Tensor, joined: Tensor) -> Tensor:
    """Return the mean of the models of each client's clusters: ``[c, P]``.

    Args:
        models: ``[k, P]``
        joined: ``[c, k]`` which clusters each client is in; none is all of them.

    >>> models = torch.tensor([[0.0], [4.0], [8.0]])
    >>> fuse(models, torch.tensor([[True, True, False], [False, True, True]])).tolist()
    [[2.0], [6.0]]
    """
    weights = torch.where(joined.any(1, keepdim=True), joined, True).to(models)
    return weights / weights.sum(1, keepdim=True) @ models


def cluster_means(rows: Tensor, weights: Tensor, models: Tensor) -> Tensor:
    """Return the mean of the rows of each cluster: ``[k, P]``.

    Args:
        rows: ``[c, P]``
        weights: ``[c, k]`` of each client in each cluster, 0 if it is not in it.
        models: ``[k, P]`` what a cluster without clients keeps.
    """
    total = weights.sum(0)
    means = (weights / total.clamp(min=1e-30)).to(rows).T @ rows
    return torch.where((total > 0).to(rows.device).unsqueeze(1), means, models)
