"""Clusters of many vertices from few of their distances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.candidates import Metric
from srfca.clustering.graph import pivot
from srfca.clustering.matrix import (
    Matrix,
    check_distances,
    comparable_subset,
    complete_subset,
)
from srfca.clustering.partition import Indices, Partition
from srfca.clustering.threshold import Choice, check_threshold, choose_threshold

DistancesBetween = Callable[[Indices, Indices], Matrix]
"""From vertices ``[a]`` and vertices ``[b]`` to the distances between them: ``[a, b]``."""

EdgesBetween = Callable[[Indices, Indices], NDArray[np.bool_]]
"""From vertices ``[a]`` and vertices ``[b]`` to whether they have an edge: ``[a, b]``."""

NUM_LANDMARKS = 256
"""Vertices whose distances decide the threshold, and to which profiles are computed."""
PATIENCE = 50
"""Pivots in a row without a cluster after which the remaining vertices stay unclustered."""
SAMPLE_SIZE = 16
"""Members that represent a cluster in a local move."""
_BLOCK = 4096
"""Vertices whose profiles are computed at once."""


def cluster_from_few_distances(
    distances_between: DistancesBetween,
    count: int,
    threshold: float | str,
    min_size: int,
    seed: int = 0,
    metric: Metric = "auto",
    allow_unknown: bool = False,
) -> tuple[Partition | None, Choice]:
    """Cluster ``count`` vertices, querying about C + 16 distances of each for C clusters.

    The threshold, unless it is a number, is chosen from the distances among some landmarks. Random
    pivots find the clusters, of which those of at least ``min_size`` stay. Then every vertex with
    edges to less than half of a sample of its cluster moves to the cluster that fits it best, or
    becomes unclustered. A distance of NaN is missing, and no edge.

    Args:
        distances_between: Answers queries for distances.
        count: Number of vertices.
        threshold: A number, a quantile such as ``"30%"``, or ``"auto"``.
        min_size: Smaller clusters are dropped.
        seed: Seed of the landmarks, the pivots and the samples.
        metric: What the threshold applies to, as in ``choose_threshold``.
        allow_unknown: Whether NaN is also a pair that cannot be compared. Landmarks then stay if
            they have known distances to a quarter of the others, instead of to all.

    Returns:
        The partition, None if the landmarks show no groups; and the choice of the threshold.

    Raises:
        InputError: If an option is invalid.

    Examples:
        >>> at = np.arange(40) % 2
        >>> def distances_between(a, b):
        ...     return np.abs(at[a][:, None] - at[b]).astype(float)
        >>> partition, choice = cluster_from_few_distances(distances_between, 40, 0.5, min_size=2)
        >>> partition, choice.reason
        (Partition(20 in cluster 0, 20 in cluster 1), 'given')
    """
    rng = np.random.default_rng(seed)
    landmarks = np.sort(rng.permutation(count)[:NUM_LANDMARKS])
    if isinstance(threshold, str) or metric == "profile":
        among = distances_between(landmarks, landmarks)
        landmarks, among = complete_landmarks(landmarks, among, allow_unknown)
        choice = choose_threshold(among, threshold, min_size, seed, metric)
    else:
        check_threshold(threshold)
        choice = Choice("distance", float(threshold), None, "given")
    if choice.threshold is None:
        return None, choice
    edges_between = edges_at(choice, distances_between, count, landmarks)

    def has_edges(vertex: int, candidates: Indices) -> NDArray[np.bool_]:
        return np.asarray(edges_between(np.array([vertex]), candidates)[0])

    partition = Partition(pivot(has_edges, rng.permutation(count), max(min_size, 2), PATIENCE))
    return sampled_moves(edges_between, partition.drop_smaller_than(min_size), rng), choice


def complete_landmarks(
    landmarks: Indices, distances: Matrix, allow_unknown: bool = False
) -> tuple[Indices, Matrix]:
    """Return the landmarks without missing distances ``[L, L]`` among them, and these distances.

    If unknown distances are allowed, those with few of them.
    """
    chosen = (comparable_subset if allow_unknown else complete_subset)(distances)
    distances = distances[np.ix_(chosen, chosen)]
    np.fill_diagonal(distances, 0.0)
    check_distances(distances, allow_unknown)
    return landmarks[chosen], distances


def edges_at(
    choice: Choice, distances_between: DistancesBetween, count: int, landmarks: Indices
) -> EdgesBetween:
    """Return a function that answers queries for edges at the chosen threshold.

    For a threshold of profiles, the distances of all vertices to the landmarks are queried once.
    """
    assert choice.threshold is not None
    limit = choice.threshold
    if choice.metric == "distance":
        return lambda a, b: distances_between(a, b) <= limit
    assert choice.profile is not None
    profiles = np.empty((count, choice.profile.directions.shape[1]))
    for block in np.array_split(np.arange(count), -(-count // _BLOCK)):
        profiles[block] = choice.profile.coordinates(distances_between(block, landmarks))
    profiles[landmarks] = choice.profile.landmarks

    def edges_between(a: Indices, b: Indices) -> NDArray[np.bool_]:
        differences = profiles[b] - profiles[a][:, None]
        return np.asarray(np.einsum("aij,aij->ai", differences, differences) <= limit**2)

    return edges_between


def sampled_moves(
    edges_between: EdgesBetween, partition: Partition, rng: np.random.Generator
) -> Partition:
    """Sweep once over all vertices with local moves, judging clusters by samples.

    A vertex with edges to ``e`` of the ``s`` vertices of a cluster gains ``2 e - s`` there; a
    sample of members estimates ``e / s``. A vertex that gains nowhere becomes unclustered.

    Args:
        edges_between: Answers queries for edges.
        partition: The clusters before.
        rng: Draws the samples.
    """
    if partition.num_clusters == 0:
        return partition
    samples = [rng.permutation(members)[:SAMPLE_SIZE] for members in partition]
    labels = partition.labels.copy()
    doubtful = labels < 0
    for cluster, sample in enumerate(samples):
        members = partition.members(cluster)
        doubtful[members] = _agreement(edges_between, members, sample) < 0.5
    movable = np.flatnonzero(doubtful)
    if len(movable):
        agreement = np.stack(
            [_agreement(edges_between, movable, sample) for sample in samples], axis=1
        )
        gain = (2 * agreement - 1) * partition.sizes
        labels[movable] = np.where(gain.max(1) > 0, gain.argmax(1), -1)
    return Partition(labels)


def _agreement(
    edges_between: EdgesBetween, vertices: Indices, sample: Indices
) -> NDArray[np.float64]:
    """Return the fraction of a sample that each vertex has an edge to, itself excluded: ``[v]``."""
    edges = edges_between(sample, vertices)
    itself = sample[:, None] == vertices
    return np.asarray((edges & ~itself).sum(0) / np.maximum((~itself).sum(0), 1))
