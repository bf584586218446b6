"""FeSEM: federated stochastic expectation maximisation.

Long, Xie, Shen, Zhou, Wang, Jiang: Multi-Center Federated Learning: Clients Clustering for Better
Personalization. World Wide Web 26, 2023 (Xie, Long and others: Multi-Center Federated Learning,
2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import require_positive
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.ifca import moved
from srfca.methods.rounds import (
    aggregate_clusters,
    answered,
    counts,
    everybody,
    participants,
    plain_mean,
    require_answers,
    require_clients,
    trained_part,
    weighted_mean,
)
from srfca.methods.run import Run
from srfca.random import Key

KMEANS_STARTS = 10


@dataclass(frozen=True, kw_only=True)
class FeSEM(Method):
    """Clients go to the centre that their own model is nearest to, and train from there.

    Args:
        k: Number of clusters.
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of the clients that take part in a round; in the first, all do.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "FeSEM"

    k: int = 2
    weighted: bool = True
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(k=self.k)
        require_share(self.participation)

    @property
    def trainings(self) -> float:
        """All take part in the first round."""
        return self.participation + (1 - self.participation) / self.work.rounds

    def solve(self, run: Run) -> Answer:
        """A round from w0 and k-means on what it gives; then local training, E-step, M-step."""
        federation = run.federation
        everyone = everybody(federation)
        m = len(everyone)
        require_clients(m, self.k)
        aggregate = weighted_mean if self.weighted else plain_mean
        centres = federation.initial(run.seed).expand(self.k, -1)
        labels, changed = np.zeros(m, dtype=np.int64), []
        known = np.zeros(m, dtype=bool)
        steps = sum(counts(everyone, self.participation)) * self.work.steps
        with run.stage("FESEM", steps) as tick:
            for number in range(self.work.rounds):
                key = Key(run.seed, "fesem", number)
                who = participants(federation, everyone, self.participation if number else 1.0, key)
                who = who[known[who]] if number else who
                starts = centres[torch.tensor(labels[who], device=centres.device)]
                rows = federation.fit(starts, who.tolist(), self.work, key, tick)
                sent, here = answered(federation, rows, who, "training")
                known[here] = True
                if number == 0:
                    require_answers(here, self.k)
                    labels[here] = k_means(trained_part(federation, sent), self.k, key)
                else:
                    nearest = expectation(
                        *(trained_part(federation, each) for each in (sent, centres))
                    )
                    changed.append(moved(labels[here], nearest))
                    labels[here] = nearest
                centres = aggregate_clusters(federation, rows, who, labels[who], centres, aggregate)
        labels[~known] = -1
        answer = Answer.of(labels, centres)
        empty = [c for c in range(self.k) if c not in labels]
        notes = {"changed": changed, "empty": empty}
        run.record("FESEM", Partition(labels), answer.client_models, notes=notes)
        return answer


def expectation(rows: Tensor, centres: Tensor) -> NDArray[np.int64]:
    """The centre ``[k, P]`` nearest to each model ``[c, P]``, the first on a tie: ``[c]``."""
    return np.asarray(torch.cdist(rows.double(), centres.double()).argmin(1).cpu().numpy())


def k_means(rows: Tensor, k: int, key: Key) -> NDArray[np.int64]:
    """Labels ``[m]`` of the best of several runs of k-means on the models ``[m, P]``."""
    from sklearn.cluster import KMeans

    state = key.word() % 2**32
    found = KMeans(k, n_init=KMEANS_STARTS, random_state=state).fit(rows.cpu().double().numpy())
    return np.asarray(found.labels_, dtype=np.int64)
