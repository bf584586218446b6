"""The automatic threshold: groups from distances, and every decision by held-out data.

ONE_SHOT takes the clusters that distances show clearly. Where they do not, it takes the clusters of
largest separation by a distance that label skew does not fool. RECLUSTER and MERGE are checked on
held-out data. In the end the clusters are compared with one model for all clients and with training
alone, each with and without fine-tuning (docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.graph import cluster_graph, threshold_graph
from srfca.clustering.matrix import known_pairs
from srfca.clustering.partition import Labels, Partition
from srfca.clustering.separation import (
    MIN_SEPARATION,
    SeparatedClusters,
    drop_scattered,
    least_separation,
    separated,
)
from srfca.clustering.threshold import Choice
from srfca.distances import ModelSet, distance_named
from srfca.federation.classes import num_classes
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
    helps,
    within_noise,
)
from srfca.methods.sr_fca.optional_stages import final_training, train_alone
from srfca.methods.sr_fca.outliers import outliers
from srfca.methods.sr_fca.screening import LIES, screen
from srfca.methods.sr_fca.thresholds import (
    Distances,
    Fixed,
    OneShot,
    Quantile,
    ThresholdRule,
    distances_to_clusters,
    far_clients,
    nearest,
    threshold_clusters,
    with_reason,
)
from srfca.methods.sr_fca.trials import fine_tuned, first_part, lead_midway, together

if TYPE_CHECKING:
    from srfca.methods.sr_fca.options import SRFCA

ONE_MODEL = "one model for all"
NO_GAP = "clients vary without a gap between groups: other data may cut them elsewhere"
GIVEN_UP = "given up after a third of the training"
CANDIDATES = 2
"""Partitions of largest separation that are tried."""
SMALL_PART = 10
"""Parts of less than this fraction (one over it) of the clients are no clusters of their own."""


class Auto(ThresholdRule):
    """Chosen from the distances, and decided on held-out data (docs/thresholds.md)."""

    def one_shot(self, run: Run, options: SRFCA, local_models: ModelSet) -> OneShot:
        """Find clusters that distances show; one cluster of all clients if they show none.

        A single cluster whose clients vary without a gap is split in parts if REFINE has a step to
        join them again.
        """
        screened = screen(run, options, local_models)
        bad = [client for client, reason in screened.items() if reason != LIES]
        useless = np.isin(local_models.clients, bad)
        grouping, *others = [threshold_clusters(run, options, local_models, useless=useless)]
        reasons = {run.client_ids[client]: screened[client] for client in sorted(screened)}
        grouping = replace(grouping, screened=reasons)
        if not grouping.choice.clear and grouping.distances is not None:
            grouping, *others = _separated(run, options, local_models, grouping)
        grouping = _without_scattered(run, grouping)
        tries = options.trial_budget >= options.local.steps
        if grouping.partition.num_clusters == 0:
            grouping = _one_cluster(run, grouping)
            if options.refine_steps > 1 and tries:
                grouping = split(run, options, grouping)
        elif others and options.refine_steps and tries:
            grouping = race(run, options, grouping, _without_scattered(run, others[0]))
        return grouping

    def segments(self, rounds: int) -> Sequence[range]:
        """Return the first third of a training and the rest."""
        third = rounds // 3
        return [range(third), range(third, rounds)] if third else [range(rounds)]

    def allow_moves(
        self,
        run: Run,
        clusters: Clusters,
        local_models: ModelSet,
        distances: Distances,
        one_shot: OneShot,
    ) -> Labels:
        """Let a client stay if it would do worse, on its held-out data, in the nearest cluster.

        Distances of poor local models mislead (docs/sr_fca.md). An unclustered client that is far
        from all clusters, and does much better with its own model, stays unclustered; so does one
        whose local model is useless, which trains no cluster, and is placed in the end.
        """
        labels = nearest(distances, clusters.partition.labels)
        losses = held_out_losses(run, clusters.models)
        everyone, present = run.everyone, clusters.partition.labels
        worse = (present >= 0) & (losses[labels, everyone] > losses[present, everyone])
        labels = np.where(worse, present, labels)
        if (present < 0).any():
            alone_scores = held_out_scores(run, *local_rows(run, local_models))
            scores = held_out_scores(run, clusters.models, labels)
            alone = outliers(distances, labels, scores, alone_scores, clusters.partition)
            alone[one_shot.useless] = True
            labels = np.where(alone & (present < 0), -1, labels)
        return labels

    def merge_threshold(self, choice: Choice) -> float | None:
        """Return None: held-out data decide."""
        return None

    def finish(
        self,
        run: Run,
        options: SRFCA,
        clusters: Clusters,
        local_models: ModelSet,
        one_shot: OneShot,
    ) -> Clusters:
        """Decide between the clusters, one model for all, and training alone.

        Fine-tuning is tried for the better of the first two, and clients that are served much
        better by their own model keep it.
        """
        if clusters.averaged:
            start = options.start(clusters)
            clusters = trimmed_mean_gd(run, options, clusters.partition, "last", start)
        rows, position = local_rows(run, local_models)
        alone_scores = held_out_scores(run, rows, position)

        def find_outliers(answer: Clusters, scores: ClientScores) -> NDArray[np.bool_]:
            partition = answer.partition
            distances = distances_to_clusters(run, options, answer, local_models, one_shot)
            return outliers(distances, partition.labels, scores, alone_scores, partition)

        def cluster_scores(answer: Clusters) -> ClientScores:
            return held_out_scores(run, answer.models, answer.partition.labels)

        def score(answer: Clusters) -> ClientScores:
            return alone_scores.where(torch.as_tensor(alone), cluster_scores(answer))

        if len(clusters.partition.unclustered):
            distances = distances_to_clusters(run, options, clusters, local_models, one_shot)
            clusters = place(run, clusters, distances)
        alone = find_outliers(clusters, cluster_scores(clusters))
        considered, doubt = _given_up(options, clusters, one_shot)
        if clusters.partition.num_clusters > 1 and options.trial_budget >= options.local.steps:
            undivided = one_shot.rival if one_shot.parts else None
            rival = together(run, options, clusters, CLEARLY, undivided, one_shot.useless)
            winner, other, doubts = better(options, clusters, rival, score, one_shot)
            doubt = doubts if winner is rival else doubts or doubt
            considered.append(other)
            if winner is rival:
                clusters, alone = rival, find_outliers(rival, cluster_scores(rival))
        clusters = final_training(run, options, clusters, one_shot.useless)
        tolerance = options.tolerance(clusters.partition)
        evidence = Evidence(describe(clusters.partition, alone), score(clusters))
        considered.append(evidence)
        tuned = fine_tuned(run, options, clusters, evidence.scores, alone)
        if tuned is not None:
            scores = evidence.scores.where(torch.as_tensor(alone), tuned.scores)
            is_better = helps(scores, evidence.scores, tolerance)
            if is_better:
                clusters = replace(clusters, individual_models=tuned.models)
                alone &= find_outliers(clusters, tuned.scores)
                scores = alone_scores.where(torch.as_tensor(alone), tuned.scores)
                considered[-1] = evidence = replace(
                    evidence, name=describe(clusters.partition, alone)
                )
            considered.append(Evidence(evidence.name, scores, tuned.describe()))
            evidence = considered[-1] if is_better else evidence
        considered.append(Evidence("every client alone", alone_scores))
        if compare(alone_scores, evidence.scores, tolerance).t >= 1:
            clusters, evidence = train_alone(run, options, local_models), considered[-1]
            clients = run.everyone[:0]
        else:
            clients = np.flatnonzero(alone)
            clusters = clusters.with_alone(clients, rows[torch.as_tensor(position[clients])])
        names = tuple(run.client_ids[client] for client in clients.tolist())
        if clusters.partition.num_clusters == run.num_clients:
            doubt = None
        decision = Decision.among(evidence, tuple(considered), names, tolerance)
        decision = replace(decision, doubt=doubt)
        notes = decision.notes()
        run.record("DECIDE", clusters.partition, clusters.client_models, notes=notes)
        return clusters


def threshold_rule(threshold: float | str) -> ThresholdRule:
    """Return the rule of a threshold.

    >>> threshold_rule("auto"), threshold_rule("30%"), threshold_rule(1.5)
    (Auto(threshold='auto'), Quantile(threshold='30%'), Fixed(threshold=1.5))
    """
    if threshold == "auto":
        return Auto(threshold)
    return Quantile(threshold) if isinstance(threshold, str) else Fixed(threshold)


def _separated(
    run: Run, options: SRFCA, local_models: ModelSet, grouping: OneShot
) -> list[OneShot]:
    """Return the clusters of largest separation, best first; the given ones if none are groups."""
    assert grouping.distances is not None
    distance, distances, clients = grouping.distance, grouping.distances, local_models.clients
    if distance == "cross_loss" and num_classes(run) is not None:
        distance = "balanced_cross_loss"
        distances = np.full_like(grouping.distances, np.nan)
        among = distance_named(distance)(local_models, local_models)
        far = far_clients(options, among)
        far |= np.isin(clients, grouping.useless)
        distances[np.ix_(clients, clients)] = np.where(far[:, None] | far, np.nan, among)
        grouping = replace(grouping, distances=distances, distance=distance)
    clients = clients[known_pairs(distances)[clients].any(1)]
    candidates = separated(distances[np.ix_(clients, clients)], options.min_size)
    candidates = [candidate for candidate in candidates if candidate.separation >= MIN_SEPARATION]
    if not candidates:
        return [grouping]

    def describe_choice(number: int, candidate: SeparatedClusters) -> OneShot:
        partition = candidate.partition.embed(clients, run.num_clients)
        place = ("", "next ")[number]
        reason = (
            f"{partition.num_clusters} clusters of {place}largest separation, "
            f"{candidate.separation:.3g}, by {distance}"
        )
        return with_reason(replace(grouping, partition=partition), reason, warning=None)

    return [
        describe_choice(number, candidate)
        for number, candidate in enumerate(candidates[:CANDIDATES])
    ]


def _without_scattered(run: Run, grouping: OneShot) -> OneShot:
    """Dissolve small clusters of clients that have nothing in common, and note the separation."""
    if (distances := grouping.distances) is None:
        return grouping
    kept = drop_scattered(distances, grouping.partition, run.num_clients // SMALL_PART)
    partition = kept if kept.num_clusters else grouping.partition
    return replace(grouping, partition=partition, separation=least_separation(distances, partition))


def race(run: Run, options: SRFCA, first: OneShot, second: OneShot) -> OneShot:
    """Choose between two candidates after the first third of a training.

    Distances prefer the first: the second must be clearly better on held-out data.

    Returns:
        The better one, ``started``, with the other as its ``rival``.
    """
    if first.partition == second.partition or second.partition.num_clusters == 0:
        return first
    trained = [
        first_part(run, options, grouping.partition, f"candidate {number}")
        for number, grouping in enumerate((first, second), 1)
    ]
    if lead_midway(options, trained[1], trained[0]) >= CLEARLY:
        return replace(second, started=trained[1], rival=trained[0])
    return replace(first, started=trained[0], rival=trained[1])


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


def _one_cluster(run: Run, grouping: OneShot) -> OneShot:
    """Return one cluster of all clients but those whose local model is useless."""
    partition = Partition(np.zeros(run.num_clients, dtype=np.int64)).without(grouping.useless)
    return with_reason(replace(grouping, partition=partition), "one cluster")


def split(run: Run, options: SRFCA, grouping: OneShot) -> OneShot:
    """Split a single cluster whose clients vary without a gap, at the median of profiles.

    The parts must lead on held-out data after the first third of a training. Then REFINE trains a
    model for each part, and MERGE joins parts that held-out data do not tell apart; the joined
    cluster needs another REFINE. Parts of less than a tenth of the clients are unclustered, and
    placed by RECLUSTER. Whichever leads continues where its trial ended.
    """
    profile, compared = grouping.choice.profile, grouping.compared
    if profile is None or compared is None:
        return grouping
    m = run.num_clients
    apart = profile.distances
    middle = float(np.median(apart[~np.eye(len(apart), dtype=bool)]))
    graph = threshold_graph(apart, middle)
    parts = cluster_graph(graph, options.graph, run.seed, options.restarts)
    parts = parts.embed(compared, m).drop_smaller_than(max(options.min_size, m // SMALL_PART))
    if parts.num_clusters < 2:
        return grouping
    in_parts = first_part(run, options, parts, "parts")
    undivided = first_part(run, options, grouping.partition, "whole")
    if lead_midway(options, in_parts, undivided) < 1:
        return replace(grouping, started=undivided, rival=in_parts)
    return with_reason(
        replace(grouping, partition=parts, parts=True, started=in_parts, rival=undivided),
        f"cut into {parts.num_clusters} parts at profile {middle:.4g}",
        metric="profile", threshold=middle,
        warning="no gap: clients vary, and held-out data decide which parts of them stay apart",
    )  # fmt: skip


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


def describe(partition: Partition, alone: NDArray[np.bool_] | None = None) -> str:
    """Return what a partition is, for a person.

    Args:
        partition: The clusters.
        alone: ``[m]`` clients that are alone besides.

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
