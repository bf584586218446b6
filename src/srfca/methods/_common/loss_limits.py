"""Where a cluster ends: how much larger a newcomer's losses may be than those of its clients.

A random-effects model of compressed losses (``srfca.federation.moments.compress``). The mean of a
client's n samples of a class differs from the cluster's by a deviation of the client, by one of the
client in this class, and by sampling noise, whose variance is that within clients divided by n. All
three variances are estimated on held-out data of the clusters' clients. docs/newcomers.md explains
the choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.outliers import winsorize
from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.moments import ClientLosses
from srfca.federation.protocol import Federation
from srfca.federation.requests import LossMoments, Scores, Split
from srfca.methods._common.normal_scores import from_chi_bar, from_student

Array = NDArray[np.float64]

LIMIT = 4.25
"""Score beyond which a newcomer does not belong to a cluster, in standard deviations."""
_OUTLIER = 4.0
"""A client further than this from its cluster's center does not count, in standard deviations."""
_CLIP = 6.0
"""Means of a class are clipped at this distance from the center, in standard deviations."""
_MOST = 4.0
"""Size and variance of a client count as at most this many times the median."""
_PRIOR_FREEDOM = 10.0
"""Weight of the prior variance of compressed losses, 1, in degrees of freedom."""
_PRIOR_COUNT = 1.0
"""Weight of a cluster's mean in the mean of one of its classes, in samples."""
_ENOUGH = 100.0
"""Degrees of freedom from which on variances within and between clients are distinguished."""
_BLOCK = 2**24
"""Numbers that are held at once."""
_BY_CLUSTER = ("scales", "means", "counts", "clients", "mean_losses")
"""Fields with a value, or a row, for each cluster."""


@dataclass(frozen=True, eq=False)
class LossLimits:
    """What the compressed losses of each cluster's clients are like, on held-out data.

    Args:
        scales: ``[k]`` typical loss of each cluster's clients.
        means: ``[k, g]`` mean of the compressed losses, by class.
        counts: ``[k, g]`` samples behind it.
        clients: ``[k]`` clients behind it; with 0, a cluster accepts everybody.
        within: Variance of the samples of a client in a class.
        between: Variance of the clients' deviations.
        between_classes: Variance of the clients' deviations in single classes.
        freedom: Degrees of freedom of ``within``.
        mean_losses: ``[k]`` mean held-out loss of each cluster's clients, NaN if unknown.
        spread: Standard deviation of a client's mean loss, relative to its cluster's mean.
    """

    scales: Tensor
    means: Tensor
    counts: Tensor
    clients: Tensor
    within: float
    between: float
    between_classes: float
    freedom: float
    mean_losses: Tensor
    spread: float

    @property
    def limit(self) -> float:
        """The largest score of a client that belongs to a cluster.

        It is 0 if no cluster has two clients: then nothing is known of how much clients of a
        cluster differ, and a newcomer must be as good as the cluster's only client.
        """
        return LIMIT if bool((self.clients > 1).any()) else 0.0

    def tensors(self) -> dict[str, Tensor]:
        """Return everything as tensors by name."""
        numbers = [self.within, self.between, self.between_classes, self.freedom, self.spread]
        return {
            "scales": self.scales,
            "means": self.means,
            "counts": self.counts,
            "clients": self.clients,
            "mean_losses": self.mean_losses,
            "variances": torch.tensor(numbers, dtype=torch.float64),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> LossLimits:
        """Return what ``tensors`` returned."""
        within, between, between_classes, freedom, spread = tensors["variances"].tolist()
        parts = {name: tensors[name] for name in _BY_CLUSTER}
        return cls(
            **parts, within=within, between=between, between_classes=between_classes,
            freedom=freedom, spread=spread,
        )  # fmt: skip

    def select(self, clusters: list[int]) -> LossLimits:
        """Return the limits of some of the clusters, in this order."""
        parts: dict[str, Any] = {name: getattr(self, name)[clusters] for name in _BY_CLUSTER}
        return replace(self, **parts)


def loss_limits(federation: Federation, models: Tensor, partition: Partition) -> LossLimits | None:
    """Learn from held-out data what the losses of each cluster's clients are like.

    Clients are sent the model of their own cluster alone: that of a cluster with a single client is
    what this client has trained.

    Args:
        federation: The clients.
        models: ``[k, P]`` the clusters' models, the first ones if there are more.
        partition: The clusters.

    Returns:
        The limits, or None if the federation holds nothing out.
    """
    if "validation" not in federation.splits:
        return None
    models = models[: partition.num_clusters]
    usual = usual_losses(federation, models, partition)
    scales = usual.typical
    all_counts, all_means, all_scatter, all_labels = [], [], [], []
    for cluster, members in enumerate(partition):
        of_cluster = slice(cluster, cluster + 1)
        for block in np.array_split(members, -(-len(members) * 2**8 // _BLOCK)):
            request = LossMoments(block, models[of_cluster], scales[of_cluster], ("validation",))
            replies = federation.ask(request)
            moments = ClientLosses.unpack(replies.values.cpu().double()).compressed
            all_counts.append(moments.counts[:, 0])
            all_means.append(moments.means[:, 0, :, 0])
            all_scatter.append(moments.scatter[:, 0, 0, 0])
            all_labels.append(torch.full((len(replies.clients),), cluster))
    counts, means, scatter, labels = (
        torch.cat(part).numpy() for part in (all_counts, all_means, all_scatter, all_labels)
    )
    return fit_limits(counts, means, scatter, labels, usual)


@dataclass(frozen=True, eq=False)
class UsualLosses:
    """Mean held-out losses of the clusters' clients.

    Args:
        typical: ``[k]`` their lower median, so that one of two clients cannot raise it; 1 where no
            loss is known, or the median is 0.
        mean: ``[k]`` of the losses without outliers (``winsorize``), NaN where no loss is known.
        spread: Standard deviation of a client's loss relative to its cluster's mean, 0 if unknown.
    """

    typical: Tensor
    mean: Tensor
    spread: float


def usual_losses(federation: Federation, models: Tensor, partition: Partition) -> UsualLosses:
    """Ask clients for the mean losses of their clusters' models on held-out data."""
    losses = own_losses(federation, models, partition)
    typical = torch.ones(len(models), dtype=torch.float64)
    mean = torch.full_like(typical, torch.nan)
    squares, freedom = 0.0, 0
    for cluster in range(len(models)):
        values = losses[torch.from_numpy(partition.labels == cluster)].abs()
        values = values[values.isfinite()]
        if not len(values) or values.median() == 0:
            continue
        typical[cluster], values = values.median(), winsorize(values)
        mean[cluster] = values.mean()
        squares += float((values / mean[cluster] - 1).square().sum())
        freedom += len(values) - 1
    return UsualLosses(typical, mean, float(np.sqrt(squares / freedom)) if freedom else 0.0)


def own_losses(
    federation: Federation, models: Tensor, partition: Partition, split: Split = "validation"
) -> Tensor:
    """Ask each client for the loss of its own cluster's model, which no other client is sent.

    Args:
        federation: The clients.
        models: ``[k, P]`` the clusters' models, the first ones if there are more.
        partition: The clusters.
        split: The split of the data.

    Returns:
        ``[m]``, NaN for clients that are in no cluster or did not reply.
    """
    members = np.flatnonzero(partition.labels >= 0)
    rows = models[torch.as_tensor(partition.labels[members], device=models.device)]
    replies = federation.ask(Scores(members, rows, split))
    return replies.values.spread(replies.clients, len(partition)).loss.cpu().double()


def fit_limits(
    counts: Array, means: Array, scatter: Array, labels: NDArray[np.int64], usual: UsualLosses
) -> LossLimits:
    """Estimate the clusters' means and the three variances.

    No client can move them by much: its size and its sums of squares count as at most four times
    the median, and a client far from its cluster's center does not count at all.

    Args:
        counts: ``[m, g]`` samples of each client by class.
        means: ``[m, g]`` mean of their compressed losses, 0 if there are none.
        scatter: ``[m]`` sum of squared deviations from these means.
        labels: ``[m]`` the clients' clusters.
        usual: Losses of the clusters' clients.
    """
    scales = usual.typical
    valid = np.isfinite(means).all(1) & np.isfinite(scatter) & (scatter >= 0)
    valid &= np.isfinite(counts).all(1) & (counts >= 0).all(1) & (counts.sum(1) > 0)
    counts, means, scatter, labels = counts[valid], means[valid], scatter[valid], labels[valid]
    sizes = counts.sum(1)
    weights = np.minimum(1.0, _MOST * _lower_median(sizes) / sizes)
    inside = _Squares.of(scatter * weights, (sizes - (counts > 0).sum(1)) * weights)
    counts = counts * weights[:, None]
    kept, means = _without_outliers(counts, means, labels, inside.variance)
    counts, means, labels = counts[kept], means[kept], labels[kept]
    centers, totals = _centers(counts, means, labels, len(scales))
    within, between, between_classes, freedom = _variances(
        _Squares.of(scatter[kept] * weights[kept], _inner_freedom(counts, weights[kept])),
        counts,
        means - centers[labels],
        labels,
    )
    return LossLimits(
        scales=scales,
        means=torch.from_numpy(centers),
        counts=torch.from_numpy(totals),
        clients=torch.from_numpy(np.bincount(labels, minlength=len(scales))),
        within=within,
        between=between,
        between_classes=between_classes,
        freedom=freedom,
        mean_losses=usual.mean,
        spread=usual.spread,
    )


@dataclass(frozen=True)
class _Squares:
    """A sum of squares over all clients, and its degrees of freedom."""

    total: float
    freedom: float

    @classmethod
    def of(cls, squares: Array, freedom: Array) -> _Squares:
        """Return the sum over clients ``[m]``, whose variances are limited.

        The limit is four times the median for many degrees of freedom, more for few: the median of
        a single square is well below its mean.
        """
        is_finite = freedom > 0
        squares, freedom = squares[is_finite], freedom[is_finite]
        variances = squares / freedom
        typical = _lower_median(variances)
        if typical > 0:
            variances = np.minimum(variances, _MOST * typical * (1 + 3 / freedom))
        return cls(float((freedom * variances).sum()), float(freedom.sum()))

    def __add__(self, other: _Squares) -> _Squares:
        return _Squares(self.total + other.total, self.freedom + other.freedom)

    @property
    def variance(self) -> float:
        """The variance, with a weak prior: compressed losses have a variance of about 1."""
        return (self.total + _PRIOR_FREEDOM) / (self.freedom + _PRIOR_FREEDOM)

    def excess(self, variance: float, weight: float) -> float:
        """Return how much more there is than noise of this variance, less two standard errors."""
        noise = variance * (self.freedom + 2 * np.sqrt(2 * self.freedom))
        return max(0.0, (self.total - noise) / weight) if weight > 0 else 0.0


def _lower_median(values: Array) -> float:
    """Return the median, the lower one of two, so that one of two clients cannot raise it."""
    return float(np.sort(values)[(len(values) - 1) // 2]) if len(values) else 0.0


def _inner_freedom(counts: Array, weights: Array) -> Array:
    """Return the degrees of freedom within classes of each client, ``[m]``."""
    return np.asarray(counts.sum(1) - (counts > 0).sum(1) * weights)


def _without_outliers(
    counts: Array, means: Array, labels: NDArray[np.int64], within: float
) -> tuple[NDArray[np.bool_], Array]:
    """Return which clients are near their cluster's center ``[m]``, and means that are clipped."""
    sizes = counts.sum(1)
    client_means = (counts * means).sum(1) / sizes
    centers = np.zeros(len(labels))
    distances = np.zeros(0)
    for cluster in np.unique(labels):
        members = labels == cluster
        centers[members] = _lower_median(client_means[members])
        if members.sum() > 2:
            distances = np.append(distances, np.abs(client_means - centers)[members])
    spread = 1.4826 * _lower_median(distances)
    near = np.abs(client_means - centers) <= _OUTLIER * np.sqrt(spread**2 + within / sizes)
    reach = _CLIP * np.sqrt(spread**2 + within)
    return near, np.clip(means, (centers - reach)[:, None], (centers + reach)[:, None])


def _centers(
    counts: Array, means: Array, labels: NDArray[np.int64], num_clusters: int
) -> tuple[Array, Array]:
    """Return the mean of each cluster by class, and the samples behind it: ``[k, g]``."""
    totals, sums = np.zeros((2, num_clusters, counts.shape[1]))
    np.add.at(totals, labels, counts)
    np.add.at(sums, labels, counts * means)
    overall = sums.sum(1) / np.maximum(totals.sum(1), np.finfo(np.float64).tiny)
    return (sums + _PRIOR_COUNT * overall[:, None]) / (totals + _PRIOR_COUNT), totals


def _variances(
    inside: _Squares, counts: Array, residuals: Array, labels: NDArray[np.int64]
) -> tuple[float, float, float, float]:
    """Return the variances within and between clients, by the method of moments.

    A variance between counts as far as it shows: less two standard errors. Where there are too few
    samples to tell the levels apart, all of them count as within.

    Args:
        inside: Squares within classes of clients.
        counts: ``[m, g]`` samples of each client by class; each client has some.
        residuals: ``[m, g]`` means, less the cluster's.
        labels: ``[m]``

    Returns:
        Variances within clients, between clients, and between clients in single classes; degrees
        of freedom of the first.
    """
    sizes = counts.sum(1)
    average = (counts * residuals).sum(1) / sizes
    clusters = [labels == cluster for cluster in np.unique(labels)]
    classes = (counts > 0).sum(1) - 1.0
    estimated = sum(float((counts[c].sum(0) > 0).sum()) - 1 for c in clusters)
    classes *= max(0.0, 1 - estimated / max(classes.sum(), 1.0))
    of_classes = _Squares.of((counts * (residuals - average[:, None]) ** 2).sum(1), classes)
    free = np.full(len(labels), 1 - len(clusters) / max(len(labels), 1))
    of_clients = _Squares.of(sizes * average**2, free)
    concentration = (counts**2).sum(1) / sizes
    between_classes = between = 0.0
    if inside.freedom < _ENOUGH:
        inside += of_classes
    else:
        weight = float((sizes - concentration).sum())
        between_classes = of_classes.excess(inside.variance, weight)
    if inside.freedom < _ENOUGH:
        inside += of_clients
    else:
        alone = sum(float((sizes[c] ** 2).sum() / sizes[c].sum()) for c in clusters)
        explained = between_classes * float(concentration.sum())
        rest = replace(of_clients, total=of_clients.total - explained)
        between = rest.excess(inside.variance, float(sizes.sum()) - alone)
    return inside.variance, between, between_classes, inside.freedom + _PRIOR_FREEDOM


def loss_scores(limits: LossLimits, reported: ClientLosses) -> Array:
    """Return by how much each client's losses exceed those of each cluster's clients: ``[c, k]``.

    It is the larger of two normal scores: that of the mean over all samples, and that of the
    classes that do worse than the mean. The losses are compared class by class, so that a client
    with many samples of a difficult class is not punished for it.

    Args:
        limits: What the clusters' clients are like.
        reported: What c clients report of the clusters' models.

    Returns:
        ``[c, k]`` in standard deviations; 0 for a cluster without known clients.
    """
    counts = reported.compressed.counts.cpu().double().numpy()
    require(
        counts.shape[1:] == tuple(limits.counts.shape),
        f"newcomers report {counts.shape[1]} models and {counts.shape[2]} classes, but the limits "
        f"are for {len(limits.counts)} models and {limits.counts.shape[1]} classes: their targets "
        "must be of the same kind",
    )
    means = reported.compressed.means[..., 0].cpu().double().numpy()
    present = counts > 0
    samples = np.where(present, counts, 1.0)
    behind = limits.counts.numpy() + _PRIOR_COUNT
    excess = np.where(present, means - limits.means.numpy(), 0.0)
    variances = limits.within * (1 / samples + 1 / behind) + limits.between_classes
    shares = counts / np.maximum(counts.sum(2, keepdims=True), 1)
    mean = (shares * excess).sum(2)
    noise = (shares**2 * variances).sum(2)
    clients = limits.clients.double().numpy()
    spread = limits.between * (1 + 1 / np.maximum(clients, 1))
    tiny = np.finfo(np.float64).tiny
    overall = from_student(mean / np.sqrt(noise + spread + tiny), limits.freedom)
    few = limits.within / samples**2  # the mean of few skewed values is not normal
    single = np.maximum(variances * (1 - 2 * shares) + few + noise[..., None], tiny)
    by_class = from_student((excess - mean[..., None]) / np.sqrt(single), limits.freedom)
    squares = np.where(present & (by_class > 0), by_class, 0.0) ** 2
    scores = np.maximum(overall, from_chi_bar(squares.sum(2), present.sum(2)))
    return np.where(clients > 0, scores, 0.0)
