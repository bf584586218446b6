"""FedGroup: groups of clients whose first updates point the same way, and FedAvg inside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.clustering.linkage import agglomerate
from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.local_training import LocalTraining
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, Replies
from srfca.federation.requests import Train
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.result import Result
from srfca.methods._common.rounds import (
    federated_training,
    one_cluster,
    participants,
    require_replies,
    trained_part,
)
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Choices, Range, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained
from srfca.random import Key


@register
@dataclass(frozen=True, kw_only=True)
class FedGroup(Method):
    """Group clients by the directions of their pretraining updates, then FedAvg in each group.

    Args:
        k: The number of groups.
        pretrained: alpha, the fraction of the clients that the groups are formed from; the others
            come later, and join the group of the nearest direction.
        pretrain_steps: Steps of a client's pretraining from w0.
        measure: How updates are compared: ``edc``, k-means on their cosines with a few main
            directions, or ``madc``, complete linkage on the mean difference of their cosines with
            all other updates.
        eta_g: After every round each group's model becomes a weighted mean of all groups' models:
            its own with weight 1, the others with eta_g over their norms. 0 keeps groups apart.
        participation: The fraction of each group's clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> FedGroup(k=2, local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "fedgroup"
    name: ClassVar[str] = "FedGroup"
    paper: ClassVar[str] = (
        "Duan, Liu, Ji, Liu, Liang, Chen, Tan: FedGroup: Efficient Clustered Federated Learning "
        "via Decomposed Data-Driven Measure, 2020 (as FlexCFL in IEEE TPDS 2021)."
    )
    needs_k: ClassVar[bool] = True
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "pretrain_steps": Range(5, 200, log=True, integer=True),
        "measure": Choices(("edc", "madc")),
    }

    k: int = constrained(4, at_least=1)
    pretrained: float = constrained(1.0, more_than=0, at_most=1)
    pretrain_steps: int = constrained(50, at_least=1)
    measure: Literal["edc", "madc"] = "edc"
    eta_g: float = constrained(0.0, at_least=0)
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """The pretraining, and FedAvg."""
        return self.participation + self.pretrain_steps / self.local.steps

    def solve(self, run: Run) -> Answer:
        """Find the groups and their models."""
        m, w0 = run.num_clients, run.initial_model()
        founders = participants(
            run.federation, one_cluster(run), self.pretrained, run.key("fedgroup founders")
        )
        require(
            self.k <= len(founders),
            f"k={self.k} is more than the {len(founders)} clients that groups are formed from",
        )
        with run.stage("COLD_START", m * self.pretrain_steps):
            request = self.pretraining(run.everyone, w0, run.seed)
            replies = run.train(request, "pretraining")
            clients, updates = replies.clients, replies.values - w0
            founding = np.isin(clients, founders)
            require_replies(clients[founding], self.k)
            founder_updates = updates[torch.tensor(founding)]
            groups = group(trained_part(run, founder_updates), self.k, run.seed, self.measure)
            directions = torch.stack(
                [
                    founder_updates[torch.tensor(groups == c)].mean(0)
                    for c in range(groups.max() + 1)
                ]
            )
            labels = np.full(m, -1)
            labels[clients] = nearest_direction(
                trained_part(run, updates), trained_part(run, directions)
            )
            labels[clients[founding]] = groups
        grouped = Answer.canonical(labels, w0 + directions)
        partition = Partition(grouped.labels)
        notes = {"founders": founders.tolist(), "empty": self.k - len(directions)}
        run.record("COLD_START", partition, grouped.client_models, notes=notes)

        models = federated_training(
            run, "FEDAVG", grouped.models, partition, self.local, Mean(), purpose="fedgroup",
            participation=self.participation, project=self._exchange_between_groups,
        )  # fmt: skip
        answer = Answer(grouped.labels, models)
        run.record("FEDAVG", partition, answer.client_models)
        return answer

    def pretraining(self, clients: Clients, w0: Tensor, seed: int) -> Train:
        """Return the request by which clients train shortly from w0, at a constant rate.

        Args:
            w0: ``[P]``
            clients: ``[c]``
            seed: Seed of the run.
        """
        local = pretraining_of(self.local, self.pretrain_steps)
        starts = w0.expand(len(clients), -1)
        return Train(clients, starts, local, Key(seed, "fedgroup pretraining"))

    def assign(self, result: Result, newcomers: Federation) -> NDArray[np.int64]:
        """Assign the clients of another federation to groups (cold start).

        They train shortly from the w0 of the result's seed. A client joins the group that has moved
        from w0 in the direction nearest to its own update.

        Args:
            result: Result of this method.
            newcomers: A federation with the same model.

        Returns:
            ``[c]`` the group of each client, -1 for those that did not reply.
        """
        run = Run(newcomers, result.seed)
        w0 = run.initial_model().to(result.models.device)
        replies: Replies[Tensor] = run.train(self.pretraining(run.everyone, w0, result.seed))
        labels = np.full(run.num_clients, -1)
        labels[replies.clients] = nearest_direction(
            trained_part(run, replies.values - w0), trained_part(run, result.models - w0)
        )
        return labels

    def _exchange_between_groups(self, models: Tensor) -> Tensor:
        return mixed_models(models, self.eta_g) if self.eta_g else models


def pretraining_of(local: LocalTraining, steps: int) -> LocalTraining:
    """Return the same training for this many steps without aggregation, at a constant rate."""
    return replace(local, steps=steps, local_steps=steps, schedule="constant")


def group(
    updates: Tensor, k: int, seed: int, measure: Literal["edc", "madc"] = "edc"
) -> NDArray[np.int64]:
    """Group the updates ``[n, P]`` by one of the two measures: ``[n]``."""
    if measure == "madc":
        return agglomerate(
            mean_cosine_differences(updates), k=k, linkage="complete"
        ).partition.labels
    from sklearn.cluster import KMeans

    word = Key(seed, "fedgroup k-means").word() % 2**32
    features = decomposed_similarity(updates, k).cpu().double().numpy()
    distinct = len(np.unique(features, axis=0))
    labels = KMeans(min(k, distinct), n_init=10, random_state=word).fit_predict(features)
    return Partition(labels.astype(np.int64)).labels


def mean_cosine_differences(updates: Tensor) -> NDArray[np.float64]:
    """Return the paper's MADC ``[n, n]`` of updates ``[n, P]``.

    For two updates it is the mean over all others of the difference between their cosines with it.
    """
    similar = cosines(updates, updates).cpu().double().numpy()
    count = len(similar)
    differences = np.zeros((count, count))
    for i in range(count):
        apart = np.abs(similar - similar[i])  # [n, n]: of each update, with respect to each
        apart[:, i] = 0.0
        np.fill_diagonal(apart, 0.0)
        differences[i] = apart.sum(1) / max(count - 2, 1)
    return differences


def decomposed_similarity(updates: Tensor, k: int) -> Tensor:
    """Return cosines ``[n, k]`` of the updates ``[n, P]`` with their k main directions.

    Euclidean distances of these rows are the paper's EDC: for many clients far cheaper than all
    pairs of updates, and not blurred by directions in which updates differ at random.
    """
    main = torch.linalg.svd(updates, full_matrices=False).Vh[:k]
    return cosines(updates, main)


def nearest_direction(updates: Tensor, directions: Tensor) -> NDArray[np.int64]:
    """Return the direction ``[k, P]`` of least cosine dissimilarity, (1 - cos) / 2: ``[n]``."""
    return np.asarray(cosines(updates, directions).argmax(1).cpu().numpy())


def cosines(rows: Tensor, directions: Tensor) -> Tensor:
    """Return cosines ``[n, k]`` of rows ``[n, P]`` and ``[k, P]``; 0 if one is zero."""
    return normalize(rows) @ normalize(directions).T


def normalize(rows: Tensor) -> Tensor:
    """Scale each of the rows ``[n, P]`` to length 1; a zero row stays zero."""
    length = rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    return torch.as_tensor(rows / length)


def mixed_models(models: Tensor, eta_g: float) -> Tensor:
    """Return the groups' models ``[k, P]`` after the exchange between groups."""
    norms = models.norm(dim=1).clamp(min=torch.finfo(models.dtype).tiny)
    weights = (eta_g / norms).repeat(len(models), 1)
    weights.fill_diagonal_(1.0)
    return torch.as_tensor(weights / weights.sum(1, keepdim=True) @ models)
