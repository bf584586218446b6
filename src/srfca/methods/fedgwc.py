"""FedGWC: clusters are split by how the clients' losses deviate from those of other clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from srfca.aggregation.rules import Mean
from srfca.clustering.partition import Labels, Partition
from srfca.federation.replies import Clients
from srfca.federation.requests import Scores, Train
from srfca.federation.rounds import aggregate_clusters
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained
from srfca.random import client_words, streams

Array = NDArray[np.float64]
Rewards = Literal["others", "own"]


@register
@dataclass(frozen=True, kw_only=True)
class FedGWC(Method):
    """Train by FedAvg; split a cluster when rewards of its clients' losses show several groups.

    Args:
        participation: In each round, as many clients of each cluster take part as this fraction of
            all clients; a cluster of no more clients is not split any further. With 1 none is.
        gamma: How fast the affinity of two clients falls with the distance of their interactions.
        eps: A cluster may be split when its interactions have changed by less than this, as a
            running mean of squares, for as many rounds as it takes to ask all of its clients.
        compare: What of two clients is compared: ``others``, the rewards of the other clients in
            their rounds, as in the authors' code, or ``own``, their own rewards in the rounds of
            the others.
        max_split: Clusters that a cluster is split into at once, at most; as many as it has times
            the participants of a round, if these are fewer.
        weighted: Weight clients by their number of samples; otherwise all alike.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> FedGWC(participation=0.5, local=local).fit(federation).labels_.shape
        (8,)
    """

    key: ClassVar[str] = "fedgwc"
    name: ClassVar[str] = "FedGWC"
    paper: ClassVar[str] = (
        "Licciardi, Leo, Fani, Caputo, Ciccone: Interaction-Aware Gaussian Weighting for Clustered "
        "Federated Learning. ICML 2025."
    )
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "participation": Range(0.1, 0.5),
        "gamma": Range(0.1, 10.0, log=True),
        "eps": Range(1e-6, 1e-3, log=True),
    }

    participation: float = constrained(0.1, more_than=0, at_most=1)
    gamma: float = constrained(0.1, more_than=0)
    eps: float = constrained(1e-5, more_than=0)
    compare: Rewards = "others"
    max_split: int = constrained(4, at_least=2)
    weighted: bool = True

    @property
    def trainings(self) -> float:
        """At most one: with many clusters all clients take part."""
        return 1.0

    def solve(self, run: Run) -> Answer:
        """In each round: train the clusters, reward their clients, split clusters."""
        count = ceil(self.participation * run.num_clients - 1e-9)
        clusters = [Cluster.of(run.everyone, count)]
        models, splits = run.initial_model().unsqueeze(0), list[dict[str, int]]()
        rounds = self.local.rounds
        server = ServerUpdate(run, self.local, rounds)
        with run.stage("FEDGWC"):
            for number in range(rounds):
                key = run.key("fedgwc", number)
                draws = streams(key, client_words(run.client_ids)).numpy()
                labels = labels_of(clusters, run.num_clients)
                clients = np.concatenate([cluster.drawn(draws) for cluster in clusters])
                starts = models[torch.as_tensor(labels[clients], device=models.device)]
                before = run.ask(Scores(clients, starts, "train"))
                replies = run.train(Train(clients, starts, self.local, key))
                after = run.ask(Scores(replies.clients, replies.values, "train"))
                aggregated = aggregate_clusters(
                    replies.values, replies.clients, labels[replies.clients], models, run.sizes,
                    Mean(self.weighted),
                )  # fmt: skip
                models = server.step(models, aggregated)
                server.add(number, models)
                losses = np.full((run.num_clients, 2), np.nan)
                losses[before.clients, 0] = before.values.loss.cpu().double().numpy()
                losses[after.clients, 1] = after.values.loss.cpu().double().numpy()
                run.end_round("FEDGWC", number, rounds, models, labels)
                parents = self._observe(run, clusters, losses)
                if len(parents) > len(clusters):
                    splits.append({"round": number + 1, "clusters": len(parents)})
                    clusters = [cluster for _, cluster in parents]
                    models = models[torch.tensor([parent for parent, _ in parents])]
        models = server.result(rounds - 1, models)
        labels = labels_of(clusters, run.num_clients)
        answer = Answer(labels, models)
        run.record("FEDGWC", Partition(labels), answer.client_models, notes={"splits": splits})
        return answer

    def _observe(
        self, run: Run, clusters: list[Cluster], losses: Array
    ) -> list[tuple[int, Cluster]]:
        """Update the clusters with the losses ``[m, 2]`` of a round, NaN where unknown.

        Returns:
            The clusters after it, in the order of their first clients, each with the position of
            the one that it was part of.
        """
        sizes = run.sizes.cpu().double().numpy() if self.weighted else np.ones(run.num_clients)
        after = list[tuple[int, Cluster]]()
        for position, cluster in enumerate(clusters):
            parts = [cluster]
            if cluster.can_split and cluster.observe(losses, sizes, self.eps):
                parts = cluster.split(cluster.groups(self.gamma, self.max_split, self.compare))
            after += [(position, part) for part in parts]
        return sorted(after, key=lambda pair: int(pair[1].clients[0]))


@dataclass(eq=False)
class Cluster:
    """A cluster, and what is known of the interactions of its n clients.

    Args:
        clients: ``[n]``
        count: Participants of a round.
        interactions: ``[n, n]`` running means of the reward of a client, by row, over the rounds
            that it shared with another one, by column; relative to the sum of the round's rewards.
        change: Running mean of squared changes of the interactions.
        calm: Rounds in a row with a small change.
    """

    clients: Clients
    count: int
    interactions: Array
    change: float = 1.0
    calm: int = 0

    @classmethod
    def of(cls, clients: Clients, count: int) -> Cluster:
        """Return a cluster of clients ``[n]`` of which nothing is known yet."""
        n = len(clients)
        return cls(clients, count, np.full((n, n), 1 / n**2))

    @property
    def can_split(self) -> bool:
        """Whether not all of its clients take part in a round."""
        return len(self.clients) > self.count

    def drawn(self, draws: NDArray[np.int64]) -> Clients:
        """Return the participants of a round, by draws ``[m]``, in ascending order."""
        order = np.argsort(draws[self.clients], kind="stable")
        return np.sort(self.clients[order[: self.count]])

    def observe(self, losses: Array, sizes: Array, eps: float) -> bool:
        """Update the interactions by a round, and tell whether they have settled.

        Args:
            losses: ``[m, s]`` of all clients, NaN of those that did not take part.
            sizes: ``[m]`` their weights.
            eps: What change is small.
        """
        present = np.flatnonzero(np.isfinite(losses[self.clients]).all(1))
        if len(present) < 2:
            return False
        clients = self.clients[present]
        rewards = gaussian_rewards(losses[clients], sizes[clients])
        alpha, cells = self.count / len(self.clients), np.ix_(present, present)
        old = self.interactions[cells]
        new = (1 - alpha) * old + alpha * (rewards / rewards.sum())[:, None]
        self.interactions[cells] = new
        self.change = (1 - alpha) * self.change + alpha * float(np.square(new - old).mean())
        self.calm = self.calm + 1 if self.change < eps else 0
        return self.calm >= max(1, round(len(self.clients) / self.count))

    def groups(self, gamma: float, max_split: int, compare: Rewards) -> Labels:
        """Return the groups ``[n]`` of its clients by their interactions.

        Args:
            gamma: How fast affinities fall with the distance.
            max_split: The number of groups, at most.
            compare: Whose rewards are compared.
        """
        rewards = self.interactions if compare == "own" else self.interactions.T
        most = min(max_split, len(self.clients) // self.count)
        return find_groups(affinities(rewards, gamma), most)

    def split(self, groups: Labels) -> list[Cluster]:
        """Return a cluster for each group ``[n]``; if there is only one, wait again."""
        if groups.max() == 0:
            self.change, self.calm = 1.0, 0
            return [self]
        parts = [np.flatnonzero(groups == group) for group in range(int(groups.max()) + 1)]
        return [
            Cluster(self.clients[part], self.count, self.interactions[np.ix_(part, part)].copy())
            for part in parts
        ]


def labels_of(clusters: list[Cluster], num_clients: int) -> Labels:
    """Return the cluster of each client: ``[m]``."""
    labels = np.full(num_clients, -1, dtype=np.int64)
    for position, cluster in enumerate(clusters):
        labels[cluster.clients] = position
    return labels


def gaussian_rewards(losses: Array, sizes: Array) -> Array:
    """Return the mean of ``exp(-(loss - mean)^2 / (2 variance))`` over the moments of a round.

    A client whose losses are like those of the others has a reward near 1.

    Args:
        losses: ``[c, s]`` at s moments.
        sizes: ``[c]`` weights of the clients in mean and variance.

    >>> gaussian_rewards(np.array([[1.0], [3.0]]), np.ones(2)).round(4).tolist()
    [0.6065, 0.6065]
    """
    weights = sizes / sizes.sum()
    squares = np.square(losses - weights @ losses)
    return np.asarray(np.exp(-squares / (2 * (weights @ squares + 1e-16))).mean(1))


def affinities(interactions: Array, gamma: float) -> Array:
    """Return how alike the rows of two clients are: ``[n, n]``.

    It is ``exp(-gamma |x_i - x_j|^2)``, where x_i is the row of client i, scaled to [0, 1], without
    the entries of clients i and j. The diagonal is 0.
    """
    low, high = interactions.min(), interactions.max()
    x = (interactions - low) / max(float(high - low), 1e-8)
    squares = np.square(x[:, None] - x).sum(2)
    left_out = np.square(x.diagonal()[:, None] - x.T)  # client i, in the rows of i and j
    return np.asarray(np.exp(-gamma * (squares - left_out - left_out.T)) * (1 - np.eye(len(x))))


def find_groups(affinity: Array, max_groups: int) -> Labels:
    """Return the groups ``[n]`` of spectral clustering that are separated best.

    The number of groups is that of the least Davies-Bouldin score of the spectral embedding, and 1
    unless a score is below 1.
    """
    from sklearn.metrics import davies_bouldin_score

    n = len(affinity)
    best, groups = 1.0, np.zeros(n, dtype=np.int64)
    scale = 1 / np.sqrt(affinity.sum(1) + 1e-16)
    vectors = np.linalg.eigh(affinity * scale * scale[:, None])[1][
        :, ::-1
    ]  # the leading ones first
    for count in range(2, min(max_groups, n - 1) + 1):
        labels = Partition(pivoted_labels(vectors[:, :count])).labels
        if labels.max() == 0:
            continue
        embedding = vectors[:, 1 : count + 1] * scale[:, None]
        if (score := float(davies_bouldin_score(embedding, labels))) < best:
            best, groups = score, labels
    return groups


def pivoted_labels(vectors: Array) -> Labels:
    """Return the clusters of rows ``[n, k]`` of eigenvectors by a pivoted QR decomposition.

    Damle, Minden, Ying: Simple, direct and efficient multi-way spectral clustering. Information and
    Inference 8, 2019.
    """
    from scipy.linalg import qr

    pivots = qr(vectors.T, pivoting=True)[2][: vectors.shape[1]]
    left, _, right = np.linalg.svd(vectors[pivots].T)
    return np.asarray(np.abs(vectors @ (left @ right)).argmax(1), dtype=np.int64)
