"""FeSEM: federated stochastic expectation maximization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.clustering.partition import Partition
from srfca.distances import ModelSet, matched
from srfca.distances.matched import aligned
from srfca.federation.replies import Clients
from srfca.federation.requests import Train
from srfca.federation.rounds import aggregate_clusters
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.init import random_models
from srfca.methods._common.rounds import (
    num_participants,
    one_cluster,
    participants,
    require_clients,
    require_replies,
    trained_part,
)
from srfca.methods._common.run import Run
from srfca.methods.ifca import num_moved
from srfca.methods.registry import register
from srfca.parameters import constrained
from srfca.random import Key, client_words, streams

KMEANS_STARTS = 10


@register
@dataclass(frozen=True, kw_only=True)
class FeSEM(Method):
    """Assign clients to the center nearest to their local model, and train from there.

    Args:
        k: Number of clusters.
        start: ``k-means``: all clients train one round from w0, and k-means on their models gives
            the first centers; ``random``: k random models, and clients that are dealt to them at
            random.
        distance: The distance of a model to a center: ``l2``, or ``matched``, after neurons are
            matched; models are then averaged with their neurons in the order of their center's.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round; in the first, all do.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> FeSEM(k=2, local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "fesem"
    name: ClassVar[str] = "FeSEM"
    paper: ClassVar[str] = (
        "Long, Xie, Shen, Zhou, Wang, Jiang: Multi-Center Federated Learning: Clients Clustering "
        "for Better Personalization. World Wide Web 26, 2023."
    )
    server_settings: ClassVar[tuple[str, ...]] = ()
    needs_k: ClassVar[bool] = True

    k: int = constrained(2, at_least=1)
    start: Literal["k-means", "random"] = "k-means"
    distance: Literal["l2", "matched"] = "l2"
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """All clients take part in the first round."""
        return self.participation + (1 - self.participation) / self.local.rounds

    def solve(self, run: Run) -> Answer:
        """Make the start; then local training, E-step, M-step."""
        everyone, m = one_cluster(run), run.num_clients
        require_clients(m, self.k)
        labels, changed = np.zeros(m, dtype=np.int64), []
        centers = run.initial_model().expand(self.k, -1)
        if self.start == "random":
            centers = random_models(run, self.k, "fesem start")
            words = streams(run.key("fesem labels"), client_words(run.client_ids)).numpy()
            labels[np.argsort(words, kind="stable")] = np.arange(m) % self.k
        replied = np.zeros(m, dtype=bool)
        first = len(self.local.span(0))
        (later,) = num_participants(everyone, self.participation)
        with run.stage("FESEM", m * first + later * (self.local.steps - first)):
            for number in range(self.local.rounds):
                key = run.key("fesem", number)
                fraction = self.participation if number else 1.0
                clients = participants(run.federation, everyone, fraction, key)
                clients = clients[replied[clients]] if number else clients
                starts = centers[torch.tensor(labels[clients], device=centers.device)]
                replies = run.train(Train(clients, starts, self.local, key), "training")
                clients, rows = replies.clients, replies.values
                replied[clients] = True
                if number == 0:
                    require_replies(clients, self.k)
                if number == 0 and self.start == "k-means":
                    labels[clients] = k_means(trained_part(run, rows), self.k, key)
                else:
                    if self.distance == "matched":
                        nearest, rows = match_to_centers(run, rows, clients, centers)
                    else:
                        nearest = nearest_centers(
                            trained_part(run, rows), trained_part(run, centers)
                        )
                    changed.append(num_moved(labels[clients], nearest))
                    labels[clients] = nearest
                centers = aggregate_clusters(
                    rows, clients, labels[clients], centers, run.sizes, Mean(self.weighted)
                )
                present = np.where(replied, labels, -1)
                run.end_round("FESEM", number, self.local.rounds, centers, present)
        labels[~replied] = -1
        run.curve.renumber("FESEM", labels)
        answer = Answer.canonical(labels, centers)
        empty = [cluster for cluster in range(self.k) if cluster not in labels]
        notes = {"changed": changed, "empty": empty}
        run.record("FESEM", Partition(labels), answer.client_models, notes=notes)
        return answer


def nearest_centers(rows: Tensor, centers: Tensor) -> NDArray[np.int64]:
    """Return the center ``[k, P]`` nearest to each model ``[c, P]``, first on a tie: ``[c]``."""
    return np.asarray(torch.cdist(rows.double(), centers.double()).argmin(1).cpu().numpy())


def match_to_centers(
    run: Run, rows: Tensor, clients: Clients, centers: Tensor
) -> tuple[NDArray[np.int64], Tensor]:
    """Return the nearest center of each model after their neurons are matched, and the models.

    Args:
        run: The run.
        rows: ``[c, P]``
        clients: ``[c]`` whose models they are.
        centers: ``[k, P]``

    Returns:
        ``[c]``, the first on a tie, and ``[c, P]`` with neurons in the order of the center's.
    """
    trained = ModelSet.of_clients(run.federation, rows, clients)
    references = ModelSet.of_clients(run.federation, centers, np.arange(len(centers)))
    nearest = np.asarray(matched(trained, references).argmin(1), dtype=np.int64)
    return nearest, aligned(trained, references, nearest)


def k_means(rows: Tensor, k: int, key: Key) -> NDArray[np.int64]:
    """Return labels ``[m]`` of the best of several runs of k-means on the models ``[m, P]``."""
    from sklearn.cluster import KMeans

    state = key.word() % 2**32
    fitted = KMeans(k, n_init=KMEANS_STARTS, random_state=state).fit(rows.cpu().double().numpy())
    return np.asarray(fitted.labels_, dtype=np.int64)
