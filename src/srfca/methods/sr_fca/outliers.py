"""Outliers: clients that belong to no cluster, by distances and by held-out data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.partition import Labels, Partition
from srfca.clustering.separation import MIN_SEPARATION
from srfca.federation.replies import ClientScores
from srfca.methods.sr_fca.decision import CLEARLY, log_losses
from srfca.methods.sr_fca.thresholds import Distances

MIN_OWN_GAIN = 1.5
"""Factor by which an outlier's loss is less with its own model than with that of a cluster."""
FAR = 4.0
"""Standard deviations beyond its clients' distances at which a cluster ends for an outlier."""
FEW = 5
"""Clients from which on a cluster shows by itself how far its clients are."""


def outliers(
    distances: Distances,
    labels: Labels,
    scores: ClientScores,
    alone_scores: ClientScores,
    trained_by: Partition,
) -> NDArray[np.bool_]:
    """Return which clients belong to no cluster: ``[m]``.

    They are far from their cluster, compared with the clients that it was trained by, and do much
    better with their own model on held-out data; if they are very far, better is enough. Few
    clients say little about themselves, so they are compared with those of all clusters: two that
    are unlike everyone else, and unlike each other, are no cluster.

    Args:
        distances: ``[m, k]`` to the clusters.
        labels: ``[m]`` the cluster of each client.
        scores: ``[m]`` with the model of that cluster, on held-out data.
        alone_scores: ``[m]`` with the client's own model.
        trained_by: The clients that the clusters were trained by.
    """
    beyond = np.full(len(labels), -np.inf)
    every_log = np.log(np.maximum(distances, np.finfo(np.float64).tiny))
    inside = [every_log[members, cluster] for cluster, members in enumerate(trained_by)]
    spread_of_all = pooled_spread([logs for logs in inside if len(logs) >= FEW])
    for cluster, logs in enumerate(every_log.T[: len(inside)]):
        few = len(inside[cluster]) < FEW
        usual = np.concatenate(inside) if few else inside[cluster]
        usual = usual[np.isfinite(usual)]
        if len(usual):
            spread = max(pooled_spread([usual]), spread_of_all)
            limit = np.median(usual) + max(np.log(MIN_SEPARATION), FAR * spread)
            beyond = np.where(labels == cluster, logs - limit, beyond)
    gain = own_gain(alone_scores, scores)
    very_far = (beyond > np.log(MIN_SEPARATION)) & (gain > 0)
    return np.asarray((beyond > 0) & (gain > np.log(MIN_OWN_GAIN)) | very_far)


def pooled_spread(groups: Sequence[NDArray[np.float64]]) -> float:
    """Return the standard deviation within groups, by the median of absolute deviations.

    Args:
        groups: Values of each group; those that are not finite do not count.

    Returns:
        The standard deviation, 0 if there are no values.

    >>> pooled_spread([np.array([1.0, 2.0, 3.0]), np.array([7.0, 8.0, 9.0]), np.array([np.nan])])
    1.4826
    """
    finite = [values[np.isfinite(values)] for values in groups]
    deviations = [np.abs(values - np.median(values)) for values in finite if len(values)]
    return 1.4826 * float(np.median(np.concatenate(deviations))) if deviations else 0.0


def own_gain(alone_scores: ClientScores, scores: ClientScores) -> NDArray[np.float64]:
    """Return how much better clients do with their own model: ``[m]``.

    It is the difference of log(typical loss + loss). If accuracy is known and not higher, it is no
    gain, and infinite if accuracy is clearly higher.
    """
    losses = np.stack([scores.loss.double().numpy(), alone_scores.loss.double().numpy()])
    with np.errstate(invalid="ignore"):  # infinite with both: no gain
        gain = np.subtract(*log_losses(losses))
    if alone_scores.accuracy is not None and scores.accuracy is not None:
        difference = (alone_scores.accuracy - scores.accuracy).double().numpy()
        error = np.sqrt(0.5 / np.maximum(alone_scores.num_samples.double().numpy(), 1))
        gain = np.where(difference > 0, gain, -np.inf)
        gain = np.where(difference > CLEARLY * error, np.inf, gain)
    return np.asarray(gain)
