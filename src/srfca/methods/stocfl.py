"""StoCFL: clusters are merged by the cosines of the clients' updates of one anchor model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.clustering.partition import Labels, Partition
from srfca.errors import require
from srfca.federation.algorithms import Descent
from srfca.federation.replies import Clients
from srfca.federation.requests import Round, Train
from srfca.federation.rounds import aggregate_clusters
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.init import train_from_start
from srfca.methods._common.rounds import (
    num_participants,
    one_cluster,
    participants,
    require_replies,
    trained_part,
)
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.cfl import similarities
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class StoCFL(Method):
    """Merge clusters whose mean anchor updates are similar; each trains close to a global model.

    Args:
        tau: Clusters are merged while the cosine of their representations is above this.
        mu: lambda in the paper: how strongly a cluster's model is pulled to the global model.
        anchor_steps: Steps that a client trains the anchor w0 for, once; at most ``local.steps``.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round. A client is
            represented when it is drawn first, and clients that never are, in the end.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> StoCFL(tau=0.8, local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "stocfl"
    name: ClassVar[str] = "StoCFL"
    paper: ClassVar[str] = (
        "Zeng, Hu, Liu, Yu, Wang, Xu: Stochastic Clustered Federated Learning. 2023."
    )
    server_settings: ClassVar[tuple[str, ...]] = ()
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "tau": Range(0.05, 0.95),
        "mu": Range(0.001, 1.0, log=True),
    }

    tau: float = constrained(0.5, at_least=-1, at_most=1)
    mu: float = constrained(0.05, at_least=0)
    anchor_steps: int = constrained(50, at_least=1)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """Those of the global model and the cluster's, and that of the anchor."""
        return 2 * self.participation + self.observed_steps / self.local.steps

    @property
    def observed_steps(self) -> int:
        """Steps of the anchor."""
        return min(self.anchor_steps, self.local.steps)

    def solve(self, run: Run) -> Answer:
        """In each round: represent new clients, merge clusters, train both levels."""
        local, everyone = self.local, one_cluster(run)
        (count,) = num_participants(everyone, self.participation)
        state = Clusters.empty(run)
        omega, merges = run.initial_model().unsqueeze(0), list[int]()
        steps = 2 * count * local.steps + run.num_clients * self.observed_steps
        with run.stage("STOCFL", steps):
            for number in range(local.rounds):
                key = run.key("stocfl", number)
                clients = participants(run.federation, everyone, self.participation, key)
                before = state.admit(run, clients, omega, self)
                merges.append(before - len(state.models))
                clients = clients[state.labels[clients] >= 0]
                if not len(clients):
                    continue
                received = omega
                omega = run.round(
                    Round(clients, omega, 0 * clients, local, key, Mean(self.weighted))
                )
                self._train_clusters(run, state, clients, received, number)
                run.end_round("STOCFL", number, local.rounds, state.models, state.labels)
            before = state.admit(run, run.everyone, omega, self)
            merges.append(before - len(state.models))
        require_replies(np.flatnonzero(state.labels >= 0))
        run.curve.renumber("STOCFL", state.labels)
        answer = Answer.canonical(state.labels, state.models)
        distances = np.full((run.num_clients, run.num_clients), np.nan)
        represented = np.flatnonzero(state.labels >= 0)
        distances[np.ix_(represented, represented)] = 1 - similarities(
            state.representations[represented]
        )
        notes = {"merges": merges}
        run.record("STOCFL", Partition(state.labels), answer.client_models, distances, notes)
        return answer

    def _train_clusters(
        self, run: Run, state: Clusters, clients: Clients, omega: Tensor, number: int
    ) -> None:
        """Train the clusters' models for a round, with the pull to the global model."""
        labels = torch.as_tensor(state.labels[clients], device=omega.device)
        pulled = replace(self.local, mu=self.mu)
        pull = Descent(anchors=omega.expand(len(clients), -1))
        key = run.key("stocfl clusters", number)
        request = Train(clients, state.models[labels], pulled, key, pull)
        replies = run.train(request, "training of the clusters' models")
        state.models = aggregate_clusters(
            replies.values, replies.clients, state.labels[replies.clients], state.models,
            run.sizes, Mean(self.weighted),
        )  # fmt: skip


@dataclass(eq=False)
class Clusters:
    """The clusters so far.

    Args:
        labels: ``[m]`` the cluster of each client, -1 for clients that are not represented yet.
        models: ``[k, P]``
        representations: ``[m, n]`` the clients' updates of the anchor, of length 1.
    """

    labels: Labels
    models: Tensor
    representations: Tensor

    @classmethod
    def empty(cls, run: Run) -> Clusters:
        """Return no clusters."""
        w0 = run.initial_model()
        representations = torch.zeros_like(trained_part(run, w0.expand(run.num_clients, -1)))
        labels = np.full(run.num_clients, -1, dtype=np.int64)
        return cls(labels, w0.new_empty(0, len(w0)), representations)

    def admit(self, run: Run, clients: Clients, omega: Tensor, method: StoCFL) -> int:
        """Represent clients that are new, each a cluster with the global model, and merge.

        Args:
            run: The run.
            clients: Those that take part; those with a representation are not asked again.
            omega: ``[1, P]`` the global model.
            method: Its parameters.

        Returns:
            The number of clusters before they are merged.
        """
        new = clients[self.labels[clients] < 0]
        if not len(new):
            return len(self.models)
        replies = train_from_start(run, new, method.local, method.observed_steps, "stocfl anchor")
        updates = trained_part(run, replies.values - run.initial_model())
        self.representations[torch.as_tensor(replies.clients)] = unit_length(updates)
        before = len(self.models) + len(replies.clients)
        self.labels[replies.clients] = np.arange(len(self.models), before)
        self.models = torch.cat([self.models, omega.expand(len(replies.clients), -1)])
        represented = np.flatnonzero(self.labels >= 0)
        if len(represented):
            groups = merge_similar(
                self.representations[torch.as_tensor(represented)],
                self.labels[represented],
                method.tau,
            )
            self._merge(
                represented, groups, run.sizes if method.weighted else torch.ones(len(run.sizes))
            )
        return before

    def _merge(self, represented: Clients, groups: Labels, sizes: Tensor) -> None:
        """Relabel represented clients, and average the models of merged clusters."""
        count = int(groups.max()) + 1
        weights = torch.zeros(count, len(self.models), dtype=torch.float64)
        for client, group in zip(represented, groups, strict=True):
            weights[group, self.labels[client]] += float(sizes[client])
        weights /= weights.sum(1, keepdim=True)
        self.models = weights.to(self.models) @ self.models
        self.labels[represented] = groups


def unit_length(rows: Tensor) -> Tensor:
    """Return rows ``[c, n]`` scaled to length 1; a row of zeros stays.

    >>> unit_length(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / lengths.clamp(min=torch.finfo(rows.dtype).tiny)


def merge_similar(representations: Tensor, labels: Labels, tau: float) -> NDArray[np.int64]:
    """Merge clusters, the most similar pair first, while a cosine is above tau.

    A cluster's representation is the mean of those of its clients.

    Args:
        representations: ``[c, n]``, of length 1.
        labels: ``[c]`` the cluster of each client: 0 to k - 1.
        tau: The threshold.

    Returns:
        New labels ``[c]`` from 0, in the order of the first client.

    >>> at = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [-1.0, 0.0]])
    >>> merge_similar(at, np.arange(4), 0.7).tolist()
    [0, 0, 1, 2]
    """
    require(len(labels) > 0, "there are no clusters to merge")
    merged = Partition(labels).labels.copy()
    exact = representations.double().cpu()
    gram = (exact @ exact.T).numpy()
    k = int(merged.max()) + 1
    member = (np.arange(k)[:, None] == merged).astype(np.float64)
    sums = member @ gram @ member.T  # products of the sums of representations
    alive = np.ones(k, dtype=bool)
    while alive.sum() > 1:
        norms = np.sqrt(np.clip(sums.diagonal(), np.finfo(np.float64).tiny, None))
        cosines = sums / norms / norms[:, None]
        cosines[~alive] = cosines[:, ~alive] = -np.inf
        np.fill_diagonal(cosines, -np.inf)
        a, b = sorted(divmod(int(cosines.argmax()), k))
        if not cosines[a, b] > tau:
            break
        sums[a] += sums[b]
        sums[:, a] += sums[:, b]
        merged[merged == b] = a
        alive[b] = False
    return Partition(merged).labels.copy()
