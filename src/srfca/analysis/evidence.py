"""What clients report of the losses of all clusters' models on their data.

Held-out samples are few, so training samples count as well, although the model of a client's own
cluster has been trained on them. docs/confidence.md shows what that changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.federation.bootstrap import ComparedLosses
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients
from srfca.federation.requests import BootstrapLosses, Split

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_SPLITS: tuple[Split, ...] = ("train", "validation")
_BLOCK = 2**24
"""Losses, or covariances, of a block of clients that are held at once."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Losses of the models of q clusters on the data of m clients, NaN for those without a reply.

    Args:
        clusters: ``[q]`` the labels of the clusters.
        losses: ``[m, q]`` mean loss on training and held-out data.
        shares: ``[m, q]`` fraction of the resamples in which the model has the least loss.
        variances: ``[m, q]`` variance over the client's samples of the difference to the loss of
            its best model; 0 for that one.
        samples: ``[m]`` number of samples, 0 without a reply.
    """

    clusters: Labels
    losses: Array
    shares: Array
    variances: Array
    samples: Array

    @property
    def best(self) -> Labels:
        """``[m]`` the position of the model of least loss, -1 without a reply."""
        answered = np.isfinite(self.losses).any(1)
        safe = np.where(np.isfinite(self.losses), self.losses, np.inf)
        return np.where(answered, safe.argmin(1), -1)


def shared_clusters(labels: Labels) -> Labels:
    """Return the labels of the clusters of at least two clients.

    >>> shared_clusters(np.array([0, 0, -1, 1, 2, 2])).tolist()
    [0, 2]
    """
    return np.flatnonzero(np.bincount(labels[labels >= 0]) > 1)


def positions_of(labels: Labels, clusters: Labels) -> Labels:
    """Return the position of each label in ``clusters``, -1 if it is not there: ``[m]``.

    >>> positions_of(np.array([0, 3, -1, 1]), np.array([1, 3])).tolist()
    [-1, 1, -1, 0]
    """
    positions = np.full(max(labels.max(initial=-1), clusters.max(initial=-1)) + 2, -1)
    positions[clusters] = np.arange(len(clusters))
    return np.asarray(positions[labels])


def collect_evidence(
    federation: Federation,
    models: Tensor,
    labels: Labels,
    replicates: int,
    seed: int,
) -> Evidence:
    """Ask all clients to compare the models of the clusters of at least two clients.

    Args:
        federation: The clients; they hold validation data.
        models: ``[k, P]`` the models of all clusters.
        labels: ``[m]`` the clients' clusters.
        replicates: How many resamples each client draws.
        seed: Decides the draws.
    """
    clusters = shared_clusters(labels)
    rows = models[torch.as_tensor(clusters, device=models.device)]
    m, q = len(labels), len(clusters)
    losses, shares, variances = np.full((3, m, q), np.nan)
    samples = np.zeros(m)
    sizes = federation.sizes.cpu().numpy()
    for block in blocks(np.arange(m), sizes * q + q * (q + 2)):
        replies = federation.ask(BootstrapLosses(block, rows, _SPLITS, replicates, seed))
        compared = ComparedLosses.unpack(replies.values.cpu().double())
        clients = replies.clients
        losses[clients] = compared.mean.numpy()
        shares[clients] = compared.share.numpy()
        variances[clients] = paired_variances(compared)
        samples[clients] = compared.num_samples.numpy()
    return Evidence(clusters, losses, shares, variances, samples)


def blocks(clients: Clients, numbers: NDArray[np.int64]) -> Iterator[Clients]:
    """Yield clients in blocks that fit into memory.

    Args:
        clients: ``[c]``
        numbers: ``[c]`` how many numbers each of them takes.
    """
    ends = np.cumsum(numbers) // _BLOCK
    yield from np.split(clients, np.flatnonzero(np.diff(ends)) + 1)


def paired_variances(compared: ComparedLosses) -> Array:
    """Return the variance of the difference between each model's loss and the best one's."""
    covariance, mean = compared.covariance.numpy(), compared.mean.numpy()
    rows, best = np.arange(len(mean)), mean.argmin(1)
    diagonal = np.diagonal(covariance, axis1=1, axis2=2)
    paired = diagonal + diagonal[rows, best][:, None] - 2 * covariance[rows, best]
    return np.asarray(np.maximum(paired, 0.0))
