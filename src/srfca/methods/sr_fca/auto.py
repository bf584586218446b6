"""The automatic threshold: groups from distances, and every decision by held-out data.

ONE_SHOT takes the clusters that distances show clearly. Where they do not, it takes the clusters of
largest separation by a distance that label skew does not fool. RECLUSTER and MERGE are checked on
held-out data. In the end they are compared with one model for all clients and with training alone
(``final_decision.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from srfca.clustering.graph import cluster_graph, threshold_graph
from srfca.clustering.matrix import known_pairs
from srfca.clustering.partition import Indices, Labels, Partition
from srfca.clustering.scalable import NUM_LANDMARKS
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
from srfca.methods._common.held_out import held_out_losses, held_out_scores
from srfca.methods._common.run import Run
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.decision import CLEARLY
from srfca.methods.sr_fca.final_decision import FinalDecision, local_rows
from srfca.methods.sr_fca.outliers import outliers
from srfca.methods.sr_fca.screening import LIES, screen
from srfca.methods.sr_fca.thresholds import (
    Distances,
    Fixed,
    OneShot,
    Quantile,
    ThresholdRule,
    far_clients,
    nearest,
    threshold_clusters,
    with_reason,
)
from srfca.methods.sr_fca.trials import first_part, lead_midway

if TYPE_CHECKING:
    from srfca.methods.sr_fca.options import SRFCA

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
        if not grouping.choice.clear:
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
        """Decide between the clusters, one model for all, and training alone."""
        return FinalDecision(run, options, local_models, one_shot).decide(clusters)


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
    """Return the clusters of largest separation, best first; the given ones if none are groups.

    If not all distances were computed, landmarks stand for all clients. The others are unclustered
    then, and placed by RECLUSTER.
    """
    distance, clients, all_pairs = grouping.distance, local_models.clients, grouping.distances
    compared = local_models
    if all_pairs is None:
        compared = local_models.take(_landmarks(run, clients, grouping.useless))
        clients = compared.clients
    if distance == "cross_loss" and options.ask_class_counts and num_classes(run) is not None:
        distance = "balanced_cross_loss"
        among = distance_named(distance)(compared, compared)
        far = far_clients(options, among)
        far |= np.isin(clients, grouping.useless)
        among = np.where(far[:, None] | far, np.nan, among)
    elif all_pairs is None:
        return [grouping]
    else:
        among = all_pairs[np.ix_(clients, clients)]
    if all_pairs is not None:
        distances = np.full_like(all_pairs, np.nan)
        distances[np.ix_(clients, clients)] = among
        grouping = replace(grouping, distances=distances, distance=distance)
    comparable = np.flatnonzero(known_pairs(among).any(1))
    candidates = separated(among[np.ix_(comparable, comparable)], options.min_size)
    candidates = [candidate for candidate in candidates if candidate.separation >= MIN_SEPARATION]
    if not candidates:
        return [grouping]

    def describe_choice(number: int, candidate: SeparatedClusters) -> OneShot:
        partition = candidate.partition.embed(clients[comparable], run.num_clients)
        place = ("", "next ")[number]
        reason = (
            f"{partition.num_clusters} clusters of {place}largest separation, "
            f"{candidate.separation:.3g}, by {distance}"
        )
        reason += f" of {len(clients)} clients" * (all_pairs is None)
        separated_clusters = replace(
            grouping, partition=partition, distance=distance, separation=candidate.separation
        )
        return with_reason(separated_clusters, reason, warning=None)

    return [
        describe_choice(number, candidate)
        for number, candidate in enumerate(candidates[:CANDIDATES])
    ]


def _landmarks(run: Run, clients: Indices, useless: Indices) -> Indices:
    """Draw clients that stand for all: their positions among ``clients``, without useless ones."""
    useful = np.flatnonzero(~np.isin(clients, useless))
    drawn = np.random.default_rng(run.seed).permutation(len(useful))[:NUM_LANDMARKS]
    return useful[np.sort(drawn)]


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


def _one_cluster(run: Run, grouping: OneShot) -> OneShot:
    """Return one cluster of all clients but those whose local model is useless."""
    partition = Partition(np.zeros(run.num_clients, dtype=np.int64)).without(grouping.useless)
    return with_reason(replace(grouping, partition=partition), "one cluster")


def split(run: Run, options: SRFCA, grouping: OneShot) -> OneShot:
    """Split a single cluster whose clients vary without a gap, at the median of profiles.

    The parts must lead on held-out data after the first third of a training. Then REFINE trains a
    model for each part, and MERGE joins parts that held-out data does not tell apart; the joined
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
