"""Alarms: clients that have left the reach of their cluster, noticed without any training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Labels
from srfca.errors import InputError, require
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients
from srfca.methods._common.assignment import Assignment, assign_by_losses
from srfca.methods._common.loss_limits import LossLimits
from srfca.methods._common.result import Result
from srfca.methods.adaptation.checks import check_clusters
from srfca.methods.adaptation.identity import cluster_ids


@dataclass(frozen=True)
class DriftAlarm:
    """A client whose data no longer fit its cluster.

    The example of ``drift_alarms`` makes some.

    Args:
        client: Its id.
        cluster: The id of its cluster (``Result.cluster_ids``).
        score: How unlike the cluster's clients it is, in standard deviations.
        loss: The loss of the cluster's model on its data.
        fits: The id of the cluster that fits, None if no cluster does.
    """

    client: str
    cluster: int
    score: float
    loss: float
    fits: int | None

    def __str__(self) -> str:
        """Return a sentence to read."""
        other = "no cluster fits" if self.fits is None else f"cluster {self.fits} fits"
        return (
            f"client {self.client!r} has left cluster {self.cluster}: with a loss of "
            f"{self.loss:.3g} it is {self.score:.1f} standard deviations off, {other}"
        )


def drift_alarms(result: Result, federation: Federation) -> tuple[DriftAlarm, ...]:
    """Return the clients that have left the reach of their cluster.

    Clients evaluate the clusters' models, and nothing is trained. The reach of a cluster is that
    for newcomers (docs/newcomers.md): with its current losses, a client would not be accepted.

    Args:
        result: Clusters and their models.
        federation: The same clients, whose data may have changed.

    Returns:
        An alarm for each of these clients.

    Raises:
        InputError: If the result has no clusters or other clients, no data was held out when the
            clusters were trained, or clients are private.

    >>> from srfca import SRFCA, LocalTraining, Simulation, data, models
    >>> phases = data.drifting_image_phases(groups=2, new_groups=0, drifting=0.2, shift="rotation")
    >>> before, after = (Simulation(phase, models.mlp(64, 32, 10)) for phase in phases)
    >>> local = LocalTraining(steps=60, batch_size=10, lr=0.5)
    >>> result = SRFCA(local=local, refine_steps=1).fit(before, seed=0)
    >>> len(drift_alarms(result, before)), len(drift_alarms(result, after))
    (0, 4)
    """
    check_clusters(result, federation)
    require(
        result.privacy is None,
        "private clients do not tell how their losses are distributed, so that there are no "
        "alarms: adapt the result from time to time",
    )
    if result.loss_limits is None:
        raise InputError(
            "nothing is known of how far the clusters reach, because no data was held out: hold "
            "some out (validation=0.2)"
        )
    models = result.models[: result.partition.num_clusters]
    now, beyond = beyond_reach(federation, models, result.labels, result.loss_limits)
    ids = cluster_ids(result)
    alarms = []
    for client in np.flatnonzero(beyond).tolist():
        label, fits = int(result.labels[client]), int(now.labels[client])
        alarms.append(
            DriftAlarm(
                client=result.client_ids[client],
                cluster=ids[label],
                score=float(now.scores[client, label]),
                loss=float(now.losses[client, label]),
                fits=ids[fits] if fits >= 0 else None,
            )
        )
    return tuple(alarms)


def beyond_reach(
    federation: Federation, models: Tensor, labels: Labels, limits: LossLimits
) -> tuple[Assignment, NDArray[np.bool_]]:
    """Return where clients would be placed now, and which are beyond their cluster's reach.

    The model of a cluster with a single client goes to this client alone. The losses of the others
    with it are infinite.

    Args:
        federation: The clients.
        models: ``[k, P]`` the clusters' models.
        labels: ``[m]`` their clusters, -1 for none.
        limits: How far the clusters reach.

    Returns:
        The assignment, and ``[m]`` whether each client is beyond; not if it did not reply.
    """
    everyone = np.arange(len(labels))
    sizes = np.bincount(labels[labels >= 0], minlength=len(models))
    if (sizes != 1).all():
        now = assign_by_losses(federation, everyone, models, limits)
    else:
        now = _assign_privately(federation, models, labels, limits, sizes)
    beyond = now.scores[everyone, labels] > limits.limit
    return now, np.asarray(beyond & (labels >= 0))


def _assign_privately(
    federation: Federation,
    models: Tensor,
    labels: Labels,
    limits: LossLimits,
    sizes: NDArray[np.int64],
) -> Assignment:
    """Assign all clients; models of clusters of a single client go to this one alone."""
    names, count = tuple(federation.client_ids), len(models)
    losses, scores = np.full((2, len(labels), count), np.inf)
    confidence = np.full(len(labels), np.nan)

    def fill(clients: Clients, clusters: NDArray[np.int64]) -> None:
        rows = models[torch.as_tensor(clusters, device=models.device)]
        part = assign_by_losses(federation, clients, rows, limits.select(clusters.tolist()))
        cells = np.ix_(clients, clusters)
        losses[cells], scores[cells] = part.losses.numpy(), part.scores
        confidence[clients] = part.confidence

    if len(shared := np.flatnonzero(sizes > 1)):
        fill(np.arange(len(labels)), shared)
    for client in np.flatnonzero((labels >= 0) & (sizes[labels] == 1)):
        fill(np.array([client]), labels[[client]])
    best = np.where(np.isnan(losses), np.inf, losses).argmin(1)
    fits = np.isfinite(confidence) & (scores[np.arange(len(labels)), best] <= limits.limit)
    nearest = np.where(fits, best, -1)
    return Assignment(nearest, torch.from_numpy(losses), scores, confidence, names)
