"""Clusters of many vertices, from few of their distances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.graph import pivots
from srfca.clustering.partition import Labels, Partition
from srfca.clustering.threshold import (
    Choice,
    Matrix,
    check_distances,
    check_threshold,
    choose,
    complete,
)

Between = Callable[[Labels, Labels], Matrix]
"""The distances ``[a, b]`` between some vertices and some others, asked for as they are needed."""

Nearness = Callable[[Labels, Labels], NDArray[np.bool_]]
"""Whether each of some vertices has an edge to each of some others: ``[a, b]``."""

LANDMARKS = 256
"""Vertices from whose distances the threshold is chosen, and to which profiles are taken."""
PATIENCE = 50
"""Pivots in a row that find no cluster before the rest is left out."""
SAMPLE = 16
"""Members by which a cluster is judged in a local move."""
_BLOCK = 4096


def lazy_clusters(
    between: Between,
    count: int,
    threshold: float | str,
    min_size: int,
    seed: int = 0,
    metric: str = "auto",
) -> tuple[Partition | None, Choice]:
    """Correlation clustering of ``count`` vertices with about C + 16 distances of each.

    The threshold, unless it is given, is chosen from the distances among some landmarks. Random
    pivots find the clusters, those of at least ``min_size`` are kept, and every vertex that agrees
    with less than half of a sample of its cluster moves to the cluster it agrees with most, or is
    left out. None where the landmarks show no groups. A distance that is NaN is not known, and no
    edge.
    """
    rng = np.random.default_rng(seed)
    landmarks = np.sort(rng.permutation(count)[:LANDMARKS])
    if isinstance(threshold, str) or metric == "profile":
        landmarks, among = known(landmarks, between(landmarks, landmarks))
        choice = choose(among, threshold, min_size, seed, metric)
    else:
        check_threshold(threshold)
        choice = Choice("distance", float(threshold), None, "given")
    if choice.threshold is None:
        return None, choice
    near = nearness(between, count, landmarks, choice)

    def of_one(vertex: int, others: Labels) -> NDArray[np.bool_]:
        return np.asarray(near(np.array([vertex]), others)[0])

    found = Partition(pivots(of_one, rng.permutation(count), max(min_size, 2), PATIENCE))
    return sampled_moves(near, found.keep(min_size), rng), choice


def known(landmarks: Labels, among: Matrix) -> tuple[Labels, Matrix]:
    """The landmarks among which all distances ``[L, L]`` are known, and these distances."""
    here = complete(among)
    among = among[np.ix_(here, here)]
    np.fill_diagonal(among, 0.0)
    check_distances(among)
    return landmarks[here], among


def nearness(between: Between, count: int, landmarks: Labels, choice: Choice) -> Nearness:
    """Which vertices are within the chosen threshold of some, by distance or by profile."""
    assert choice.threshold is not None
    limit = choice.threshold
    if choice.metric == "distance":
        return lambda some, others: between(some, others) <= limit
    assert choice.profile is not None
    profiles = np.empty((count, choice.profile.directions.shape[1]))
    for block in np.array_split(np.arange(count), -(-count // _BLOCK)):
        profiles[block] = choice.profile.coordinates(between(block, landmarks))
    profiles[landmarks] = choice.profile.landmarks

    def near(some: Labels, others: Labels) -> NDArray[np.bool_]:
        apart = profiles[others] - profiles[some][:, None]
        return np.asarray(np.einsum("aij,aij->ai", apart, apart) <= limit**2)

    return near


def sampled_moves(near: Nearness, partition: Partition, rng: np.random.Generator) -> Partition:
    """One sweep of local moves, every cluster judged by a sample of its members.

    A vertex is worth ``2 e - s`` to a cluster of s vertices of which it has an edge to e: the
    sample tells e / s. A vertex that no cluster is worth more than nothing to is left out.
    """
    if partition.num_clusters == 0:
        return partition
    samples = [rng.permutation(members)[:SAMPLE] for members in partition]
    labels = partition.labels.copy()
    doubtful = labels < 0
    for cluster, sample in enumerate(samples):
        members = partition.members(cluster)
        doubtful[members] = _agreement(near, members, sample) < 0.5
    asking = np.flatnonzero(doubtful)
    if len(asking):
        agreed = np.stack([_agreement(near, asking, sample) for sample in samples], axis=1)
        worth = (2 * agreed - 1) * partition.sizes
        labels[asking] = np.where(worth.max(1) > 0, worth.argmax(1), -1)
    return Partition(labels)


def _agreement(near: Nearness, vertices: Labels, sample: Labels) -> NDArray[np.float64]:
    """To what part of a sample each vertex has an edge, itself not counted: ``[v]``."""
    edges = near(sample, vertices)
    own = sample[:, None] == vertices
    return np.asarray((edges & ~own).sum(0) / np.maximum((~own).sum(0), 1))
