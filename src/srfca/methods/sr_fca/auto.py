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
    best_separated,
    drop_scattered,
    least_separation,
)
from srfca.clustering.threshold import Choice
from srfca.distances import ModelSet, distance_named
from srfca.federation.classes import num_classes
from srfca.federation.replies import ClientScores
from srfca.methods._common.held_out import held_out_losses, held_out_scores
from srfca.methods._common.run import Run
from srfca.methods.sr_fca.algorithm import trimmed_mean_gd
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.decision import Decision, Evidence, compare, helps, log_losses
from srfca.methods.sr_fca.optional_stages import final_training, train_alone
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
from srfca.methods.sr_fca.trials import fine_tuned, leads_early, together

if TYPE_CHECKING:
    from srfca.methods.sr_fca.options import SRFCA

MIN_OWN_GAIN = 1.5
"""Factor by which an outlier's loss is less with its own model than with that of a cluster."""
FAR = 4.0
"""Standard deviations beyond its clients' distances at which a cluster ends for an outlier."""
FEW = 5
"""Clients from which on a cluster shows by itself how far its clients are."""
CLEARLY = 2.0
"""Standard errors from which one answer is clearly better than another."""
SMALL_PART = 10
"""Parts of less than this fraction (one over it) of the clients are no clusters of their own."""


class Auto(ThresholdRule):
    """Chosen from the distances, and decided on held-out data (docs/thresholds.md)."""

    def one_shot(self, run: Run, options: SRFCA, local_models: ModelSet) -> OneShot:
        """Find clusters that distances show; one cluster of all clients if they show none.

        A single cluster whose clients vary without a gap is split in parts if REFINE has a step to
        join them again.
        """
        grouping = threshold_clusters(run, options, local_models)
        if not grouping.choice.clear and grouping.distances is not None:
            grouping = _separated(run, options, local_models, grouping)
        if (distances := grouping.distances) is not None:
            kept = drop_scattered(distances, grouping.partition, run.num_clients // SMALL_PART)
            partition = kept if kept.num_clusters else grouping.partition
            apart = least_separation(distances, partition)
            grouping = replace(grouping, partition=partition, separation=apart)
        if grouping.partition.num_clusters == 0:
            grouping = _one_cluster(run, grouping)
            if options.refine_steps > 1 and options.trial_budget >= options.local.steps:
                grouping = split(run, options, grouping)
        return grouping

    def segments(self, rounds: int) -> Sequence[range]:
        """Return the first third of a training and the rest."""
        third = rounds // 3
        return [range(third), range(third, rounds)] if third else [range(rounds)]

    def allow_moves(
        self, run: Run, clusters: Clusters, local_models: ModelSet, distances: Distances
    ) -> Labels:
        """Let a client stay if it would do worse, on its held-out data, in the nearest cluster.

        Distances of poor local models mislead (docs/sr_fca.md). An unclustered client that is far
        from all clusters, and does much better with its own model, stays unclustered.
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
            clusters = trimmed_mean_gd(run, options, clusters.partition, "last")
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
        considered = []
        if clusters.partition.num_clusters > 1 and options.trial_budget >= options.local.steps:
            rival = together(run, options, clusters, CLEARLY)
            winner, other = better(clusters, rival, score, one_shot)
            considered.append(other)
            if winner is rival:
                clusters, alone = rival, find_outliers(rival, cluster_scores(rival))
        clusters = final_training(run, options, clusters)
        evidence = Evidence(describe(clusters.partition, alone), score(clusters))
        considered.append(evidence)
        tuned = fine_tuned(run, options, clusters, evidence.scores, alone)
        if tuned is not None:
            scores = evidence.scores.where(torch.as_tensor(alone), tuned.scores)
            is_better = helps(scores, evidence.scores)
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
        if compare(alone_scores, evidence.scores).t >= 1:
            clusters, evidence = train_alone(run, options, local_models), considered[-1]
            clients = run.everyone[:0]
        else:
            clients = np.flatnonzero(alone)
            clusters = clusters.with_alone(clients, rows[torch.as_tensor(position[clients])])
        names = tuple(run.client_ids[client] for client in clients.tolist())
        decision = Decision.among(evidence, tuple(considered), names)
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


def _separated(run: Run, options: SRFCA, local_models: ModelSet, grouping: OneShot) -> OneShot:
    """Return the clusters of largest separation, if they are groups; else the given ones."""
    assert grouping.distances is not None
    distance, distances, clients = grouping.distance, grouping.distances, local_models.clients
    if distance == "cross_loss" and num_classes(run) is not None:
        distance = "balanced_cross_loss"
        distances = np.full_like(grouping.distances, np.nan)
        among = distance_named(distance)(local_models, local_models)
        far = far_clients(options, among)
        distances[np.ix_(clients, clients)] = np.where(far[:, None] | far, np.nan, among)
        grouping = replace(grouping, distances=distances, distance=distance)
    clients = clients[known_pairs(distances)[clients].any(1)]
    best = best_separated(distances[np.ix_(clients, clients)], options.min_size)
    if best is None or best.separation < MIN_SEPARATION:
        return grouping
    partition = best.partition.embed(clients, run.num_clients)
    count = partition.num_clusters
    reason = f"{count} clusters of largest separation, {best.separation:.3g}, by {distance}"
    return with_reason(replace(grouping, partition=partition), reason, warning=None)


def _one_cluster(run: Run, grouping: OneShot) -> OneShot:
    partition = Partition(np.zeros(run.num_clients, dtype=np.int64))
    return with_reason(replace(grouping, partition=partition), "one cluster")


def split(run: Run, options: SRFCA, grouping: OneShot) -> OneShot:
    """Split a single cluster whose clients vary without a gap, at the median of profiles.

    The parts must lead on held-out data after the first third of a training. Then REFINE trains a
    model for each part, and MERGE joins parts that held-out data do not tell apart; the joined
    cluster needs another REFINE. Parts of less than a tenth of the clients are unclustered, and
    placed by RECLUSTER.
    """
    profile, compared = grouping.choice.profile, grouping.compared
    if profile is None or compared is None:
        return grouping
    m = run.num_clients
    apart = profile.distances
    middle = float(np.median(apart[~np.eye(len(apart), dtype=bool)]))
    parts = cluster_graph(threshold_graph(apart, middle), options.graph, run.seed)
    parts = parts.embed(compared, m).drop_smaller_than(max(options.min_size, m // SMALL_PART))
    if parts.num_clusters < 2 or not leads_early(run, options, parts):
        return grouping
    return with_reason(
        replace(grouping, partition=parts, parts=True),
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
    clusters: Clusters,
    rival: Clusters,
    score: Callable[[Clusters], ClientScores],
    grouping: OneShot,
) -> tuple[Clusters, Evidence]:
    """Choose between clusters and one model for all.

    Clusters that distances separate stay unless one model is ahead by a standard error. Parts of
    one cluster, which have led once, must lead again. Others must be clearly better than one model.

    Returns:
        The better one, and the evidence of the other.
    """
    if rival.midway is not None:
        variant = "given up after a third of its training"
        return clusters, Evidence("one model for all", rival.midway, variant)
    scores, rival_scores = score(clusters), score(rival)
    needed = -1.0 if grouping.separation >= MIN_SEPARATION else 0.0 if grouping.parts else CLEARLY
    if compare(scores, rival_scores).t > needed:
        return clusters, Evidence("one model for all", rival_scores)
    return rival, Evidence(describe(clusters.partition), scores)


def outliers(
    distances: Distances,
    labels: Labels,
    scores: ClientScores,
    alone_scores: ClientScores,
    trained_by: Partition,
) -> NDArray[np.bool_]:
    """Return which clients belong to no cluster: ``[m]``.

    They are far from their cluster, compared with the clients that it was trained by, and do much
    better with their own model on held-out data; if they are very far, better is enough. Few
    clients say little about themselves, so they are compared with those of all clusters: two that
    are unlike everyone else, and unlike each other, are no cluster.

    Args:
        distances: ``[m, k]`` to the clusters.
        labels: ``[m]`` the cluster of each client.
        scores: ``[m]`` with the model of that cluster, on held-out data.
        alone_scores: ``[m]`` with the client's own model.
        trained_by: The clients that the clusters were trained by.
    """
    beyond = np.full(len(labels), -np.inf)
    every_log = np.log(np.maximum(distances, np.finfo(np.float64).tiny))
    inside = [every_log[members, cluster] for cluster, members in enumerate(trained_by)]
    for cluster, logs in enumerate(every_log.T[: len(inside)]):
        few = len(inside[cluster]) < FEW
        usual = np.concatenate(inside) if few else inside[cluster]
        usual = usual[np.isfinite(usual)]
        if len(usual):
            middle = np.median(usual)
            spread = 1.4826 * np.median(np.abs(usual - middle))
            limit = middle + max(np.log(MIN_SEPARATION), FAR * spread)
            beyond = np.where(labels == cluster, logs - limit, beyond)
    gain = own_gain(alone_scores, scores)
    very_far = (beyond > np.log(MIN_SEPARATION)) & (gain > 0)
    return np.asarray((beyond > 0) & (gain > np.log(MIN_OWN_GAIN)) | very_far)


def own_gain(alone_scores: ClientScores, scores: ClientScores) -> NDArray[np.float64]:
    """Return how much better clients do with their own model: ``[m]``.

    It is the difference of log(typical loss + loss). If accuracy is known and not higher, it is no
    gain, and infinite if accuracy is clearly higher.
    """
    losses = np.stack([scores.loss.double().numpy(), alone_scores.loss.double().numpy()])
    with np.errstate(invalid="ignore"):  # infinite with both: no gain
        gain = np.subtract(*log_losses(losses))
    if alone_scores.accuracy is not None and scores.accuracy is not None:
        difference = (alone_scores.accuracy - scores.accuracy).double().numpy()
        error = np.sqrt(0.5 / np.maximum(alone_scores.num_samples.double().numpy(), 1))
        gain = np.where(difference > 0, gain, -np.inf)
        gain = np.where(difference > CLEARLY * error, np.inf, gain)
    return np.asarray(gain)


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
    text = "one model for all" if count == 1 else f"{count} clusters"
    if not num_alone:
        return text
    text = "one cluster" if count == 1 else text
    return f"{text} and {num_alone} client{'s' * (num_alone != 1)} alone"


def local_rows(run: Run, local_models: ModelSet) -> tuple[Tensor, Labels]:
    """Return the local models, and which one each client has: ``[m]``, -1 for none."""
    labels = np.full(run.num_clients, -1, dtype=np.int64)
    labels[local_models.clients] = np.arange(len(local_models.clients))
    return local_models.models, labels
