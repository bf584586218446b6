"""Clients that fit no cluster: clusters of their own, by SR-FCA among them alone."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.outliers import winsorize
from srfca.clustering.partition import Labels, Partition
from srfca.errors import InputError, SrfcaWarning
from srfca.federation.local_training import LocalTraining
from srfca.federation.middleware.subset import Subset
from srfca.federation.replies import Clients
from srfca.federation.requests import Train
from srfca.methods._common.held_out import held_out_losses, interchangeable
from srfca.methods._common.run import Run
from srfca.methods.adaptation.evidence import MIN_GAIN, Evidence
from srfca.methods.sr_fca import SRFCA
from srfca.random import Key


@dataclass(frozen=True, eq=False)
class NewClusters:
    """New clusters of some clients.

    Args:
        labels: ``[c]`` the new cluster of each of them, -1 if it is better off where it was.
        models: ``[n, P]`` the new clusters' models.
    """

    labels: Labels
    models: Tensor


def new_clusters(
    run: Run,
    name: str,
    clients: Clients,
    models: Tensor,
    all_labels: Labels,
    evidence: Evidence,
    local: LocalTraining,
) -> NewClusters:
    """Form new clusters of clients that fit none, where that does better on held-out data.

    SR-FCA runs among them alone. It starts from the model that they do best with, so that what
    concepts have in common need not be learned again. A single client trains that model on.

    Args:
        run: The run.
        name: Name of the stage; it decides the draws.
        clients: ``[c]``
        models: ``[k, P]`` of the clusters that there are.
        all_labels: ``[m]`` the clusters of all clients; those of ``clients`` if no cluster is
            formed.
        evidence: The losses of all clients.
        local: How clients train.
    """
    labels = all_labels[clients]
    start = models[_best_start(evidence.losses[clients])]
    seed = Key(run.seed, name.lower()).word() % 2**31
    try:
        new_labels, trained = _train_among(run, name, clients, start, seed, local)
    except InputError as error:  # too few replies, or training has diverged
        warnings.warn(
            f"no new cluster for {len(clients)} client{'s' * (len(clients) != 1)} that fit none: "
            f"{error}",
            SrfcaWarning,
            stacklevel=2,
        )
        return NewClusters(np.full(len(clients), -1), models[:0])
    if not len(trained):
        return NewClusters(np.full(len(clients), -1), trained)
    after = held_out_losses(run, trained).T
    gains = _gains(clients, after, new_labels, labels, evidence)
    accepted = accept(new_labels, gains, evidence.limit)
    accepted = distinct(accepted, clients, after, all_labels, evidence)
    return NewClusters(accepted, trained)


def _train_among(
    run: Run, name: str, clients: Clients, start: Tensor, seed: int, local: LocalTraining
) -> tuple[Labels, Tensor]:
    """Cluster some clients by SR-FCA from a model; a single client trains the model on.

    Returns:
        ``[c]`` the new clusters, -1 for none; and their models ``[n, P]``.

    Raises:
        InputError: If too few clients reply, or training diverges.
    """
    if len(clients) == 1:
        alone = replace(local, local_steps=local.steps)
        with run.stage(name, local.steps):
            replies = run.train(Train(clients, start.unsqueeze(0), alone, Key(seed, "alone")))
        return np.zeros(1, dtype=np.int64) - bool(replies.missing), replies.values
    method = SRFCA(
        local=local, one_shot_steps=-(-local.steps // 2), refine_steps=1,
        trial_steps=local.steps // 3,
    )  # fmt: skip
    answer = method.solve(Run(Subset(run.federation, clients, start), seed, run.monitor))
    return answer.labels, answer.models


def accept(labels: Labels, gains: NDArray[np.float64], limit: float) -> Labels:
    """Return the labels of clients that gain by their new cluster, -1 for the others.

    The gains of a cluster's clients must be large in the mean. The fewer they are the larger:
    held-out losses of few clients are noisy. A client alone needs twice the limit.

    Args:
        labels: ``[c]`` the new clusters, -1 for none.
        gains: ``[c]`` what each client gains on held-out data, NaN if unknown.
        limit: How much of a gain or loss of one client may be noise.

    >>> gains = np.array([0.9, 0.8, -0.4, 0.2, 0.5, -0.2])
    >>> accept(np.array([0, 0, 0, 1, 2, 2]), gains, limit=0.22).tolist()
    [0, 0, -1, -1, -1, -1]
    """
    accepted = np.where(np.nan_to_num(gains, nan=-np.inf) > -limit, labels, -1)
    for label in np.unique(accepted[accepted >= 0]):
        members = accepted == label
        count = int(members.sum())
        needed = max(MIN_GAIN, limit / np.sqrt(count)) if count > 1 else 2 * limit
        if winsorize(gains[members]).mean() <= needed:
            accepted[members] = -1
    return accepted


def distinct(
    new_labels: Labels,
    clients: Clients,
    after: NDArray[np.float64],
    all_labels: Labels,
    evidence: Evidence,
) -> Labels:
    """Return the labels of new clusters that are not the same as the clusters they come from.

    A model that was trained longer may do better without being of another concept. It then suits
    the clients that stay, or MERGE would join the two (``interchangeable``).

    Args:
        new_labels: ``[c]`` the new clusters, -1 for none.
        clients: ``[c]``
        after: ``[m, n]`` held-out losses of all clients with the new models.
        all_labels: ``[m]`` the clusters of all clients without the new ones.
        evidence: The losses with the other models.
    """
    kept = new_labels.copy()
    leaving = clients[new_labels >= 0]
    for label in np.unique(new_labels[new_labels >= 0]):
        members = clients[new_labels == label]
        for origin in np.unique(all_labels[members]):
            staying = np.setdiff1d(np.flatnonzero(all_labels == origin), leaving)
            if not len(staying):
                continue
            pair = np.full(len(all_labels), -1)
            pair[staying], pair[members] = 0, 1
            losses = np.stack([evidence.held_out[:, origin], after[:, label]])
            partition = Partition(pair)
            if partition.labels[staying[0]] == 1:
                losses = losses[::-1]
            harm = evidence.log(after[staying, label]) - evidence.log(
                evidence.held_out[staying, origin]
            )
            if interchangeable(losses, partition)[0, 1] or _mean(harm) <= MIN_GAIN:
                kept[new_labels == label] = -1
    return kept


def _gains(
    clients: Clients,
    after: NDArray[np.float64],
    new_labels: Labels,
    labels: Labels,
    evidence: Evidence,
) -> NDArray[np.float64]:
    """Return what clients gain with new models on held-out data, NaN if unknown: ``[c]``."""
    before = evidence.held_out[clients, labels]
    gains = evidence.log(before) - evidence.log(after[clients, new_labels])
    return np.where(new_labels >= 0, gains, np.nan)


def _best_start(losses: NDArray[np.float64]) -> int:
    """Return the model of least loss ``[c, k]`` over all clients, outliers winsorized."""
    finite = losses[~np.isnan(losses).any(1)]
    return int(winsorize(finite.T).sum(1).argmin()) if len(finite) else 0


def _mean(values: NDArray[np.float64]) -> float:
    """Return the mean of the values that are known, outliers winsorized."""
    finite = values[~np.isnan(values)]
    return float(winsorize(finite).mean()) if len(finite) else float("nan")
