"""FedGroup: groups of clients whose first updates point the same way, and FedAvg inside them.

Duan, Liu, Ji, Liu, Liang, Chen, Tan: FedGroup: Efficient Clustered Federated Learning via
Decomposed Data-Driven Measure, arXiv 2010.06870; as FlexCFL in: Flexible Clustered Federated
Learning for Client-Level Data Distribution Shift. IEEE TPDS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.base import Federation, Tick, Work, silent
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.result import Result
from srfca.methods.rounds import (
    answered,
    everybody,
    federated_training,
    participants,
    require_answers,
    trained_part,
    weighted_mean,
)
from srfca.methods.run import Run
from srfca.random import Key


@dataclass(frozen=True, kw_only=True)
class FedGroup(Method):
    """Groups by the directions of the clients' pretraining updates, then FedAvg in each group.

    Args:
        k: The number of groups.
        pretrained: alpha, the fraction of the clients that the groups are made of; the others come
            later, and go to the group whose direction is nearest to theirs.
        pretrain_steps: Steps of a client's pretraining from w0.
        eta_g: How far each group's model moves along those of the other groups after
            every round; 0 keeps groups apart.
        participation: The fraction of each group's clients that take part in a round.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "FedGroup"

    k: int = 4
    pretrained: float = 1.0
    pretrain_steps: int = 20
    eta_g: float = 0.0
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.k >= 1, f"k must be at least 1, not {self.k}")
        require(0 < self.pretrained <= 1, f"pretrained must be in (0, 1], not {self.pretrained}")
        require(
            self.pretrain_steps >= 1,
            f"pretrain_steps must be at least 1, not {self.pretrain_steps}",
        )
        require(self.eta_g >= 0, f"eta_g must not be negative, but is {self.eta_g}")
        require_share(self.participation)

    @property
    def trainings(self) -> float:
        """The pretraining, and FedAvg."""
        return self.participation + self.pretrain_steps / self.work.steps

    def solve(self, run: Run) -> Answer:
        """Find the groups and their models."""
        federation, seed = run.federation, run.seed
        m, w0 = len(federation.clients), federation.initial(seed)
        founders = participants(
            federation, everybody(federation), self.pretrained, Key(seed, "fedgroup founders")
        )
        require(
            self.k <= len(founders),
            f"k={self.k} is more than the {len(founders)} clients that groups are made of",
        )
        with run.stage("COLD_START", m * self.pretrain_steps) as tick:
            updates, here = self.pretrain(federation, w0, np.arange(m), seed, tick)
            found_by = np.isin(here, founders)
            require_answers(here[found_by], self.k)
            founding = updates[torch.tensor(found_by)]
            found = group(trained_part(federation, founding), self.k, seed)
            directions = torch.stack(
                [founding[torch.tensor(found == c)].mean(0) for c in range(found.max() + 1)]
            )
            labels = np.full(m, -1)
            labels[here] = nearest_direction(
                *(trained_part(federation, rows) for rows in (updates, directions))
            )
            labels[here[found_by]] = found
        groups = Answer.of(labels, w0 + directions)
        partition = Partition(groups.labels)
        notes = {"founders": founders.tolist(), "empty": self.k - len(directions)}
        run.record("COLD_START", partition, groups.client_models, notes=notes)

        models = federated_training(
            run, "FEDAVG", groups.models, partition, self.work, weighted_mean, purpose="fedgroup",
            participation=self.participation, project=self._share,
        )  # fmt: skip
        answer = Answer(groups.labels, models)
        run.record("FEDAVG", partition, answer.client_models)
        return answer

    def pretrain(
        self,
        federation: Federation,
        w0: Tensor,
        clients: NDArray[np.int64],
        seed: int,
        tick: Tick = silent,
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """The updates ``[c, P]`` of clients that train shortly from w0, and who sends them."""
        work = pretraining(self.work, self.pretrain_steps)
        key = Key(seed, "fedgroup pretraining")
        rows = federation.fit(w0.expand(len(clients), -1), clients.tolist(), work, key, tick)
        rows, here = answered(federation, rows, clients, "pretraining")
        return rows - w0, here

    def assign(self, result: Result, newcomers: Federation) -> NDArray[np.int64]:
        """Cold start of newcomers: ``[c]`` the group of each client of another federation.

        They train shortly from the w0 of the result's seed, and go to the group that has moved from
        w0 in the direction nearest to theirs.
        """
        w0 = newcomers.initial(result.seed).to(result.models.device)
        every = np.arange(len(newcomers.clients))
        updates, here = self.pretrain(newcomers, w0, every, result.seed)
        labels = np.full(len(every), -1)
        moved = result.models - w0
        labels[here] = nearest_direction(
            *(trained_part(newcomers, rows) for rows in (updates, moved))
        )
        return labels

    def _share(self, models: Tensor) -> Tensor:
        return models + self.eta_g * along_the_others(models) if self.eta_g else models


def pretraining(work: Work, steps: int) -> Work:
    """The same work for so many steps in one go, at a constant rate."""
    return replace(work, steps=steps, local_steps=steps, schedule="constant")


def group(updates: Tensor, k: int, seed: int) -> NDArray[np.int64]:
    """``[n]`` groups of the updates ``[n, P]``: k-means++ on their decomposed similarities."""
    from sklearn.cluster import KMeans

    word = Key(seed, "fedgroup k-means").word() % 2**32
    features = decomposed_similarity(updates, k).cpu().double().numpy()
    different = len(np.unique(features, axis=0))
    found = KMeans(min(k, different), n_init=10, random_state=word).fit_predict(features)
    return Partition(found.astype(np.int64)).labels


def decomposed_similarity(updates: Tensor, k: int) -> Tensor:
    """``[n, k]`` cosines of the updates ``[n, P]`` with their k main directions.

    Euclidean distances of these rows are the paper's EDC: with many clients far cheaper than all
    pairs of updates, and not blurred by directions in which updates differ at random.
    """
    main = torch.linalg.svd(updates, full_matrices=False).Vh[:k]
    return cosines(updates, main)


def nearest_direction(updates: Tensor, directions: Tensor) -> NDArray[np.int64]:
    """``[n]`` the direction ``[k, P]`` of the least cosine dissimilarity, (1 - cos) / 2."""
    return np.asarray(cosines(updates, directions).argmax(1).cpu().numpy())


def cosines(rows: Tensor, others: Tensor) -> Tensor:
    """``[n, k]`` cosines of rows ``[n, P]`` and ``[k, P]``; 0 where one is zero."""
    return unit(rows) @ unit(others).T


def unit(rows: Tensor) -> Tensor:
    """The rows ``[n, P]``, each of length 1; a zero row stays."""
    length = rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    return torch.as_tensor(rows / length)


def along_the_others(models: Tensor) -> Tensor:
    """``[k, P]`` for each group the sum of the other groups' models, each of length 1."""
    return unit(models).sum(0) - unit(models)
