"""FLUX: density clustering of descriptors of the clients' data, then FedAvg in the clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.clustering.partition import Labels, Partition
from srfca.errors import is_number, require
from srfca.federation.coordinates import Coordinates
from srfca.federation.moments import SHARPNESS, ClientLosses, GroupMoments, unpack_outputs
from srfca.federation.replies import Clients, ClientScores
from srfca.federation.requests import LossMoments, OutputMoments, Scores, Split
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.rounds import (
    federated_training,
    one_cluster,
    require_clients,
    require_replies,
)
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.fesem import k_means
from srfca.methods.registry import register
from srfca.parameters import constrained
from srfca.random import Key

AUTO_EPS = 1.5
"""The automatic radius, as a multiple of the median distance to the ``min_samples``-th neighbor."""

FIRST_START, LAST_START = 3, 0.8
"""Clusters are made after this round at the earliest, after this fraction of all at the latest."""
LINEAR = 1e6
"""A scale of losses for which compressed losses are proportional to losses."""
TINY = float(np.finfo(np.float64).tiny)

Array = NDArray[np.float64]


@register
@dataclass(frozen=True, kw_only=True)
class FLUX(Method):
    """Cluster clients by the density of descriptors of their data, then FedAvg in each cluster.

    Args:
        describe_with: The models that the clients describe their data with: ``random`` ones, before
            any training, or ``trained``, that of the first rounds of FedAvg, as the authors do.
        encoders: The number of random models.
        components: Principal components of the descriptors of random models that are clustered.
        min_samples: Clients in the neighborhood of a core client, itself included; None is 3 with
            random models and 2 with the trained one.
        eps: The radius of a neighborhood, or ``auto``.
        k: The number of clusters, if it is known: k-means on the descriptors finds them.
        min_gain: With the trained model, FedAvg in clusters begins after the round, the third or a
            later one, in which the accuracy has once grown by less than this; without classes, once
            the loss has fallen by less than this share.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of each cluster's clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> digits = data.rotated_digits(num_clients=8, rotations=2)
        >>> federation, local = Simulation(digits, models.mlp(64, 8, 10)), LocalTraining(steps=30)
        >>> FLUX(min_samples=2, local=local).fit(federation).labels_.shape
        (8,)
    """

    key: ClassVar[str] = "flux"
    name: ClassVar[str] = "FLUX"
    paper: ClassVar[str] = (
        "Fenoglio, Li, Barbiero, Lane, Langheinrich, Gjoreski: FLUX: Efficient Descriptor-Driven "
        "Clustered Federated Learning under Arbitrary Distribution Shifts. NeurIPS 2025."
    )
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "components": Range(2, 10, integer=True),
        "min_samples": Range(2, 5, integer=True),
    }

    describe_with: Literal["random", "trained"] = "random"
    encoders: int = constrained(16, at_least=1)
    components: int = constrained(5, at_least=1)
    min_samples: int | None = constrained(None, at_least=1)
    eps: float | Literal["auto"] = "auto"
    k: int | None = constrained(None, at_least=1)
    min_gain: float = constrained(0.05, at_least=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.eps == "auto" or (is_number(self.eps) and float(self.eps) > 0),
            f"eps must be 'auto' or a number above 0, not {self.eps!r}",
        )

    def solve(self, run: Run) -> Answer:
        """Describe, cluster, train."""
        require_clients(run.num_clients, self.k)
        done, w = 0, run.initial_model()
        if self.describe_with == "trained":
            done, w = self._first_rounds(run)
        with run.stage("DESCRIPTORS"):
            if self.describe_with == "trained":
                clients, points = describe_by(run, w)
            else:
                clients, points = self._describe_by_random_models(run)
            labels, notes = self._cluster(points, run.key("flux k-means"))
            partition = Partition(labels).embed(clients, run.num_clients)
        distances = np.full((run.num_clients, run.num_clients), np.nan)
        distances[np.ix_(clients, clients)] = pairwise(points)
        run.record("DESCRIPTORS", partition, w.expand(run.num_clients, -1), distances, notes)
        models = federated_training(
            run, "FEDAVG", w.expand(partition.num_clusters, -1), partition, self.local,
            Mean(self.weighted), purpose="fedavg", participation=self.participation,
            rounds=range(done, self.local.rounds),
        )  # fmt: skip
        answer = Answer(partition.labels, models)
        run.record("FEDAVG", partition, answer.client_models)
        return answer

    def _first_rounds(self, run: Run) -> tuple[int, Tensor]:
        """Train one model until its accuracy hardly grows; return the number of rounds too."""
        everyone, models = one_cluster(run), run.initial_model().unsqueeze(0)
        gains, last, done = list[float](), float("nan"), 0
        while done < max(1, int(LAST_START * self.local.rounds)):
            models = federated_training(
                run, "GLOBAL", models, everyone, self.local, Mean(self.weighted),
                purpose="flux start", participation=self.participation,
                rounds=range(done, done + 1),
            )  # fmt: skip
            done += 1
            split: Split = "validation" if "validation" in run.federation.splits else "train"
            scores = run.ask(Scores(run.everyone, models.expand(run.num_clients, -1), split))
            score = mean_score(scores.values)
            gains, last = [*gains, score - last], score
            if done >= FIRST_START and any(gain < self.min_gain for gain in gains):
                break
        run.record("GLOBAL", everyone, models.expand(run.num_clients, -1))
        return done, models[0]

    def _describe_by_random_models(self, run: Run) -> tuple[Clients, Array]:
        """Return the clients that replied, and principal components of their descriptors."""
        words = (run.key("flux encoder", number).word() for number in range(self.encoders))
        encoders = torch.stack([run.federation.initial_model(abs(word)) for word in words])
        scales = torch.ones(self.encoders, dtype=torch.float64)
        clients, outputs, losses = ask_moments(run, encoders, encoders, scales)
        return clients, principal_components(
            descriptors(outputs, losses.compressed), self.components
        )

    def _cluster(self, points: Array, key: Key) -> tuple[Labels, dict[str, Any]]:
        """Return the clusters of descriptors ``[c, n]``, and notes."""
        if self.k is not None:
            return k_means(torch.as_tensor(points), min(self.k, len(points)), key), {}
        trained = self.describe_with == "trained"
        min_samples = self.min_samples or (2 if trained else 3)
        if self.eps != "auto":
            eps = float(self.eps)
        else:
            eps = elbow(points) if trained else choose_eps(points, min_samples)
        labels, num_noise = density_clusters(
            points, eps, min_samples, "alone" if trained else "join"
        )
        return labels, {"eps": eps, "noise": num_noise}


def mean_score(scores: ClientScores) -> float:
    """Return the mean accuracy of the clients; without classes, minus the logarithm of the loss."""
    if scores.accuracy is None:
        return -float(scores.loss.double().mean().clamp(min=TINY).log())
    return float(scores.accuracy.double().mean())


def ask_moments(
    run: Run, encoders: Tensor, models: Tensor, scales: Tensor
) -> tuple[Clients, GroupMoments, ClientLosses]:
    """Return the clients that reply, moments of the encoders' outputs, and of models' losses."""
    outputs = run.ask(OutputMoments(run.everyone, encoders))
    require_replies(outputs.clients)
    losses = run.ask(LossMoments(outputs.clients, models, scales))
    require_replies(losses.clients)
    described = outputs.values[np.isin(outputs.clients, losses.clients)].cpu()
    return losses.clients, unpack_outputs(described), ClientLosses.unpack(losses.values.cpu())


def describe_by(run: Run, w: Tensor) -> tuple[Clients, Array]:
    """Return the clients that reply, and descriptors of their data by a trained model w ``[P]``.

    What is before the last layer is described by random projections: w with the last layer of a
    random model.
    """
    head = Coordinates.of_layers(run.layers, list(run.layers)[-1:])
    other = run.federation.initial_model(abs(run.key("flux head").word())).to(w).unsqueeze(0)
    encoder = head.put(w.unsqueeze(0), head.take(other))
    clients, outputs, losses = ask_moments(
        run, encoder, w.repeat(2, 1), torch.tensor([LINEAR, 1.0]).double()
    )
    return clients, scaled_descriptors(outputs, losses.compressed)


def scaled_descriptors(outputs: GroupMoments, losses: GroupMoments) -> Array:
    """Return descriptors ``[c, n]`` of four kinds, each scaled to [0, 1] over clients and entries.

    They are mean and standard deviation of each output, and mean loss and mean compressed loss of
    each class; -1 before the scaling where a client lacks the class.

    Args:
        outputs: Outputs of c clients and one encoder, by any groups.
        losses: Losses of c clients and two copies of a model, by class: losses as they are, but for
            a factor, and compressed.
    """
    counts = outputs.counts[:, 0, :, None]
    total = counts.sum(1).clamp(min=1)
    means = (counts * outputs.means[:, 0]).sum(1) / total
    between = (counts * (outputs.means[:, 0] - means[:, None]).square()).sum(1)
    deviations = ((outputs.scatter[:, 0].diagonal(dim1=1, dim2=2) + between) / total).sqrt()
    by_class = losses.means[..., 0].clone()
    by_class[:, 0] *= LINEAR / SHARPNESS
    by_class[losses.counts == 0] = -1.0
    groups = [means, deviations, by_class[:, 0], by_class[:, 1]]
    return np.concatenate([scale_to_unit(group.double().numpy()) for group in groups], axis=1)


def scale_to_unit(values: Array) -> Array:
    """Return the values between their least, 0, and their largest, 1.

    >>> scale_to_unit(np.array([[1.0, 2.0], [5.0, 3.0]])).tolist()
    [[0.0, 0.25], [1.0, 0.5]]
    """
    low, high = values.min(), values.max()
    return np.asarray((values - low) / max(float(high - low), 1e-12))


def elbow(points: Array) -> float:
    """Return the elbow of the sorted distances to the nearest neighbor.

    It is where the curve is farthest below the line from its first point to its last (Satopaa,
    Albrecht, Irwin, Raghavan: Finding a "Kneedle" in a Haystack, 2011).

    >>> elbow(np.array([[0.0], [1.0], [2.0], [3.0], [13.0]]))
    1.0
    """
    distances = pairwise(points) + np.diag(np.full(len(points), np.inf))
    nearest = np.sort(distances.min(1))
    if not np.isfinite(nearest[-1]) or nearest[-1] == nearest[0]:
        return max(float(np.nan_to_num(nearest[0], posinf=0.0)), TINY)
    below = np.linspace(0, 1, len(nearest)) - scale_to_unit(nearest)
    return max(float(nearest[below.argmax()]), TINY)


def descriptors(outputs: GroupMoments, losses: GroupMoments) -> Array:
    """Return standardized descriptors of the clients' data: ``[c, n]``.

    They are the mean output of each encoder, over the client's inputs, and its mean compressed loss
    on the samples of each class. A class that a client lacks has the mean of the other clients.

    Args:
        outputs: Outputs of c clients and k encoders, by any groups.
        losses: The same, by class.
    """
    counts = outputs.counts.unsqueeze(3)
    means = (counts * outputs.means).sum(2) / counts.sum(2).clamp(min=1)
    present, by_class = losses.counts > 0, losses.means[..., 0]
    values = torch.cat([means.flatten(1), by_class.flatten(1)], dim=1)
    always = torch.ones_like(means, dtype=torch.bool)
    return standardize(values, torch.cat([always.flatten(1), present.flatten(1)], dim=1))


def standardize(values: Tensor, is_known: Tensor) -> Array:
    """Return columns of mean 0 and variance 1 over the values that are known; others are 0.

    >>> values = torch.tensor([[1.0, 5.0], [3.0, 7.0]])
    >>> standardize(values, torch.tensor([[True, True], [True, False]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    values, mask = values.double(), is_known.double()
    count = mask.sum(0).clamp(min=1)
    deviations = (values - (values * mask).sum(0) / count) * mask
    scale = (deviations.square().sum(0) / count).sqrt()
    tiny = 1e-9 * scale.max().clamp(min=torch.finfo(torch.float64).tiny)
    return np.asarray((deviations / scale.clamp(min=tiny)).numpy())


def principal_components(values: Array, count: int) -> Array:
    """Return the leading principal components of rows ``[c, n]``: ``[c, min(count, c, n)]``."""
    left, scales, _ = np.linalg.svd(values - values.mean(0), full_matrices=False)
    return np.asarray((left * scales)[:, :count])


def pairwise(points: Array) -> Array:
    """Return l2 distances between points ``[c, p]``: ``[c, c]``."""
    return np.asarray(np.linalg.norm(points[:, None] - points, axis=2))


def choose_eps(points: Array, min_samples: int) -> float:
    """Return a multiple of the median distance to the ``min_samples``-th neighbor.

    >>> choose_eps(np.array([[0.0], [1.0], [2.0], [3.0]]), 1)
    1.5
    """
    nearest = np.sort(pairwise(points), axis=1)[:, min(min_samples, len(points) - 1)]
    return max(AUTO_EPS * float(np.median(nearest)), TINY)


def density_clusters(
    points: Array, eps: float, min_samples: int, noise_clients: Literal["join", "alone"] = "join"
) -> tuple[Labels, int]:
    """Return the clusters of DBSCAN, and how many clients are in no dense region.

    Each of these is ``alone``, or they ``join`` the cluster of the nearest client that is in one;
    if there is no dense region, all clients are one cluster then.
    """
    from sklearn.cluster import DBSCAN

    labels = np.asarray(DBSCAN(eps=eps, min_samples=min_samples).fit(points).labels_, np.int64)
    noise = np.flatnonzero(labels < 0)
    if noise_clients == "alone":
        labels[noise] = labels.max() + 1 + np.arange(len(noise))
        return labels, len(noise)
    dense = np.flatnonzero(labels >= 0)
    if not len(dense):
        return np.zeros(len(points), dtype=np.int64), len(noise)
    labels[noise] = labels[dense[pairwise(points)[np.ix_(noise, dense)].argmin(1)]]
    return labels, len(noise)
