"""The threshold of a graph: fixed, a quantile of the distances, or automatic.

Automatic means: look at the graph at many thresholds, of the distances themselves and of the
clients' denoised profiles of distances, and ask how much of each graph its clusters leave
unexplained. Groups are real where that is little; else the clients are called alike.
docs/thresholds.md tells the reasons and the failures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.graph import (
    Graph,
    cluster_graph,
    disagreements,
    threshold_graph,
)
from srfca.clustering.partition import Partition
from srfca.errors import InputError, require

Matrix = NDArray[np.float64]

CLEAR = 0.15
"""Largest part of a graph that the clusters may leave unexplained to be believed."""
CLEAN = 0.03
"""The same for a finer partition to be preferred to a coarser one."""
PRIOR = 1 / 8
"""Disagreements per client that are counted in advance: a graph of few edges explains nothing."""
FEW = 8
"""Below so many clients there are no profiles, and groups must also be ``APART``."""
APART = 1.5
"""Least ratio of the mean distance across groups to that within them, for few clients."""
_GRID = 40
_GAPS = 10
_MEDIAN_OF_SEMICIRCLE = 0.404
_EDGE_MARGIN = 1.2


@dataclass(frozen=True)
class Candidate:
    """A threshold that was looked at."""

    metric: str
    """``distance``, or ``profile`` for the denoised profiles of distances."""
    threshold: float
    clusters: int
    """Clusters of at least ``min_size`` clients, and of two."""
    left_out: int
    unexplained: float
    """Disagreements over the lesser of edges and non-edges, ``PRIOR`` per client added to both."""
    disagreeing: float
    """The same without what is added."""


@dataclass(frozen=True)
class Choice:
    """The graph that was chosen, and why."""

    metric: str
    threshold: float | None
    """None where no threshold shows groups."""
    graph: Graph | None
    why: str
    candidates: tuple[Candidate, ...] = ()


def check_threshold(threshold: float | str, name: str = "threshold") -> None:
    """Refuse what is neither ``auto``, nor a percentage, nor a number of at least 0."""
    if threshold == "auto":
        return
    if isinstance(threshold, str):
        try:
            share = float(threshold.removesuffix("%"))
        except ValueError:
            share = np.nan
        require(
            threshold.endswith("%") and 0 <= share <= 100,
            f"{name} must be 'auto', a number, or a quantile such as '30%', not {threshold!r}",
        )
        return
    require(
        not isinstance(threshold, bool) and threshold >= 0,
        f"{name} must not be negative, but is {threshold}",
    )


def choose(distances: Matrix, threshold: float | str, min_size: int, seed: int = 0) -> Choice:
    """The graph of a matrix ``[m, m]`` of distances at a threshold, or at the best one."""
    check_threshold(threshold)
    if threshold == "auto":
        return _automatic(distances, min_size, seed)
    if isinstance(threshold, str):
        quantile = float(threshold.removesuffix("%")) / 100
        value = float(np.quantile(_pairs(distances), quantile)) if len(distances) > 1 else 0.0
        why = f"the {threshold} quantile of the distances"
    else:
        value, why = float(threshold), "given"
    return Choice("distance", value, threshold_graph(distances, value), why)


def profile(distances: Matrix) -> tuple[Matrix, float] | None:
    """Distances ``[m, m]`` of the clients' denoised profiles, and how far noise alone puts them.

    A client's profile is its row of distances (their logarithms, so that the spread of large ones
    does not drown small ones), less the means of rows and columns. Clients of one group are near
    and far from the same others, even where every single distance is mostly noise: the profiles
    then lie in few dimensions, one less than there are groups, and what sticks out of the noise's
    spectrum (Wigner's semicircle, its radius read from the median) is kept. None if nothing does.
    """
    count = len(distances)
    if count < FEW:
        return None
    symmetric = (distances + distances.T) / 2
    centred = np.log(np.maximum(symmetric, 1e-6 * np.median(_pairs(symmetric)) + 1e-300))
    np.fill_diagonal(centred, 0.0)
    rows = centred.sum(1) / (count - 2)
    centred = centred - rows[:, None] - rows + centred.sum() / ((count - 1) * (count - 2))
    np.fill_diagonal(centred, 0.0)
    values, vectors = np.linalg.eigh(centred)
    size = np.abs(values)
    radius = np.median(size) / _MEDIAN_OF_SEMICIRCLE
    signal = size > radius * _EDGE_MARGIN * (1 + 1.3 * count ** (-2 / 3))
    if not signal.any():
        return None
    denoised = vectors[:, signal] * values[signal]
    noise = centred - denoised @ vectors[:, signal].T
    deviation = np.sqrt((noise**2).sum() / (count * (count - 1)))
    square = (denoised**2).sum(1)
    apart = square[:, None] + square - 2 * denoised @ denoised.T
    np.fill_diagonal(apart, 0.0)
    return np.sqrt(np.maximum(apart, 0.0)), float(deviation * np.sqrt(2 * signal.sum()))


def _automatic(distances: Matrix, min_size: int, seed: int) -> Choice:
    looked: list[tuple[Candidate, Graph]] = []
    matrices = [("distance", distances, -1.0)]
    denoised = profile(distances)
    if denoised is not None:
        matrices.append(("profile", *denoised))
    for metric, matrix, least in matrices:
        for value in _thresholds(matrix):
            graph = threshold_graph(matrix, value)
            if value >= least and _lesser(graph) > 0:
                candidate, found = _look(graph, metric, value, min_size, seed)
                if len(distances) >= FEW or _apart(distances, found):
                    looked.append((candidate, graph))
    candidates = tuple(candidate for candidate, _ in looked)
    clear = [pair for pair in looked if pair[0].unexplained <= CLEAR and pair[0].clusters]
    if not clear:
        least_left = min((c.unexplained for c in candidates), default=1.0)
        why = f"no groups: at every threshold {least_left:.0%} or more of the graph is no clusters"
        return Choice("distance", None, None, why, candidates)
    clean = [
        pair
        for pair in clear
        if pair[0].disagreeing <= CLEAN and pair[0].left_out <= 0.1 * len(distances)
    ]
    best, graph = min(
        clean or clear,
        key=lambda pair: (-pair[0].clusters if clean else 0, pair[0].unexplained),
    )
    why = (
        f"at {best.metric} {best.threshold:.4g} the graph is {best.clusters} clusters "
        f"but for {best.disagreeing:.1%}"
    )
    return Choice(best.metric, best.threshold, graph, why, candidates)


def _look(
    graph: Graph, metric: str, value: float, min_size: int, seed: int
) -> tuple[Candidate, Partition]:
    """How well clusters explain a graph, and these clusters."""
    found = cluster_graph(graph, "correlation", seed, restarts=2)
    wrong, lesser, prior = disagreements(graph, found.labels), _lesser(graph), PRIOR * len(found)
    kept = found.keep(max(min_size, 2))
    candidate = Candidate(
        metric=metric,
        threshold=value,
        clusters=kept.num_clusters,
        left_out=len(kept.left_out),
        unexplained=(wrong + prior) / (lesser + prior),
        disagreeing=wrong / lesser,
    )
    return candidate, found


def _lesser(graph: Graph) -> float:
    """The number of edges or of non-edges, whichever is less."""
    count = graph.shape[0]
    return float(min(graph.nnz, count * (count - 1) - graph.nnz)) / 2


def _apart(distances: Matrix, partition: Partition) -> bool:
    """Whether groups are ``APART`` on average."""
    same = partition.labels[:, None] == partition.labels
    across = distances[~same]
    within = distances[same & ~np.eye(len(distances), dtype=bool)]
    if len(across) == 0 or len(within) == 0:
        return False
    return bool(across.mean() >= APART * within.mean())


def _thresholds(matrix: Matrix) -> list[float]:
    """Quantiles of the distances, and the middles of the widest gaps between them."""
    values = np.sort(_pairs(matrix))
    if len(values) < 2:
        return []
    quantiles = np.quantile(values, np.arange(1, _GRID) / _GRID)
    widest = np.argsort(-np.diff(values), kind="stable")[:_GAPS]
    middles = (values[widest] + values[widest + 1]) / 2
    return [float(value) for value in np.unique(np.concatenate([quantiles, middles]))]


def _pairs(matrix: Matrix) -> Matrix:
    """All entries off the diagonal."""
    return matrix[~np.eye(len(matrix), dtype=bool)]


def check_distances(distances: Matrix) -> None:
    """Refuse a matrix that is not square, or has a NaN."""
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise InputError(f"distances must be a square matrix, not of shape {distances.shape}")
    if np.isnan(distances).any():
        row, column = np.argwhere(np.isnan(distances))[0]
        raise InputError(f"distances must not be NaN, but the one from {row} to {column} is")
