"""How sure each client's cluster is: the evidence of its losses, calibrated.

The difference between the loss of a cluster's model and that of the client's best one, over its
standard error, is a moderated t-statistic: the variance over a client's few samples is pooled with
that of the clients that are like it (Smyth 2004). A temperature corrects what the statistic leaves
out. docs/confidence.md shows how it was chosen, and how well it is calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srfca.analysis.evidence import Evidence, positions_of
from srfca.analysis.stability import jaccard_stability
from srfca.methods._common.assignment import DOUBTFUL

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

TEMPERATURE = 1.4
"""What statistics are divided by (``benchmarks/calibration.py`` fits it)."""
_MOST = 1e6
"""The largest statistic."""
_PRIOR_FREEDOM = 3.0
"""Weight of the pooled variance in that of a client, in degrees of freedom."""


@dataclass(frozen=True, eq=False)
class Confidence:
    """How sure clusters are, by client ``[m]`` and by cluster ``[q]``.

    NaN, or -1, where a number does not apply: for clients that are alone, unclustered, or did not
    reply.

    Args:
        clusters: ``[q]`` the labels of the clusters, those of at least two clients.
        confidence: ``[m]`` probability that the client belongs to its cluster, rather than to
            another one of ``clusters``.
        margin: ``[m]`` from -1 to 1: what the loss with the next cluster's model is more than that
            with its own, relative to the larger one. Negative if the other model is better.
        standard_errors: ``[m]`` the same difference in standard errors.
        next_cluster: ``[m]`` the label of the best cluster but its own; also for clients alone.
        stays: ``[m]`` fraction of the resamples in which its cluster's model is the best one.
        memberships: ``[m, q]`` probabilities of all clusters.
        stability: ``[q]`` mean Jaccard similarity of the cluster and what is left of it among
            resamples; above 0.75 is stable (Hennig 2007).
    """

    clusters: Labels
    confidence: Array
    margin: Array
    standard_errors: Array
    next_cluster: Labels
    stays: Array
    memberships: Array
    stability: Array

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """``[m]`` which clients are placed with little confidence."""
        return np.asarray(self.confidence < DOUBTFUL)


def measure_confidence(
    evidence: Evidence,
    labels: Labels,
    client_ids: tuple[str, ...],
    replicates: int,
    seed: int,
) -> Confidence:
    """Return how sure clusters are.

    Args:
        evidence: What clients report of at least two clusters' models.
        labels: ``[m]`` the clients' clusters.
        client_ids: Their names, on which draws depend.
        replicates: How many times clusters are drawn for their stability.
        seed: Decides these draws.
    """
    positions = positions_of(labels, evidence.clusters)
    statistics = t_statistics(evidence)
    every_membership = memberships(statistics)
    members = np.flatnonzero((positions >= 0) & (evidence.best >= 0))
    column = positions[members]
    confidence, margin, errors, stays = np.full((4, len(labels)), np.nan)
    confidence[members] = every_membership[members, column]
    stays[members] = evidence.shares[members, column]
    following = _next_best(evidence.losses, positions)
    current = evidence.losses[members, column]
    other = evidence.losses[members, following[members]]
    larger = np.maximum(np.maximum(np.abs(current), np.abs(other)), np.finfo(np.float64).tiny)
    margin[members] = (other - current) / larger
    errors[members] = statistics[members, following[members]] - statistics[members, column]
    labels_of_next = np.where(following >= 0, evidence.clusters[following], -1)
    stability = jaccard_stability(evidence.shares, positions, client_ids, replicates, seed)
    return Confidence(
        evidence.clusters, confidence, margin, errors, labels_of_next, stays, every_membership,
        stability,
    )  # fmt: skip


def t_statistics(evidence: Evidence) -> Array:
    """Return how much worse each model is than the client's best one, in standard errors.

    Returns:
        ``[m, q]``, 0 for the best one, NaN for clients without a reply.
    """
    variances = _moderated(evidence)
    excess = evidence.losses - np.where(
        evidence.best >= 0, evidence.losses[np.arange(len(variances)), evidence.best], np.nan
    ).reshape(-1, 1)
    errors = np.sqrt(variances / np.maximum(evidence.samples, 1)[:, None])
    least = np.maximum(excess / _MOST, np.finfo(np.float64).tiny)
    return np.asarray(excess / np.maximum(errors, least))


def memberships(statistics: Array, temperature: float = TEMPERATURE) -> Array:
    """Return the probability that each cluster is the client's: ``[m, q]``, rows that sum to 1.

    The odds of a cluster against the best one are those of a one-sided normal test. The probability
    of the best one is that against its nearest rival, the normal distribution function of the
    statistic: clusters that are further away do not make it less sure. What is left goes to the
    others, by their odds.

    Args:
        statistics: ``[m, q]`` from ``t_statistics``.
        temperature: What they are divided by.

    >>> memberships(np.array([[0.0, 0.0], [0.0, 2.0]]), temperature=1.0).round(3).tolist()
    [[0.5, 0.5], [0.977, 0.023]]
    """
    from scipy.special import log_ndtr

    scaled = statistics / temperature
    rows, best = np.arange(len(scaled)), np.nan_to_num(scaled).argmin(1)
    log_odds = log_ndtr(-scaled) - log_ndtr(scaled)
    log_odds[rows, best] = -np.inf
    rival = log_odds.max(1, keepdims=True)
    shares = np.exp(log_odds - rival)
    rest = np.exp(rival) / (1 + np.exp(rival))
    probabilities = rest * shares / shares.sum(1, keepdims=True)
    probabilities[rows, best] = 1 - rest[:, 0]
    return np.asarray(probabilities)


def _next_best(losses: Array, positions: Labels) -> Labels:
    """Return the position of the best model but the client's own: ``[m]``, -1 without a reply."""
    others = np.where(np.isfinite(losses), losses, np.inf)
    members = np.flatnonzero(positions >= 0)
    others[members, positions[members]] = np.inf
    answered = np.isfinite(others).any(1)
    return np.where(answered, others.argmin(1), -1)


def _moderated(evidence: Evidence) -> Array:
    """Return variances ``[m, q]`` that are pooled over clients with the same best model."""
    freedom = np.maximum(evidence.samples - 1, 0.0)[:, None]
    squares = np.nan_to_num(evidence.variances) * freedom
    moderated = np.zeros_like(squares)
    for best in range(squares.shape[1]):
        same = evidence.best == best
        pooled = squares[same].sum(0) / max(float(freedom[same].sum()), 1.0)
        prior = _PRIOR_FREEDOM * pooled
        moderated[same] = (squares[same] + prior) / (freedom[same] + _PRIOR_FREEDOM)
    return moderated
