"""How much of a cluster is left when clients are placed again by resampled losses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from srfca.random import Key, client_words, streams, uniform


def jaccard_stability(
    shares: NDArray[np.float64],
    positions: NDArray[np.int64],
    client_ids: Sequence[str],
    replicates: int,
    seed: int,
) -> NDArray[np.float64]:
    """Return the mean Jaccard similarity of each cluster and its nearest one among resamples.

    As in ``clusterboot`` of R's package fpc (Hennig: Cluster-wise assessment of cluster stability.
    2007), with two differences: the clients' samples are drawn again, not the clients, and models
    are not trained again. Resamples of different clients are independent, so clusters are drawn
    from the shares of each client.

    Args:
        shares: ``[m, q]`` how often each cluster is the best one for each client, NaN if unknown.
        positions: ``[m]`` the position of each client's cluster, -1 for those that do not count.
        client_ids: The clients, on which draws depend.
        replicates: How many times to draw.
        seed: Decides the draws.

    Returns:
        ``[q]``, NaN for a cluster without known clients.

    >>> shares, positions = np.eye(2)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])
    >>> jaccard_stability(shares, positions, ["a", "b", "c", "d"], 10, 0).tolist()
    [1.0, 1.0]
    """
    q = shares.shape[1]
    answered = np.flatnonzero((positions >= 0) & np.isfinite(shares).all(1))
    if not len(answered):
        return np.full(q, np.nan)
    words = client_words([client_ids[client] for client in answered.tolist()])
    numbers = uniform(streams(Key(seed, "stability"), words), replicates)
    drawn = _draw(shares[answered], numbers.view(len(answered), replicates).numpy())
    sizes = np.bincount(positions[answered], minlength=q)
    total = np.zeros(q)
    for placed in drawn.T:
        cells = np.bincount(positions[answered] * q + placed, minlength=q * q).reshape(q, q)
        union = sizes[:, None] + np.bincount(placed, minlength=q) - cells
        total += (cells / np.maximum(union, 1)).max(1)
    return np.where(sizes > 0, total / replicates, np.nan)


def _draw(shares: NDArray[np.float64], numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return positions ``[c, B]`` drawn by shares ``[c, q]`` and uniform numbers ``[c, B]``."""
    limits = torch.from_numpy(np.ascontiguousarray(shares.cumsum(1)))
    drawn = torch.searchsorted(limits, torch.from_numpy(numbers), right=True)
    return np.asarray(drawn.clamp(max=shares.shape[1] - 1).numpy())
