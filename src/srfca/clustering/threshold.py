"""The threshold of a graph: fixed, a quantile of the distances, or automatic.

Automatic means: look at the graph at many thresholds, of the distances themselves and of the
clients' denoised profiles of distances, and ask how much of each graph its clusters leave
unexplained. Groups are real where that is little; else the clients are called alike.
docs/thresholds.md tells the reasons and the failures.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from srfca.errors import InputError, require, unknown

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
class Profile:
    """Denoised profiles of distances to L clients, the landmarks.

    A client's profile is its row of distances to the landmarks (their logarithms, so that the
    spread of large ones does not drown small ones), less the means of rows and columns. Clients of
    one group are near and far from the same others, even where every single distance is mostly
    noise: the profiles then lie in few dimensions, one less than there are groups.
    """

    means: Matrix
    """``[L]`` what is subtracted for each landmark."""
    least: float
    """The distance below which distances are taken for it, so that they have a logarithm."""
    directions: Matrix
    """``[L, r]`` the directions that stick out of the noise."""
    landmarks: Matrix
    """``[L, r]`` the landmarks' own coordinates along them."""
    noise: float
    """How far noise alone puts two profiles from each other."""

    def coordinates(self, distances: Matrix) -> Matrix:
        """Where other clients' profiles lie, ``[c, r]``, from their distances ``[c, L]``."""
        centred = np.log(np.maximum(distances, self.least)) - self.means
        found: Matrix = (centred - centred.mean(1, keepdims=True)) @ self.directions
        return found

    @property
    def distances(self) -> Matrix:
        """``[L, L]`` between the landmarks' profiles."""
        square = (self.landmarks**2).sum(1)
        apart = square[:, None] + square - 2 * self.landmarks @ self.landmarks.T
        np.fill_diagonal(apart, 0.0)
        return np.asarray(np.sqrt(np.maximum(apart, 0.0)))


@dataclass(frozen=True)
class Choice:
    """The graph that was chosen, and why."""

    metric: str
    """What the threshold is for: ``distance`` or ``profile``."""
    threshold: float | None
    """None where no threshold shows groups."""
    graph: Graph | None
    why: str
    candidates: tuple[Candidate, ...] = ()
    margin: tuple[float, float] | None = None
    """Between which of the candidates' thresholds the same clusters are found."""
    warning: str | None = None
    """What makes the choice doubtful, if anything does."""
    profile: Profile | None = None
    """The profiles, where there are any."""


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


METRICS = ("auto", "distance", "profile")


def choose(
    distances: Matrix,
    threshold: float | str,
    min_size: int,
    seed: int = 0,
    metric: str = "auto",
) -> Choice:
    """The graph of a matrix ``[m, m]`` of distances at a threshold, or at the best one.

    A threshold is for the distances themselves, or with ``metric="profile"`` for those between
    profiles. With ``threshold="auto"`` and ``metric="auto"`` it is for whichever shows groups best.
    """
    check_threshold(threshold)
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    require(
        not isinstance(threshold, str) or bool(np.isfinite(distances).all()),
        f"threshold={threshold!r} needs finite distances: give a number",
    )
    if threshold == "auto":
        return _automatic(distances, min_size, seed, metric)
    denoised = profile(distances) if metric == "profile" else None
    if metric == "profile" and denoised is None:
        return Choice("profile", None, None, "no groups: nothing in the profiles but noise")
    matrix = distances if denoised is None else denoised.distances
    name = "distance" if denoised is None else "profile"
    if isinstance(threshold, str):
        quantile = float(threshold.removesuffix("%")) / 100
        value = float(np.quantile(_pairs(matrix), quantile)) if len(matrix) > 1 else 0.0
        why = f"the {threshold} quantile of the {name}s"
    else:
        value, why = float(threshold), "given"
    return Choice(name, value, threshold_graph(matrix, value), why, profile=denoised)


def profile(distances: Matrix) -> Profile | None:
    """The denoised profiles of clients by their distances ``[m, m]``; None if there is but noise.

    What sticks out of the noise's spectrum (Wigner's semicircle, its radius read from the median)
    is kept.
    """
    count = len(distances)
    if count < FEW:
        return None
    symmetric = (distances + distances.T) / 2
    least = 1e-6 * float(np.median(_pairs(symmetric))) + 1e-300
    centred = np.log(np.maximum(symmetric, least))
    np.fill_diagonal(centred, 0.0)
    means = centred.sum(1) / (count - 2)
    centred = centred - means[:, None] - means + centred.sum() / ((count - 1) * (count - 2))
    np.fill_diagonal(centred, 0.0)
    values, vectors = np.linalg.eigh(centred)
    size = np.abs(values)
    radius = np.median(size) / _MEDIAN_OF_SEMICIRCLE
    signal = size > radius * _EDGE_MARGIN * (1 + 1.3 * count ** (-2 / 3))
    if not signal.any():
        return None
    directions = vectors[:, signal]
    landmarks = directions * values[signal]
    left = centred - landmarks @ directions.T
    deviation = np.sqrt((left**2).sum() / (count * (count - 1)))
    noise = float(deviation * np.sqrt(2 * signal.sum()))
    return Profile(means, least, directions, landmarks, noise)


def _automatic(distances: Matrix, min_size: int, seed: int, metric: str) -> Choice:
    looked: list[tuple[Candidate, Graph, Partition]] = []
    matrices = [] if metric == "profile" else [("distance", distances, -1.0)]
    denoised = None if metric == "distance" else profile(distances)
    if denoised is not None:
        matrices.append(("profile", denoised.distances, denoised.noise))
    for name, matrix, least in matrices:
        for value in _thresholds(matrix):
            graph = threshold_graph(matrix, value)
            if value >= least and _lesser(graph) > 0:
                candidate, found = _look(graph, name, value, min_size, seed)
                if len(distances) >= FEW or _apart(distances, found):
                    looked.append((candidate, graph, found))
    candidates = tuple(candidate for candidate, _, _ in looked)
    clear = [each for each in looked if each[0].unexplained <= CLEAR]
    clear = [each for each in clear if each[0].clusters] or clear
    if not clear:
        least_left = min((c.unexplained for c in candidates), default=1.0)
        why = f"no groups: at every threshold {least_left:.0%} or more of the graph is no clusters"
        return Choice("distance", None, None, why, candidates, profile=denoised)
    clean = [
        each
        for each in clear
        if each[0].disagreeing <= CLEAN and each[0].left_out <= 0.1 * len(distances)
    ]
    best, graph, partition = min(
        clean or clear,
        key=lambda each: (-each[0].clusters if clean else 0, each[0].unexplained),
    )
    margin = _margin(best, partition, looked)
    why = (
        f"at {best.metric} {best.threshold:.4g} the graph is {best.clusters} clusters but for "
        f"{best.disagreeing:.1%}; they are the same from {margin[0]:.4g} to {margin[1]:.4g}"
    )
    warning = None
    if not clean:
        warning = (
            f"no clear gap: {best.disagreeing:.0%} of the graph is no clusters; "
            f"clients left out: {best.left_out}"
        )
    elif margin[0] == margin[1]:
        warning = "no clear gap: at the next thresholds the clusters are others"
    return Choice(best.metric, best.threshold, graph, why, candidates, margin, warning, denoised)


def _margin(
    best: Candidate, partition: Partition, looked: Sequence[tuple[Candidate, Graph, Partition]]
) -> tuple[float, float]:
    """The least and the largest of the thresholds around the best that give the same clusters."""
    rivals = [each for each in looked if each[0].metric == best.metric]
    same = [found == partition for _, _, found in rivals]
    at = next(place for place, each in enumerate(rivals) if each[0] == best)
    low = high = at
    while low > 0 and same[low - 1]:
        low -= 1
    while high + 1 < len(rivals) and same[high + 1]:
        high += 1
    return rivals[low][0].threshold, rivals[high][0].threshold


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
    """Refuse a matrix that is not square, has a NaN, or a negative number beyond rounding."""
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise InputError(f"distances must be a square matrix, not of shape {distances.shape}")
    if np.isnan(distances).any():
        row, column = np.argwhere(np.isnan(distances))[0]
        raise InputError(f"distances must not be NaN, but the one from {row} to {column} is")
    pairs = np.where(np.eye(len(distances), dtype=bool), 0.0, distances)
    least = pairs.min(initial=0.0)
    if least < -1e-6 * pairs.max(initial=0.0):
        row, column = np.argwhere(pairs == least)[0]
        raise InputError(
            f"distances must not be negative, but the one from {row} to {column} is {least:.4g} "
            "(of a loss that may be negative: add a constant to it)"
        )


def complete(distances: Matrix) -> NDArray[np.int64]:
    """Vertices among whom all distances ``[m, m]`` are known: the one that lacks most goes first.

    What lies on the diagonal does not count.

    >>> nan = np.nan
    >>> complete(np.array([[0, nan, 1], [nan, 0, nan], [1, nan, 0]])).tolist()
    [0, 2]
    """
    unknown = np.isnan(distances)
    np.fill_diagonal(unknown, False)
    unknown |= unknown.T
    here = np.ones(len(distances), dtype=bool)
    while (lacking := (unknown & here).sum(1) * here).any():
        here[lacking.argmax()] = False
    return np.flatnonzero(here)
