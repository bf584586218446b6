"""How clients lie in their clusters: silhouettes and outliers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from srfca.analysis.evidence import Evidence, positions_of

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Source = Literal["distances", "losses"]


@dataclass(frozen=True, eq=False)
class Structure:
    """How clients lie in their clusters ``[m]``, NaN if unknown.

    Args:
        source: What it is computed from: distances between local models, or losses of the clusters'
            models.
        silhouette: From -1 to 1: how much nearer a client is to its cluster than to the next one,
            relative to the larger distance (Rousseeuw 1987). NaN for clients alone, and if there is
            one cluster.
        places: ``[m, 2]`` a map of the clients by their losses; None with distances, which are a
            better one.
        explained: The share of the differences between losses that the map keeps.
        outlier_score: From 0 to 1, as in GLOSH (Campello et al. 2015): 1 minus the usual distance
            to the cluster over that of the client. 0 is usual or nearer, 0.5 is twice as far. For
            clients alone and unclustered, to the nearest cluster.
    """

    source: Source
    silhouette: Array
    outlier_score: Array
    places: Array | None = None
    explained: float = 0.0


def from_distances(distances: Array, labels: Labels, clusters: Labels) -> Structure:
    """Return the structure from distances between clients.

    Args:
        distances: ``[m, m]``, NaN if unknown.
        labels: ``[m]`` the clients' clusters.
        clusters: ``[q]`` the labels of the clusters that count.
    """
    positions = positions_of(labels, clusters)
    apart = distances.astype(np.float64).copy()
    np.fill_diagonal(apart, np.nan)
    member = (positions[:, None] == np.arange(len(clusters))).astype(np.float64)
    finite = np.isfinite(apart)
    count = finite.astype(np.float64) @ member
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(finite, apart, 0.0) @ member / count
    return _structure("distances", means, positions)


def from_losses(evidence: Evidence, labels: Labels) -> Structure:
    """Return the structure from the losses of the clusters' models."""
    positions = positions_of(labels, evidence.clusters)
    structure = _structure("losses", np.abs(evidence.losses), positions)
    places = loss_map(evidence.losses)
    if places is None:
        return structure
    return replace(structure, places=places[0], explained=places[1])


def loss_map(losses: Array) -> tuple[Array, float] | None:
    """Return a map of clients: near each other are those to which the same models are good.

    Two models are the two axes. Of more, the losses of each client are taken relative to their
    mean, so that hard data is not far away by itself, and the two principal components remain.
    Large losses are compressed, so that few clients do not squeeze the others.

    Args:
        losses: ``[m, q]``, NaN for clients without a reply.

    Returns:
        Places ``[m, 2]``, NaN without a reply, and the share of the variance that they keep. None
        for a single model, fewer than three clients, or losses that are all alike.

    >>> places, kept = loss_map(np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]))
    >>> bool((places[1] == places[2]).all()), kept
    (True, 1.0)
    """
    answered = np.isfinite(losses).all(1)
    if losses.shape[1] < 2 or answered.sum() < 3:
        return None
    values = losses[answered]
    if losses.shape[1] > 2:
        values = values - values.mean(1, keepdims=True)
    centered = values - np.median(values, axis=0)
    size = np.median(np.abs(centered[centered != 0])) if centered.any() else 0.0
    if not size > 0:
        return None
    compressed = np.arcsinh(centered / size)
    compressed -= compressed.mean(0)
    places = np.full((len(losses), 2), np.nan)
    if losses.shape[1] == 2:
        places[answered] = compressed
        return places, 1.0
    _, singular, directions = np.linalg.svd(compressed, full_matrices=False)
    signs = np.sign(directions[np.arange(2), np.abs(directions[:2]).argmax(1)])
    places[answered] = compressed @ (directions[:2] * signs[:, None]).T
    return places, float((singular[:2] ** 2).sum() / (singular**2).sum())


def _structure(source: Source, apart: Array, positions: Labels) -> Structure:
    """Return the structure from distances of clients to clusters ``[m, q]``, NaN if unknown."""
    finite = np.where(np.isfinite(apart), apart, np.inf)
    rows, members = np.arange(len(positions)), positions >= 0
    column = np.where(members, positions, finite.argmin(1))
    nearest = finite[rows, column]
    others = finite.copy()
    others[rows, column] = np.inf
    following = others.min(1)
    valid = members & np.isfinite(nearest) & np.isfinite(following)
    larger = np.maximum(np.maximum(nearest, following), np.finfo(np.float64).tiny)
    silhouette = np.full(len(positions), np.nan)
    silhouette[valid] = (following[valid] - nearest[valid]) / larger[valid]
    usual = np.full(apart.shape[1], np.nan)
    for cluster in range(apart.shape[1]):
        of_members = nearest[positions == cluster]
        of_members = of_members[np.isfinite(of_members)]
        usual[cluster] = np.median(of_members) if len(of_members) else np.nan
    tiny = np.finfo(np.float64).tiny
    score = np.clip(1 - usual[column] / np.maximum(nearest, tiny), 0.0, 1.0)
    return Structure(source, silhouette, np.where(np.isfinite(nearest), score, np.nan))
