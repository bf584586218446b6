"""The last decision of the automatic threshold, by held-out data (docs/decisions.md).

Unclustered clients are placed. The clusters are compared with one model for all clients, the better
of the two is fine-tuned, and that is compared with training alone. Clients that are served much
better by their own model keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Labels, Partition
from srfca.clustering.separation import MIN_SEPARATION
from srfca.distances import ModelSet
from srfca.federation.replies import ClientScores
from srfca.methods._common.held_out import held_out_losses, held_out_scores
from srfca.methods._common.run import Run
from srfca.methods.sr_fca.algorithm import trimmed_mean_gd
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.decision import (
    CLEARLY,
    Decision,
    Evidence,
    compare,
    within_noise,
)
from srfca.methods.sr_fca.optional_stages import final_training, train_alone
from srfca.methods.sr_fca.outliers import outliers
from srfca.methods.sr_fca.thresholds import Distances, OneShot, distances_to_clusters, nearest
from srfca.methods.sr_fca.trials import fine_tuned, lead_midway, together

if TYPE_CHECKING:
    from srfca.methods.sr_fca.options import SRFCA

ONE_MODEL = "one model for all"
NO_GAP = "clients vary without a gap between groups: other data may cut them elsewhere"
GIVEN_UP = "given up after a third of the training"


@dataclass(frozen=True, eq=False)
class Proposal:
    """Clusters that may become the answer, and their outliers.

    Args:
        clusters: All clients are placed.
        alone: ``[m]`` outliers, which keep their local models.
        scores: ``[m]`` on held-out data; those of the local models for outliers.
    """

    clusters: Clusters
    alone: NDArray[np.bool_]
    scores: ClientScores

    @property
    def evidence(self) -> Evidence:
        """What is known of it before fine-tuning."""
        return Evidence(describe(self.clusters.partition, self.alone), self.scores)


class FinalDecision:
    """Decide, step by step, and keep what was considered.

    Args:
        run: The run.
        options: The parameters.
        local_models: Of all clients that have replied.
        one_shot: What ONE_SHOT found.
    """

    def __init__(self, run: Run, options: SRFCA, local_models: ModelSet, one_shot: OneShot) -> None:
        self._run, self._options = run, options
        self._local_models, self._one_shot = local_models, one_shot
        self._rows, self._position = local_rows(run, local_models)
        self._alone_scores = held_out_scores(run, self._rows, self._position)
        self._considered: list[Evidence] = []
        self._doubt: str | None = None

    def decide(self, clusters: Clusters) -> Clusters:
        """Return the answer, and record the decision."""
        proposal = self._propose(self._place(self._trained(clusters)))
        proposal = self._compare_with_one_model(proposal)
        proposal = self._train_on(proposal)
        proposal, evidence = self._fine_tune(proposal)
        return self._compare_with_training_alone(proposal, evidence)

    def _trained(self, clusters: Clusters) -> Clusters:
        """Train clusters whose models the last MERGE has averaged."""
        if not clusters.averaged:
            return clusters
        start = self._options.start(clusters)
        return trimmed_mean_gd(self._run, self._options, clusters.partition, "last", start)

    def _place(self, clusters: Clusters) -> Clusters:
        """Place unclustered clients."""
        if not len(clusters.partition.unclustered):
            return clusters
        return place(self._run, clusters, self._distances(clusters))

    def _propose(self, clusters: Clusters) -> Proposal:
        """Score clusters, and find their outliers."""
        scores = self._cluster_scores(clusters)
        alone = self._outliers(clusters, scores)
        return Proposal(clusters, alone, self._with_local(alone, scores))

    def _compare_with_one_model(self, proposal: Proposal) -> Proposal:
        """Train one model for all clients beside several clusters, and return the better."""
        clusters, one_shot, options = proposal.clusters, self._one_shot, self._options
        self._considered, self._doubt = _given_up(options, clusters, one_shot)
        if clusters.partition.num_clusters < 2 or options.trial_budget < options.local.steps:
            return proposal

        def score(answer: Clusters) -> ClientScores:
            return self._with_local(proposal.alone, self._cluster_scores(answer))

        undivided = one_shot.rival if one_shot.parts else None
        rival = together(self._run, options, clusters, CLEARLY, undivided, one_shot.useless)
        winner, other, doubt = better(options, clusters, rival, score, one_shot)
        self._considered.append(other)
        if winner is rival:
            self._doubt = doubt
            return self._propose(rival)
        self._doubt = doubt or self._doubt
        return proposal

    def _train_on(self, proposal: Proposal) -> Proposal:
        """Train inside the clusters for ``final_steps`` more."""
        clusters = final_training(
            self._run, self._options, proposal.clusters, self._one_shot.useless
        )
        if clusters is proposal.clusters:
            return proposal
        scores = self._with_local(proposal.alone, self._cluster_scores(clusters))
        return replace(proposal, clusters=clusters, scores=scores)

    def _fine_tune(self, proposal: Proposal) -> tuple[Proposal, Evidence]:
        """Let clients fine-tune their cluster's model, if that helps.

        A client that its fine-tuned model serves well is no outlier any longer.
        """
        alone, before = proposal.alone, proposal.evidence
        tuned = fine_tuned(self._run, self._options, proposal.clusters, before.scores, alone)
        if tuned is None:
            self._considered.append(before)
            return proposal, before
        scores = self._with_local(alone, tuned.scores)
        if not tuned.helps:
            self._considered += [before, Evidence(before.name, scores, tuned.describe())]
            return proposal, before
        clusters = replace(proposal.clusters, individual_models=tuned.models)
        alone = alone & self._outliers(clusters, tuned.scores)
        proposal = Proposal(clusters, alone, self._with_local(alone, tuned.scores))
        after = replace(proposal.evidence, variant=tuned.describe())
        self._considered += [replace(before, name=after.name), after]
        return proposal, after

    def _compare_with_training_alone(self, proposal: Proposal, evidence: Evidence) -> Clusters:
        """Leave every client alone if that is better by a standard error; record the decision."""
        run, clusters = self._run, proposal.clusters
        every_client_alone = Evidence("every client alone", self._alone_scores)
        self._considered.append(every_client_alone)
        clients = np.flatnonzero(proposal.alone)
        tolerance = self._options.tolerance(clusters.partition)
        if compare(self._alone_scores, evidence.scores, tolerance).t >= 1:
            clusters = train_alone(run, self._options, self._local_models)
            evidence, clients = every_client_alone, clients[:0]
        rows = self._rows[torch.as_tensor(self._position[clients])]
        clusters = clusters.with_alone(clients, rows)
        names = tuple(run.client_ids[client] for client in clients.tolist())
        all_alone = clusters.partition.num_clusters == run.num_clients
        decision = Decision.among(evidence, tuple(self._considered), names, tolerance)
        decision = replace(decision, doubt=None if all_alone else self._doubt)
        run.record("DECIDE", clusters.partition, clusters.client_models, notes=decision.notes())
        return clusters

    def _distances(self, clusters: Clusters) -> Distances:
        """Return the clients' distances ``[m, k]`` to the clusters."""
        return distances_to_clusters(
            self._run, self._options, clusters, self._local_models, self._one_shot
        )

    def _outliers(self, clusters: Clusters, scores: ClientScores) -> NDArray[np.bool_]:
        """Return which clients belong to no cluster: ``[m]``."""
        partition, distances = clusters.partition, self._distances(clusters)
        return outliers(distances, partition.labels, scores, self._alone_scores, partition)

    def _cluster_scores(self, clusters: Clusters) -> ClientScores:
        """Score the clusters' models on their clients' held-out data: ``[m]``."""
        return held_out_scores(self._run, clusters.models, clusters.partition.labels)

    def _with_local(self, alone: NDArray[np.bool_], scores: ClientScores) -> ClientScores:
        """Return scores ``[m]``, of their local models for some clients."""
        return self._alone_scores.where(torch.as_tensor(alone), scores)


def place(run: Run, clusters: Clusters, distances: Distances) -> Clusters:
    """Place unclustered clients in the nearest cluster, by held-out loss if that is unknown.

    Args:
        run: The run.
        clusters: The clusters.
        distances: ``[m, k]``, NaN if unknown.
    """
    labels = clusters.partition.labels
    labels = np.where(labels < 0, nearest(distances, labels), labels)
    unknown = np.flatnonzero(labels < 0)
    if len(unknown):
        losses = held_out_losses(run, clusters.models)[:, unknown]
        losses = np.where(np.isfinite(losses), losses, np.inf)
        labels[unknown] = np.where(np.isfinite(losses).any(0), losses.argmin(0), -1)
    return clusters.relabel(labels)


def better(
    options: SRFCA,
    clusters: Clusters,
    rival: Clusters,
    score: Callable[[Clusters], ClientScores],
    grouping: OneShot,
) -> tuple[Clusters, Evidence, str | None]:
    """Choose between clusters and one model for all.

    Clusters that distances separate stay unless one model is ahead by a standard error. Parts of
    one cluster, which have led once, must lead again. Others must be clearly better than one model.

    Returns:
        The better one, the evidence of the other, and why the choice is doubtful, if it is.
    """
    scores = score(clusters)
    if rival.midway is not None:
        given_up = Evidence(ONE_MODEL, rival.midway, GIVEN_UP)
        doubt = _doubt_of_lead(options, clusters, rival.midway, scores, grouping)
        return clusters, given_up, doubt
    rival_scores = score(rival)
    lead = compare(scores, rival_scores, options.tolerance(clusters.partition)).t
    needed = -1.0 if grouping.separation >= MIN_SEPARATION else 0.0 if grouping.parts else CLEARLY
    if lead > needed:
        doubt = within_noise(ONE_MODEL, lead) or (NO_GAP if grouping.parts else None)
        return clusters, Evidence(ONE_MODEL, rival_scores), doubt
    other = describe(clusters.partition)
    return rival, Evidence(other, scores), within_noise(other, -lead)


def _doubt_of_lead(
    options: SRFCA,
    clusters: Clusters,
    rival_midway: ClientScores,
    scores: ClientScores,
    grouping: OneShot,
) -> str | None:
    """Say why clusters that led after a third of a training might not lead at its end.

    Clusters that distances separate have other evidence than their lead.
    """
    if grouping.parts:
        return NO_GAP
    if grouping.separation >= MIN_SEPARATION:
        return None
    assert clusters.midway is not None
    tolerance = options.tolerance(clusters.partition)
    lead = compare(clusters.midway, rival_midway, tolerance)
    progress = compare(scores, clusters.midway, tolerance)
    if lead.gain > progress.gain:
        return None
    return (
        f"{ONE_MODEL} may do as well: it was given up after a third of its training, and the "
        "clusters have gained more since than they were ahead"
    )


def _given_up(
    options: SRFCA, clusters: Clusters, one_shot: OneShot
) -> tuple[list[Evidence], str | None]:
    """Return the evidence of other clusters that lost an early trial, and a doubt if it was close.

    There is none if REFINE has made the winner the same, or if parts of one cluster have led.
    """
    if one_shot.started is None or one_shot.rival is None or one_shot.parts:
        return [], None
    scores, name = one_shot.rival.midway, describe(one_shot.rival.partition)
    if scores is None or name == describe(clusters.partition):
        return [], None
    lead = lead_midway(options, one_shot.started, one_shot.rival)
    return [Evidence(name, scores, GIVEN_UP)], within_noise(name, lead)


def describe(partition: Partition, alone: NDArray[np.bool_] | None = None) -> str:
    """Return what a partition is, for a person.

    Args:
        partition: The clusters.
        alone: ``[m]`` clients that are alone beside them.

    >>> describe(Partition([0, 0, 1, 1, 2])), describe(Partition([0, 0]))
    ('2 clusters and 1 client alone', 'one model for all')
    """
    labels = partition.labels if alone is None else np.where(alone, -1, partition.labels)
    sizes = np.bincount(labels[labels >= 0])
    count, num_alone = int((sizes > 1).sum()), int((sizes == 1).sum())
    num_alone += 0 if alone is None else int(alone.sum())
    if count == 0:
        return "every client alone"
    text = ONE_MODEL if count == 1 else f"{count} clusters"
    if not num_alone:
        return text
    text = "one cluster" if count == 1 else text
    return f"{text} and {num_alone} client{'s' * (num_alone != 1)} alone"


def local_rows(run: Run, local_models: ModelSet) -> tuple[Tensor, Labels]:
    """Return the local models, and which one each client has: ``[m]``, -1 for none."""
    labels = np.full(run.num_clients, -1, dtype=np.int64)
    labels[local_models.clients] = np.arange(len(local_models.clients))
    return local_models.models, labels
