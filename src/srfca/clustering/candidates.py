"""Candidates for an automatic threshold, and how well clusters explain the graph of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from srfca.clustering.dense_graphs import (
    MAX_VERTICES,
    correlation_clustering_of_all,
    disagreements_of_all,
)
from srfca.clustering.graph import Graph, cluster_graph, disagreements, threshold_graph
from srfca.clustering.matrix import Matrix, off_diagonal
from srfca.clustering.partition import Labels, Partition
from srfca.clustering.profile import MIN_CLIENTS, Profile

Metric = Literal["auto", "distance", "profile"]
"""What a threshold applies to: the distances, their denoised profiles, or whichever is better."""
METRICS: tuple[Metric, ...] = get_args(Metric)
ThresholdMetric = Literal["distance", "profile"]
"""What a threshold has been chosen for."""

PRIOR_PER_CLIENT = 1 / 8
"""Disagreements per client added for smoothing: a graph of few edges proves nothing."""
MIN_SEPARATION = 1.5
"""Fewer than ``MIN_CLIENTS`` clients: least ratio of mean distances across and within clusters."""
_QUANTILES = 40
"""Quantiles of the distances that are candidates, less one."""
_GAPS = 10
"""Widest gaps between distances whose middles are candidates."""
_RESTARTS = 2
"""Pivot orders by which a candidate's graph is clustered."""


@dataclass(frozen=True)
class Candidate:
    """A threshold that was evaluated.

    Args:
        metric: What it applies to: ``distance`` or ``profile``.
        threshold: Its value.
        num_clusters: Clusters of at least ``min_size``, and at least two, clients.
        num_unclustered: Clients in none of these clusters.
        smoothed_disagreement: The disagreement with ``PRIOR_PER_CLIENT`` added to numerator and
            denominator.
        disagreement: Disagreements as a fraction of the edges or of the non-edges, whichever are
            fewer.

    Examples:
        >>> from srfca.clustering import choose_threshold
        >>> at = np.array([1.0, 1.1, 1.2, 5.0, 5.1, 5.2])
        >>> choice = choose_threshold(np.abs(at[:, None] - at), "auto", min_size=2)
        >>> [best] = {c for c in choice.candidates if c.threshold == choice.threshold}
        >>> best.num_clusters, best.num_unclustered, best.disagreement
        (2, 0, 0.0)
    """

    metric: ThresholdMetric
    threshold: float
    num_clusters: int
    num_unclustered: int
    smoothed_disagreement: float
    disagreement: float


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A candidate with the matrix that its threshold applies to, and its clusters' labels."""

    candidate: Candidate
    matrix: Matrix
    labels: Labels

    @property
    def graph(self) -> Graph:
        """The graph at the threshold."""
        return threshold_graph(self.matrix, self.candidate.threshold)

    @cached_property
    def partition(self) -> Partition:
        """The clusters."""
        return Partition(self.labels)


def evaluate_candidates(
    distances: Matrix, profile: Profile | None, min_size: int, seed: int, metric: Metric
) -> list[Evaluated]:
    """Evaluate the candidate thresholds of the distances and of the profiles."""
    matrices: list[tuple[ThresholdMetric, Matrix, float]] = []
    if metric != "profile":
        matrices.append(("distance", distances, -1.0))
    if profile is not None:
        matrices.append(("profile", profile.distances, profile.noise))
    evaluated = []
    for name, matrix, minimum in matrices:
        thresholds = [value for value in _candidate_thresholds(matrix) if value >= minimum]
        for clustered in _cluster_all(matrix, thresholds, seed):
            item = _evaluate(clustered, matrix, name, min_size)
            if len(distances) >= MIN_CLIENTS or _is_separated(distances, item.partition):
                evaluated.append(item)
    return evaluated


@dataclass(frozen=True, eq=False)
class _Clustered:
    """The clusters of the graph at a threshold."""

    threshold: float
    labels: Labels
    disagreements: float
    minority: float
    """The edges or the non-edges, whichever are fewer."""


def _cluster_all(matrix: Matrix, thresholds: Sequence[float], seed: int) -> list[_Clustered]:
    """Cluster the graph of each threshold that has both edges and non-edges."""
    count = len(matrix)
    if count > MAX_VERTICES:
        graphs = ((value, threshold_graph(matrix, value)) for value in thresholds)
        return [
            _cluster(graph, value, seed) for value, graph in graphs if _minority(graph.nnz, count)
        ]
    edges = matrix <= np.asarray(thresholds)[:, None, None]
    edges[:, np.arange(count), np.arange(count)] = False
    minorities = [_minority(int(number), count) for number in edges.sum((1, 2))]
    mixed = np.flatnonzero(minorities)
    labels = correlation_clustering_of_all(edges[mixed], seed, _RESTARTS)
    wrong = disagreements_of_all(edges[mixed], labels)
    return [
        _Clustered(thresholds[number], labels[place], float(wrong[place]), minorities[number])
        for place, number in enumerate(mixed.tolist())
    ]


def _cluster(graph: Graph, threshold: float, seed: int) -> _Clustered:
    labels = cluster_graph(graph, "correlation", seed, _RESTARTS).labels
    minority = _minority(graph.nnz, len(labels))
    return _Clustered(threshold, labels, disagreements(graph, labels), minority)


def _evaluate(
    clustered: _Clustered, matrix: Matrix, metric: ThresholdMetric, min_size: int
) -> Evaluated:
    """Return a candidate with its disagreement."""
    wrong, minority = clustered.disagreements, clustered.minority
    prior = PRIOR_PER_CLIENT * len(clustered.labels)
    sizes = np.bincount(clustered.labels)
    is_large = sizes >= max(min_size, 2)
    candidate = Candidate(
        metric=metric,
        threshold=clustered.threshold,
        num_clusters=int(is_large.sum()),
        num_unclustered=int(sizes[~is_large].sum()),
        smoothed_disagreement=(wrong + prior) / (minority + prior),
        disagreement=wrong / minority,
    )
    return Evaluated(candidate, matrix, clustered.labels)


def _minority(num_edges: int, num_vertices: int) -> float:
    """Count the edges or the non-edges, whichever are fewer."""
    return float(min(num_edges, num_vertices * (num_vertices - 1) - num_edges)) / 2


def _is_separated(distances: Matrix, partition: Partition) -> bool:
    """Tell whether mean distances across clusters exceed those within by ``MIN_SEPARATION``."""
    same = partition.labels[:, None] == partition.labels
    across = distances[~same]
    within = distances[same & ~np.eye(len(distances), dtype=bool)]
    if len(across) == 0 or len(within) == 0:
        return False
    with np.errstate(over="ignore"):  # a mean of distances near the largest number is infinite
        return bool(across.mean() >= MIN_SEPARATION * within.mean())


def _candidate_thresholds(matrix: Matrix) -> list[float]:
    """Return quantiles of the distances, and the middles of the widest gaps between them."""
    values = np.sort(off_diagonal(matrix))
    if len(values) < 2:
        return []
    quantiles = np.quantile(values, np.arange(1, _QUANTILES) / _QUANTILES)
    widest = np.argsort(-np.diff(values), kind="stable")[:_GAPS]
    middles = values[widest] / 2 + values[widest + 1] / 2
    return [float(value) for value in np.unique(np.concatenate([quantiles, middles]))]
