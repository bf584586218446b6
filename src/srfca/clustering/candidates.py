"""Candidates for an automatic threshold, and how well clusters explain the graph of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from srfca.clustering.graph import Graph, cluster_graph, disagreements, threshold_graph
from srfca.clustering.matrix import Matrix, off_diagonal
from srfca.clustering.partition import Partition
from srfca.clustering.profile import MIN_CLIENTS, Profile

Metric = Literal["auto", "distance", "profile"]
"""What a threshold applies to: the distances, their denoised profiles, or whichever is better."""
METRICS: tuple[Metric, ...] = get_args(Metric)

PRIOR_PER_CLIENT = 1 / 8
"""Disagreements per client added for smoothing: a graph of few edges proves nothing."""
MIN_SEPARATION = 1.5
"""Fewer than ``MIN_CLIENTS`` clients: least ratio of mean distances across and within clusters."""
_QUANTILES = 40
"""Quantiles of the distances that are candidates, less one."""
_GAPS = 10
"""Widest gaps between distances whose middles are candidates."""


@dataclass(frozen=True)
class Candidate:
    """A threshold that was evaluated."""

    metric: str
    """What it applies to: ``distance`` or ``profile``."""
    threshold: float
    num_clusters: int
    """Clusters of at least ``min_size``, and at least two, clients."""
    num_unclustered: int
    """Clients in none of these clusters."""
    smoothed_disagreement: float
    """The disagreement with ``PRIOR_PER_CLIENT`` added to numerator and denominator."""
    disagreement: float
    """Disagreements as a fraction of the edges or of the non-edges, whichever are fewer."""


@dataclass(frozen=True)
class Evaluated:
    """A candidate with its graph and clusters."""

    candidate: Candidate
    graph: Graph
    partition: Partition


def evaluate_candidates(
    distances: Matrix, profile: Profile | None, min_size: int, seed: int, metric: Metric
) -> list[Evaluated]:
    """Evaluate the candidate thresholds of the distances and of the profiles."""
    matrices = [] if metric == "profile" else [("distance", distances, -1.0)]
    if profile is not None:
        matrices.append(("profile", profile.distances, profile.noise))
    evaluated = []
    for name, matrix, minimum in matrices:
        for threshold in _candidate_thresholds(matrix):
            graph = threshold_graph(matrix, threshold)
            if threshold >= minimum and _minority(graph) > 0:
                item = _evaluate(graph, name, threshold, min_size, seed)
                if len(distances) >= MIN_CLIENTS or _is_separated(distances, item.partition):
                    evaluated.append(item)
    return evaluated


def _evaluate(graph: Graph, metric: str, threshold: float, min_size: int, seed: int) -> Evaluated:
    """Cluster a candidate's graph and measure the disagreement."""
    partition = cluster_graph(graph, "correlation", seed, restarts=2)
    wrong, minority = disagreements(graph, partition.labels), _minority(graph)
    prior = PRIOR_PER_CLIENT * len(partition)
    large = partition.drop_smaller_than(max(min_size, 2))
    candidate = Candidate(
        metric=metric,
        threshold=threshold,
        num_clusters=large.num_clusters,
        num_unclustered=len(large.unclustered),
        smoothed_disagreement=(wrong + prior) / (minority + prior),
        disagreement=wrong / minority,
    )
    return Evaluated(candidate, graph, partition)


def _minority(graph: Graph) -> float:
    """Count the edges or the non-edges, whichever are fewer."""
    count = graph.shape[0]
    return float(min(graph.nnz, count * (count - 1) - graph.nnz)) / 2


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
