"""Newcomers: the cluster of each by the losses of the clusters' models on its data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.federation.moments import ClientLosses
from srfca.federation.replies import Clients
from srfca.federation.requests import LossMoments, Split
from srfca.methods._common.loss_limits import LossLimits, loss_scores

Array = NDArray[np.float64]


def placement_request(
    clients: Clients, models: Tensor, splits: Sequence[Split], limits: LossLimits | None
) -> LossMoments:
    """Return the request for what ``place_by_losses`` needs: moments on all data but test data.

    Args:
        clients: ``[c]``
        models: ``[k, P]`` the clusters' models.
        splits: What the clients hold.
        limits: The clusters' limits, if there are any.
    """
    held: tuple[Split, ...] = ("train", "validation")
    scales = torch.ones(len(models), dtype=torch.float64) if limits is None else limits.scales
    return LossMoments(clients, models, scales, tuple(split for split in held if split in splits))


def place_by_losses(
    reported: ClientLosses, limits: LossLimits | None
) -> tuple[NDArray[np.int64], Array]:
    """Return the cluster of each client's least loss, and how unlike the cluster's its losses are.

    Args:
        reported: What c clients report of the losses of k models.
        limits: The clusters' limits, or None for no limits.

    Returns:
        Labels ``[c]``, -1 if a client's score in this cluster is beyond the limit; and scores
        ``[c, k]``, NaN without limits.
    """
    losses = reported.mean.cpu().double().numpy()
    labels = losses.argmin(1)
    if limits is None:
        return labels, np.full(losses.shape, np.nan)
    scores = loss_scores(limits, reported)
    within = np.take_along_axis(scores, labels[:, None], 1)[:, 0] <= limits.limit
    return np.where(within, labels, -1), scores


def paired_confidence(reported: ClientLosses) -> Array:
    """Return how sure it is that each client's best model is better than the next one: ``[c]``.

    It is 1 minus the p-value of a paired t-test on the client's own samples, the smallest of those
    against all other models. It is 1 for a single model, and 1/2 if nothing can be said.

    >>> def reported(mean, variance, n):
    ...     zeros = torch.zeros(1, 2, 1, 1)
    ...     moments = GroupMoments(torch.full((1, 2, 1), float(n)), zeros, zeros)
    ...     return ClientLosses(torch.tensor([mean]), torch.tensor([variance]), moments)
    >>> from srfca.federation.moments import GroupMoments
    >>> paired_confidence(reported([1.0, 1.2], [0.0, 1.0], 100)).round(3).tolist()
    [0.976]
    >>> paired_confidence(reported([1.0, 1.2], [0.0, 1.0], 400)).round(5).tolist()
    [0.99996]
    """
    from scipy.special import stdtr

    losses = reported.mean.cpu().double().numpy()
    variances = reported.paired_variance.cpu().double().numpy()
    samples = reported.compressed.counts.sum(2).cpu().double().numpy()
    count, models = losses.shape
    best = losses.argmin(1)
    finite = np.isfinite(losses) & np.isfinite(variances)
    with np.errstate(invalid="ignore", divide="ignore"):
        gains = losses - losses.min(1, keepdims=True)
        ratios = np.where(finite, gains / np.sqrt(variances / samples), np.inf)
    ratios = np.where(np.isnan(ratios) | (samples < 2), 0.0, ratios)
    ratios[np.arange(count), best] = np.inf
    tested = np.where(np.isinf(ratios), 1.0, stdtr(np.maximum(samples - 1, 1), ratios))
    tested[~np.isfinite(losses.min(1))] = 0.5 if models > 1 else 1.0
    return np.asarray(tested.min(1))
