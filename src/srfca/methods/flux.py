"""FLUX: density clustering of descriptors of the clients' data, then FedAvg in the clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.clustering.partition import Labels, Partition
from srfca.errors import is_number, require
from srfca.federation.moments import ClientLosses, GroupMoments, unpack_outputs
from srfca.federation.requests import LossMoments, OutputMoments
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.rounds import require_replies
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.fedavg import fedavg
from srfca.methods.registry import register
from srfca.parameters import constrained

AUTO_EPS = 1.5
"""The automatic radius, as a multiple of the median distance to the ``min_samples``-th neighbor."""

Array = NDArray[np.float64]


@register
@dataclass(frozen=True, kw_only=True)
class FLUX(Method):
    """Cluster clients by the density of descriptors of their data, then FedAvg in each cluster.

    Args:
        encoders: How many random models the clients describe their data with.
        components: Principal components of the descriptors that are clustered.
        min_samples: Clients in the neighborhood of a core client, itself included.
        eps: The radius of a neighborhood, or ``auto``.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of each cluster's clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> digits = data.rotated_digits(num_clients=8, rotations=2)
        >>> federation, local = Simulation(digits, models.mlp(64, 8, 10)), LocalTraining(steps=30)
        >>> FLUX(min_samples=2, local=local).fit(federation).labels_.shape
        (8,)
    """

    key: ClassVar[str] = "flux"
    name: ClassVar[str] = "FLUX"
    paper: ClassVar[str] = (
        "Fenoglio, Li, Barbiero, Lane, Langheinrich, Gjoreski: FLUX: Efficient Descriptor-Driven "
        "Clustered Federated Learning under Arbitrary Distribution Shifts. NeurIPS 2025."
    )
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "components": Range(2, 10, integer=True),
        "min_samples": Range(2, 5, integer=True),
    }

    encoders: int = constrained(16, at_least=1)
    components: int = constrained(5, at_least=1)
    min_samples: int = constrained(3, at_least=1)
    eps: float | Literal["auto"] = "auto"
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.eps == "auto" or (is_number(self.eps) and float(self.eps) > 0),
            f"eps must be 'auto' or a number above 0, not {self.eps!r}",
        )

    def solve(self, run: Run) -> Answer:
        """Describe, cluster, train."""
        m = run.num_clients
        with run.stage("DESCRIPTORS"):
            words = (run.key("flux encoder", number).word() for number in range(self.encoders))
            encoders = torch.stack([run.federation.initial_model(abs(word)) for word in words])
            outputs = run.ask(OutputMoments(run.everyone, encoders))
            require_replies(outputs.clients)
            scales = torch.ones(self.encoders, dtype=torch.float64)
            losses = run.ask(LossMoments(outputs.clients, encoders, scales))
            clients = losses.clients
            require_replies(clients)
            described = unpack_outputs(outputs.values[np.isin(outputs.clients, clients)].cpu())
            by_class = ClientLosses.unpack(losses.values.cpu()).compressed
            points = principal_components(descriptors(described, by_class), self.components)
            eps = choose_eps(points, self.min_samples) if self.eps == "auto" else float(self.eps)
            labels, num_noise = density_clusters(points, eps, self.min_samples)
            partition = Partition(labels).embed(clients, m)
        distances = np.full((m, m), np.nan)
        distances[np.ix_(clients, clients)] = pairwise(points)
        notes = {"eps": eps, "noise": num_noise}
        w0 = run.initial_model().expand(m, -1)
        run.record("DESCRIPTORS", partition, w0, distances, notes)
        return fedavg(run, partition, self.local, Mean(self.weighted), self.participation)


def descriptors(outputs: GroupMoments, losses: GroupMoments) -> Array:
    """Return standardized descriptors of the clients' data: ``[c, n]``.

    They are the mean output of each encoder, over the client's inputs, and its mean compressed loss
    on the samples of each class. A class that a client lacks has the mean of the other clients.

    Args:
        outputs: Outputs of c clients and k encoders, by any groups.
        losses: The same, by class.
    """
    counts = outputs.counts.unsqueeze(3)
    means = (counts * outputs.means).sum(2) / counts.sum(2).clamp(min=1)
    present, by_class = losses.counts > 0, losses.means[..., 0]
    values = torch.cat([means.flatten(1), by_class.flatten(1)], dim=1)
    always = torch.ones_like(means, dtype=torch.bool)
    return standardize(values, torch.cat([always.flatten(1), present.flatten(1)], dim=1))


def standardize(values: Tensor, is_known: Tensor) -> Array:
    """Return columns of mean 0 and variance 1 over the values that are known; others are 0.

    >>> values = torch.tensor([[1.0, 5.0], [3.0, 7.0]])
    >>> standardize(values, torch.tensor([[True, True], [True, False]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    values, mask = values.double(), is_known.double()
    count = mask.sum(0).clamp(min=1)
    deviations = (values - (values * mask).sum(0) / count) * mask
    scale = (deviations.square().sum(0) / count).sqrt()
    tiny = 1e-9 * scale.max().clamp(min=torch.finfo(torch.float64).tiny)
    return np.asarray((deviations / scale.clamp(min=tiny)).numpy())


def principal_components(values: Array, count: int) -> Array:
    """Return the leading principal components of rows ``[c, n]``: ``[c, min(count, c, n)]``."""
    left, scales, _ = np.linalg.svd(values - values.mean(0), full_matrices=False)
    return np.asarray((left * scales)[:, :count])


def pairwise(points: Array) -> Array:
    """Return l2 distances between points ``[c, p]``: ``[c, c]``."""
    return np.asarray(np.linalg.norm(points[:, None] - points, axis=2))


def choose_eps(points: Array, min_samples: int) -> float:
    """Return a multiple of the median distance to the ``min_samples``-th neighbor.

    >>> choose_eps(np.array([[0.0], [1.0], [2.0], [3.0]]), 1)
    1.5
    """
    nearest = np.sort(pairwise(points), axis=1)[:, min(min_samples, len(points) - 1)]
    return max(AUTO_EPS * float(np.median(nearest)), float(np.finfo(np.float64).tiny))


def density_clusters(points: Array, eps: float, min_samples: int) -> tuple[Labels, int]:
    """Return the clusters of DBSCAN, and how many clients are in no dense region.

    These join the cluster of the nearest client that is; if there is no dense region, all clients
    are one cluster.
    """
    from sklearn.cluster import DBSCAN

    labels = np.asarray(DBSCAN(eps=eps, min_samples=min_samples).fit(points).labels_, np.int64)
    noise = np.flatnonzero(labels < 0)
    dense = np.flatnonzero(labels >= 0)
    if not len(dense):
        return np.zeros(len(points), dtype=np.int64), len(noise)
    labels[noise] = labels[dense[pairwise(points)[np.ix_(noise, dense)].argmin(1)]]
    return labels, len(noise)
