"""Which clients no longer fit their cluster, by their losses with all clusters' models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.outliers import winsorize
from srfca.clustering.partition import Labels, Partition
from srfca.federation.requests import Losses, Scores, Split
from srfca.methods._common.loss_limits import own_losses
from srfca.methods._common.result import Result
from srfca.methods._common.run import Run

MIN_GAIN = np.log(1.15)
"""Least gain of a client that moves: of the logarithm of typical loss plus loss."""
MIN_SPREAD = 0.4
"""Least relative spread of losses that is assumed."""
USUAL = "usual_losses"
"""Note of a stage: the mean held-out loss of each model's clients."""
SPREAD = "loss_spread"
"""Note of a stage: the standard deviation of clients' held-out losses, relative to the mean."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Usual:
    """The losses that clients had in their clusters when these were trained.

    Args:
        means: ``[k]`` the mean held-out loss of each cluster's clients, NaN if unknown.
        spread: The standard deviation of a client's loss, relative to its cluster's mean.
    """

    means: NDArray[np.float64]
    spread: float = MIN_SPREAD

    def notes(self) -> dict[str, Any]:
        """Return both, ready for JSON."""
        means = [float(mean) if np.isfinite(mean) else None for mean in self.means]
        return {USUAL: means, SPREAD: self.spread}


@dataclass(frozen=True, eq=False)
class Evidence:
    """Losses of clients with all clusters' models, those without clients included.

    Args:
        losses: ``[m, k]`` the mean of the losses on training and on held-out data; NaN for clients
            that did not reply.
        held_out: ``[m, k]`` on held-out data alone; as ``losses`` if nothing is held out.
        usual: What the clients of each cluster had when the clusters were trained.
    """

    losses: Matrix
    held_out: Matrix
    usual: Usual

    @property
    def num_models(self) -> int:
        """The number of models, k."""
        return int(self.losses.shape[1])

    def extended(self, other: Evidence) -> Evidence:
        """Return this evidence with other models after these."""
        means = np.append(self.usual.means, other.usual.means)
        return Evidence(
            np.hstack([self.losses, other.losses]),
            np.hstack([self.held_out, other.held_out]),
            Usual(means, self.usual.spread),
        )

    @property
    def typical(self) -> float:
        """The usual loss of a client; if that is unknown, the median of the least losses."""
        if np.isfinite(self.usual.means).any():
            return float(np.nanmean(self.usual.means))
        least = np.where(np.isnan(self.losses), np.inf, self.losses).min(1)
        return float(np.median(least[np.isfinite(least)])) if np.isfinite(least).any() else 1.0

    def log(self, losses: Matrix) -> Matrix:
        """Return the logarithm of typical loss plus loss: small losses do not differ by factors."""
        tiny = np.finfo(np.float64).tiny
        return np.asarray(np.log(losses + abs(self.typical) + tiny))

    @property
    def limit(self) -> float:
        """The largest excess of a client that fits a cluster: a loss one standard deviation up.

        Losses here are on more data than the held-out losses that the deviation is of.
        """
        return float(np.log1p(max(MIN_SPREAD, self.usual.spread) / 2))

    @property
    def replied(self) -> NDArray[np.bool_]:
        """Which clients replied: ``[m]``."""
        return np.asarray(~np.isnan(self.losses).all(1))

    @property
    def best(self) -> Labels:
        """``[m]`` the model of least loss of each client, 0 for one that did not reply."""
        return np.asarray(np.where(np.isnan(self.losses), np.inf, self.losses).argmin(1))

    @property
    def excess(self) -> Matrix:
        """``[m, k]`` the loss of each client above the usual one of each cluster, by logarithms.

        Clients whose losses, or usual losses, are unknown have none (minus infinity).
        """
        excess = self.log(self.losses) - self.log(self.usual.means[None])
        return np.where(np.isnan(excess), -np.inf, excess)

    def gain(self, labels: Labels, others: Labels) -> NDArray[np.float64]:
        """Return what clients gain with other models, by logarithms of losses: ``[m]``.

        It is negative where held-out data alone clearly speak against the other model. Clients
        that are in no cluster, or did not reply, gain nothing.

        Args:
            labels: ``[m]`` the cluster of each client, -1 for none.
            others: ``[m]`` the other cluster.
        """
        everyone = np.arange(len(labels))
        gains = []
        for losses in (self.losses, self.held_out):
            logs = self.log(np.where(np.isnan(losses), np.inf, losses))
            with np.errstate(invalid="ignore"):
                gains.append(logs[everyone, labels] - logs[everyone, others])
        refuted = gains[1] < -self.limit / 2
        gain = np.where(refuted, np.minimum(gains[0], gains[1]), gains[0])
        return np.where((labels >= 0) & self.replied, np.nan_to_num(gain, nan=0.0), 0.0)


def drifted(evidence: Evidence, labels: Labels) -> tuple[Labels, NDArray[np.bool_]]:
    """Move clients to the cluster that fits, and tell which ones fit none.

    A client moves if another cluster's model is better on all of its data together and not clearly
    worse on its held-out data. It fits none if its loss is far above what is usual in the cluster
    that is best for it, by more than it gains there. Nothing is concluded about a client that did
    not reply.

    Args:
        evidence: The losses.
        labels: ``[m]`` the clusters before, -1 for none.

    Returns:
        ``[m]`` the cluster of each client, and ``[m]`` whether it fits none.

    >>> losses = np.array([[0.1, 2.0], [0.12, 1.9], [2.1, 0.1], [1.8, 2.2], [1.0, 0.11]])
    >>> evidence = Evidence(losses, losses, Usual(np.array([0.1, 0.1])))
    >>> moved, misfits = drifted(evidence, np.zeros(5, int))
    >>> moved.tolist(), misfits.tolist()
    ([0, 0, 1, 0, 1], [False, False, False, True, False])
    """
    everyone, best = np.arange(len(labels)), evidence.best
    excess, gain = evidence.excess, evidence.gain(labels, best)
    moves = gain > max(MIN_GAIN, evidence.limit / 2)
    joins = (labels < 0) & evidence.replied & (excess[everyone, best] <= evidence.limit)
    new_labels = np.where(moves | joins, best, labels)
    beyond = excess[everyone, new_labels]
    misfits = (beyond > evidence.limit) & (beyond > np.where(moves, gain, 0.0))
    misfits &= (new_labels >= 0) & evidence.replied
    return new_labels, np.asarray(misfits)


def collect(run: Run, models: Tensor, usual: Usual, labels: Labels) -> Evidence:
    """Ask all clients for their losses with all models.

    The model of a cluster with a single client goes to this client alone. The losses of the others
    with it are infinite.

    Args:
        run: The run.
        models: ``[k, P]``
        usual: The losses that clients had.
        labels: ``[m]`` their clusters, -1 for none.
    """
    sizes = np.bincount(labels[labels >= 0], minlength=len(models))
    shared = np.flatnonzero(sizes != 1)
    alone = np.flatnonzero((labels >= 0) & (sizes[labels] == 1))

    def losses(split: Split) -> Matrix:
        values = np.full((run.num_clients, len(models)), np.inf)
        answered = np.zeros(run.num_clients, dtype=bool)
        if len(shared):
            replies = run.ask(Losses(run.everyone, _rows(models, shared), split))
            filled = replies.fill(replies.values.new_full((run.num_clients, len(shared)), np.inf))
            values[:, shared] = filled.cpu().double().numpy()
            answered[replies.clients] = True
        if len(alone):
            of_alone = run.ask(Scores(alone, _rows(models, labels[alone]), split))
            loss = of_alone.values.loss.cpu().double().numpy()
            values[of_alone.clients, labels[of_alone.clients]] = loss
            answered[of_alone.clients] = True
        return np.where(answered[:, None], np.where(np.isnan(values), np.inf, values), np.nan)

    train = losses("train")
    if "validation" not in run.federation.splits:
        return Evidence(train, train, usual)
    held_out = losses("validation")
    return Evidence((train + held_out) / 2, held_out, usual)


def _rows(models: Tensor, chosen: NDArray[np.int64]) -> Tensor:
    return models[torch.as_tensor(chosen, device=models.device)]


def recorded_losses(result: Result) -> Usual:
    """Return the losses that clients had in their clusters.

    They are in the notes of the last adaptation, and before the first one in the limits of losses.
    """
    count, num_clusters = len(result.models), result.partition.num_clusters
    for stage in reversed(result.history):
        if USUAL in stage.notes and len(stage.notes[USUAL]) == count:
            means = [np.nan if mean is None else mean for mean in stage.notes[USUAL]]
            return Usual(np.array(means, dtype=np.float64), float(stage.notes[SPREAD]))
    usual, limits = np.full(count, np.nan), result.loss_limits
    if limits is None:
        return Usual(usual)
    usual[:num_clusters] = limits.mean_losses.double().numpy()
    return Usual(usual, max(MIN_SPREAD, limits.spread))


def measured_losses(run: Run, models: Tensor, partition: Partition, before: Usual) -> Usual:
    """Return the losses that clients have in their clusters now, or had where that is unknown.

    Args:
        run: The run.
        models: ``[k, P]``
        partition: The clusters.
        before: What they were, of k or more models; those beyond k are kept.
    """
    if "validation" not in run.federation.splits:
        return before
    losses = own_losses(run.uncounted, models, partition).numpy()
    means, deviations = before.means.copy(), []
    for cluster, members in enumerate(partition):
        values = losses[members]
        values = winsorize(values[np.isfinite(values)])
        if len(values):
            means[cluster] = values.mean()
        if len(values) > 1 and means[cluster] > 0:
            deviations.append(
                (values / means[cluster] - 1) * np.sqrt(len(values) / (len(values) - 1))
            )
    if not deviations:
        return Usual(means, before.spread)
    return Usual(means, float(np.sqrt(np.square(np.concatenate(deviations)).mean())))
