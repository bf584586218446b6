"""Newcomers without labels: what their inputs look like to each cluster's model.

For each cluster: how often its model predicts each class on held-out inputs of its clients, and
mean and covariance of the logarithms of its probabilities. The inputs of a newcomer belong to a
cluster if the cluster's model says the same of them, class by class. docs/newcomers.md explains the
choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.moments import GroupMoments, unpack_outputs
from srfca.federation.protocol import Federation
from srfca.federation.requests import OutputMoments, Split
from srfca.methods._common.normal_scores import from_hotelling

Array = NDArray[np.float64]

INPUT_LIMIT = 3.0
"""Score beyond which a newcomer's inputs do not look like a cluster's, in standard deviations."""
CONFIDENT = 0.9
"""Least confidence with which a newcomer without labels is placed."""
_DIFFERENT = 1.645
"""Score from which on the inputs of two clusters differ: the 95 % point of a normal variable."""
_PRIOR_COUNT = 2.0
"""Weight of a cluster's mean in the mean of one of its classes, in samples."""
_MOST = 4.0
"""Size and variance of a client count as at most this many times the median."""
_RIDGE = 1e-2
"""Added to covariances, relative to their mean diagonal."""


@dataclass(frozen=True, eq=False)
class InputStatistics:
    """What the inputs of each cluster's clients look like to the cluster's model.

    Args:
        means: ``[k, g, d]`` mean outputs by predicted class.
        counts: ``[k, g]`` samples behind it.
        whitening: ``[k, d, d]`` a matrix that makes the covariance of outputs within predicted
            classes the identity, and that between clients diagonal.
        between: ``[k, d]`` this diagonal.
        seen: ``[k, d]`` how far the outputs on training inputs are from those on held-out inputs.
        freedom: ``[k]`` degrees of freedom of the covariance.
        clients: ``[k]`` clients behind it; with 0, no newcomer is placed in the cluster.
        alike: ``[k, k]`` 1 for two clusters whose inputs cannot be distinguished, else 0.
    """

    means: Tensor
    counts: Tensor
    whitening: Tensor
    between: Tensor
    seen: Tensor
    freedom: Tensor
    clients: Tensor
    alike: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """Return everything as tensors by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> InputStatistics:
        """Return what ``tensors`` returned."""
        return cls(**{field.name: tensors[field.name] for field in fields(cls)})


def input_statistics(
    federation: Federation, models: Tensor, partition: Partition
) -> InputStatistics:
    """Collect what the inputs of each cluster's clients look like to the clusters' models.

    They are held-out inputs, or training inputs if the federation holds nothing out. Models are
    more confident on inputs that they were trained on; how much more is collected too.

    Args:
        federation: The clients.
        models: ``[k, P]`` the clusters' models, the first ones if there are more.
        partition: The clusters.

    Raises:
        InputError: If no client replies, or the model has too many outputs.
    """
    models = models[: partition.num_clusters]
    members = np.flatnonzero(partition.labels >= 0)

    def ask(split: Split) -> ClientOutputs:
        replies = federation.ask(OutputMoments(members, models, (split,)))
        labels = partition.labels[replies.clients]
        return ClientOutputs.of(unpack_outputs(replies.values.cpu().double()), labels)

    training = ask("train")
    held_out = ask("validation") if "validation" in federation.splits else training
    require(len(held_out.labels) > 0, "no client has replied with statistics of its inputs")
    return fit_statistics(held_out, training)


@dataclass(frozen=True)
class ClientOutputs:
    """Moments of the outputs of all k models on the inputs of m clients.

    Args:
        counts: ``[m, k, g]`` samples by predicted class.
        means: ``[m, k, g, d]`` their mean outputs.
        scatter: ``[m, k, d, d]`` products of deviations from these means.
        labels: ``[m]`` the clients' clusters.
    """

    counts: Array
    means: Array
    scatter: Array
    labels: NDArray[np.int64]

    @classmethod
    def of(cls, moments: GroupMoments, labels: NDArray[np.int64]) -> ClientOutputs:
        """Return the moments of those clients that have sent valid ones."""
        counts, means, scatter = (
            part.numpy() for part in (moments.counts, moments.means, moments.scatter)
        )
        valid = np.isfinite(means).all((1, 2, 3)) & np.isfinite(scatter).all((1, 2, 3))
        valid &= (counts >= 0).all((1, 2)) & (counts.sum(2) > 0).all(1)
        return cls(counts[valid], means[valid], scatter[valid], labels[valid])

    def of_cluster(self, cluster: int, model: int) -> tuple[Array, Array, Array]:
        """Return the moments of one model on the inputs of one cluster's clients."""
        members = self.labels == cluster
        return self.counts[members, model], self.means[members, model], self.scatter[members, model]


@dataclass(frozen=True)
class _Cluster:
    """The statistics of one cluster."""

    means: Array
    counts: Array
    whitening: Array
    between: Array
    seen: Array
    freedom: float
    clients: int

    def squares(self, counts: Array, means: Array, clients: Array | float = 1.0) -> Array:
        """Return the squared distances of other inputs from the cluster's, in variances: ``[c]``.

        Some of the inputs may be training inputs, on which models are more confident: the distance
        is that from the nearest mean of some training and some held-out inputs.

        Args:
            counts: ``[c, g]`` samples by predicted class.
            means: ``[c, g, d]`` their mean outputs.
            clients: The number of clients that they are of.
        """
        sizes = np.maximum(counts.sum(1, keepdims=True), 1)
        shares = counts / sizes
        residuals = (shares[:, :, None] * (means - self.means)).sum(1)
        noise = 1 / sizes + (shares**2 / (self.counts + _PRIOR_COUNT)).sum(1, keepdims=True)
        spread = self.between * (1 / clients + 1 / max(self.clients, 1))
        white, seen = residuals @ self.whitening.T, self.whitening @ self.seen
        precision = 1 / (noise + spread)
        length = np.maximum((seen**2 * precision).sum(1), np.finfo(np.float64).tiny)
        share = np.clip((white * seen * precision).sum(1) / length, 0.0, 1.0)
        return np.asarray(((white - share[:, None] * seen) ** 2 * precision).sum(1))

    def score(self, counts: Array, means: Array, clients: Array | float = 1.0) -> Array:
        """Return how unlike the cluster's inputs others are: ``[c]``, a normal score.

        Args:
            counts: ``[c, g]`` samples by predicted class.
            means: ``[c, g, d]`` their mean outputs.
            clients: The number of clients that they are of.
        """
        squares = self.squares(counts, means, clients)
        return from_hotelling(squares, means.shape[2], np.full(len(squares), self.freedom))


def fit_statistics(held_out: ClientOutputs, training: ClientOutputs) -> InputStatistics:
    """Estimate the statistics of every cluster.

    Args:
        held_out: Outputs on held-out inputs.
        training: Outputs on training inputs.
    """
    numbers = range(held_out.counts.shape[1])
    clusters = [
        _fit_robustly(*held_out.of_cluster(c, c), *training.of_cluster(c, c)[:2]) for c in numbers
    ]
    alike = np.eye(len(clusters), dtype=np.uint8)
    for a in numbers:
        for b in range(a):
            same = [
                _looks_like(clusters[model], held_out, training, cluster, model)
                for cluster, model in ((a, b), (b, a))
            ]
            alike[a, b] = alike[b, a] = all(same)

    def stacked(name: str) -> Tensor:
        values = [np.asarray(getattr(cluster, name), dtype=np.float64) for cluster in clusters]
        return torch.from_numpy(np.stack(values))

    names = [field.name for field in fields(InputStatistics) if field.name != "alike"]
    return InputStatistics(**{name: stacked(name) for name in names}, alike=torch.from_numpy(alike))


def _fit_robustly(
    counts: Array,
    means: Array,
    scatter: Array,
    training_counts: Array,
    training_means: Array,
) -> _Cluster:
    """Return the statistics of one cluster without the clients that are far from the others."""
    cluster = _fit(counts, means, scatter)
    if cluster.clients > 2:
        squares = cluster.squares(counts, means)
        near = squares <= _MOST * (1 + 3 / means.shape[2]) * np.median(squares)
        cluster = _fit(counts[near], means[near], scatter[near])
    if not len(training_counts):
        return cluster
    shares = training_counts / training_counts.sum(1, keepdims=True)
    averages = (shares[:, :, None] * (training_means - cluster.means)).sum(1)
    return replace(cluster, seen=np.median(averages, axis=0))


def _fit(counts: Array, means: Array, scatter: Array) -> _Cluster:
    """Return the statistics of one cluster from ``[m, g]``, ``[m, g, d]`` and ``[m, d, d]``."""
    count, groups, width = means.shape
    if count == 0:
        nothing = np.zeros((groups, width)), np.zeros(groups)
        return _Cluster(*nothing, np.eye(width), np.zeros(width), np.zeros(width), 1.0, 0)
    sizes = counts.sum(1)
    weights = np.minimum(1.0, _MOST * np.median(sizes) / sizes)
    scatter = scatter * (weights * _shares_that_count(counts, scatter))[:, None, None]
    counts = counts * weights[:, None]
    sizes = counts.sum(1)
    totals, sums = counts.sum(0), (counts[:, :, None] * means).sum(0)
    overall = sums.sum(0) / totals.sum()
    centers = (sums + _PRIOR_COUNT * overall) / (totals + _PRIOR_COUNT)[:, None]
    residuals = means - centers
    average = (counts[:, :, None] * residuals).sum(1) / sizes[:, None]
    deviations = np.where(counts[:, :, None] > 0, residuals - average[:, None], 0.0)
    inside = scatter.sum(0) + np.einsum("mg,mgd,mge->de", counts, deviations, deviations)
    freedom = max(1.0, float(sizes.sum() - count))
    whitening = np.linalg.inv(np.linalg.cholesky(_shrunk(inside / freedom, freedom)))
    between, axes = _between(average @ whitening.T, sizes)
    unseen = np.zeros(width)
    return _Cluster(centers, totals, axes.T @ whitening, between, unseen, freedom, count)


def _shares_that_count(counts: Array, scatter: Array) -> Array:
    """Return the factor of each client's scatter ``[m]`` that limits its variance."""
    freedom = counts.sum(1) - (counts > 0).sum(1)
    variances = np.trace(scatter, axis1=1, axis2=2) / np.maximum(freedom, 1)
    is_finite = variances[freedom > 0]
    limit = _MOST * float(np.median(is_finite)) if len(is_finite) else 0.0
    if limit == 0:
        return np.ones(len(counts))
    return np.asarray(limit / np.maximum(variances, limit))


def _between(averages: Array, sizes: Array) -> tuple[Array, Array]:
    """Return the variances between clients along orthogonal axes ``[d]``, and the axes ``[d, d]``.

    Of noise alone, no axis has more than the edge of the Marchenko-Pastur distribution. A variance
    counts where it is beyond.

    Args:
        averages: ``[m, d]`` of each client, with noise of variance 1 / size.
        sizes: ``[m]``
    """
    count, width = averages.shape
    if count < 2:
        return np.zeros(width), np.eye(width)
    matrix = (averages * sizes[:, None]).T @ averages / (count - 1)
    values, axes = np.linalg.eigh(matrix)
    typical = float(sizes.sum() - (sizes**2).sum() / sizes.sum()) / (count - 1)
    edge = (1 + np.sqrt(width / (count - 1))) ** 2
    return np.where(values > edge, (values - 1) / typical, 0.0), np.asarray(axes)


def _shrunk(covariance: Array, freedom: float) -> Array:
    """Return a covariance that can be inverted: the nearer to its diagonal, the less is known."""
    width = len(covariance)
    weight = width / (width + freedom)
    diagonal = np.diag(covariance)
    scale = float(diagonal.mean()) or 1.0
    shrunk = (1 - weight) * covariance + weight * np.diag(diagonal)
    return np.asarray(shrunk + _RIDGE * scale * np.eye(width))


def _looks_like(
    looked_at_by: _Cluster,
    held_out: ClientOutputs,
    training: ClientOutputs,
    cluster: int,
    model: int,
) -> bool:
    """Tell whether a model sees no difference between its clients' inputs and another cluster's.

    The other cluster's training inputs are as new to the model as the held-out ones.
    """
    parts = [part.of_cluster(cluster, model) for part in (held_out, training)]
    counts = np.concatenate([part[0] for part in parts])
    means = np.concatenate([part[1] for part in parts])
    if not len(counts) or not looked_at_by.clients:
        return False
    total = counts.sum(0)
    mean = (counts[:, :, None] * means).sum(0) / np.maximum(total, 1)[:, None]
    clients = float((held_out.labels == cluster).sum())
    return bool(looked_at_by.score(total[None], mean[None], max(clients, 1.0))[0] <= _DIFFERENT)


def input_scores(statistics: InputStatistics, moments: GroupMoments) -> Array:
    """Return how unlike each cluster's inputs those of each client are: ``[c, k]``, normal scores.

    Args:
        statistics: What the clusters' inputs look like.
        moments: Moments of the clusters' models on the clients' inputs.
    """
    counts, means = moments.counts.cpu().double().numpy(), moments.means.cpu().double().numpy()
    require(
        means.shape[1:] == tuple(statistics.means.shape),
        f"newcomers report {means.shape[3]} outputs of {means.shape[1]} models, but the statistics "
        f"are for {statistics.means.shape[2]} outputs of {len(statistics.means)} models",
    )
    scores = np.full(counts.shape[:2], np.inf)
    for number in range(counts.shape[1]):
        cluster = _cluster(statistics, number)
        if cluster.clients:
            scores[:, number] = cluster.score(counts[:, number], means[:, number])
    return scores


def _cluster(statistics: InputStatistics, number: int) -> _Cluster:
    return _Cluster(
        statistics.means[number].numpy(),
        statistics.counts[number].numpy(),
        statistics.whitening[number].numpy(),
        statistics.between[number].numpy(),
        statistics.seen[number].numpy(),
        float(statistics.freedom[number]),
        int(statistics.clients[number]),
    )


def place_by_inputs(
    scores: Array, alike: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the cluster of each client by its inputs, and how sure it is.

    The confidence is the share of the most likely cluster in the tail probabilities of all. A
    cluster that looks like it counts as equally likely.

    Args:
        scores: ``[c, k]``
        alike: ``[k, k]`` which clusters' inputs cannot be distinguished.

    Returns:
        Labels ``[c]``, -1 if no cluster fits or several fit equally well, and confidence ``[c]``.

    >>> alone, pair = np.eye(2, dtype=np.uint8), np.ones((2, 2), dtype=np.uint8)
    >>> scores = np.array([[0.0, 5.0], [1.0, 0.9], [6.0, 7.0]])
    >>> labels, confidence = place_by_inputs(scores, alone)
    >>> labels.tolist(), confidence.round(2).tolist()
    ([0, -1, -1], [1.0, 0.54, 1.0])
    >>> place_by_inputs(scores, pair)[0].tolist()
    [-1, -1, -1]
    """
    from scipy.special import log_ndtr

    logarithms = log_ndtr(-np.minimum(scores, 1e9))
    best = scores.argmin(1)
    top = logarithms.max(1, keepdims=True)
    relative = np.where(alike[best] > 0, 1.0, np.exp(logarithms - top))
    confidence = 1 / relative.sum(1)
    fits = (scores.min(1) <= INPUT_LIMIT) & (confidence >= CONFIDENT)
    return np.where(fits, best, -1), confidence
