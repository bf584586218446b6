"""SR-FCA, as in Algorithms 1 to 4 of the paper.

Harshvardhan, Avishek Ghosh, Arya Mazumdar: An Improved Federated Clustering Algorithm with
Model-based Clustering. Transactions on Machine Learning Research, 02/2024.

What a threshold permits is in ``thresholds.py``, what ``threshold="auto"`` decides in ``auto.py``,
what many clients need in ``scale.py``, and stages that are not in these algorithms in
``optional_stages.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from srfca.clustering.graph import cluster_graph
from srfca.clustering.partition import Partition
from srfca.distances import ModelSet
from srfca.methods._common.held_out import held_out_scores
from srfca.methods._common.rounds import federated_training, train_locally
from srfca.methods._common.run import Run
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.optional_stages import clusters_of_one_shot, model_set, resample
from srfca.methods.sr_fca.thresholds import OneShot, distances_to_clusters, merge_graph

if TYPE_CHECKING:
    from srfca.methods.sr_fca.options import SRFCA


def sr_fca(run: Run, options: SRFCA) -> Clusters:
    """Algorithm 1, SR-FCA: ONE_SHOT, then R times REFINE."""
    local_models, grouping = one_shot(run, options)
    clusters = clusters_of_one_shot(run, options, local_models, grouping.partition)
    for step in range(1, options.refine_steps + 1):
        if options.resample:
            local_models = resample(run, options, step)
        previous = clusters.partition
        clusters = refine(run, options, clusters, local_models, grouping, step)
        if clusters.partition == previous and options.stops_early:
            break
    if options.refine_steps == 0:
        clusters = trimmed_mean_gd(run, options, clusters.partition, 0, options.start(clusters))
    return options.rule.finish(run, options, clusters, local_models, grouping)


def one_shot(run: Run, options: SRFCA) -> tuple[ModelSet, OneShot]:
    """Algorithm 1, ONE_SHOT(lambda, t): train local models, and cluster the graph of near ones.

    Every client trains alone from w0. Clients are joined by an edge if dist(w_i, w_j) <= lambda,
    and the clusters of that graph with at least t clients are kept.
    """
    local = options.one_shot_training
    with run.stage("ONE_SHOT", run.num_clients * local.steps):
        local_models = model_set(run, options, train_locally(run, local, run.key("one_shot")))
        grouping = options.rule.one_shot(run, options, local_models)
    run.record(
        "ONE_SHOT", grouping.partition, local_models.models, grouping.distances, grouping.notes(),
        clients=local_models.clients,
    )  # fmt: skip
    return local_models, grouping


def refine(
    run: Run,
    options: SRFCA,
    clusters: Clusters,
    local_models: ModelSet,
    grouping: OneShot,
    step: int,
) -> Clusters:
    """Algorithm 1, REFINE: TrimmedMeanGD, RECLUSTER, MERGE, the last two in either order."""
    start = options.start(clusters)
    started = grouping.started if step == 1 and start is None else None
    clusters = trimmed_mean_gd(run, options, clusters.partition, step, start, started)
    for stage in ("MERGE", "RECLUSTER") if options.merge_first else ("RECLUSTER", "MERGE"):
        notes = None
        if stage == "RECLUSTER":
            clusters = recluster(run, options, clusters, local_models, grouping)
        else:
            clusters, joined = merge(run, options, clusters, grouping)
            notes = {"joined": joined}
        run.record(f"{stage} {step}", clusters.partition, clusters.client_models, notes=notes)
    return clusters


def trimmed_mean_gd(
    run: Run,
    options: SRFCA,
    partition: Partition,
    step: int | str,
    start: Tensor | None = None,
    started: Clusters | None = None,
) -> Clusters:
    """Algorithm 2, TrimmedMeanGD(beta): train each cluster with trimmed means.

    The clusters' models start from w0, or from ``start`` ``[k, P]``. Clusters that a trial has
    ``started`` to train continue where it ended.
    """
    stage = f"TRIMMED_MEAN_GD {step}"
    clusters = started or Clusters.untrained(partition, run.initial_model())
    if start is not None:
        clusters = replace(clusters, models=start)
    for rounds in options.segments[bool(clusters.rounds_done) :]:
        if rounds.start:
            scores = held_out_scores(run, clusters.models, partition.labels)
            clusters = replace(clusters, midway=scores)
            run.add_scores(stage, scores, partition.labels, partition.num_clusters)
        clusters = trimmed_mean_rounds(run, options, clusters, rounds, stage, f"refine {step}")
    run.record(stage, partition, clusters.client_models)
    return clusters


def trimmed_mean_rounds(
    run: Run, options: SRFCA, clusters: Clusters, rounds: range, stage: str, purpose: str
) -> Clusters:
    """Do some rounds of TrimmedMeanGD."""
    models = federated_training(
        run, stage, clusters.models, clusters.partition, options.local,
        options.rows_rule, purpose=purpose,
        participation=options.participation,
        server_lr=options.gradient_lr, project=options.projection(run),
        rounds=rounds, max_change=options.max_change,
    )  # fmt: skip
    return replace(clusters, models=models, rounds_done=rounds.stop)


def recluster(
    run: Run, options: SRFCA, clusters: Clusters, local_models: ModelSet, grouping: OneShot
) -> Clusters:
    """Algorithm 3, RECLUSTER: every client goes to argmin_c dist(w_i, omega_c).

    On a tie it is the lowest c. Held-out data may keep a client where it is (``rule``). Clusters
    left with fewer than t clients are dissolved, unless all are.
    """
    distances = distances_to_clusters(run, options, clusters, local_models, grouping)
    labels = options.rule.allow_moves(run, clusters, local_models, distances, grouping)
    return clusters.relabel(labels).drop_smaller_than(options.min_size)


def merge(
    run: Run, options: SRFCA, clusters: Clusters, grouping: OneShot
) -> tuple[Clusters, list[list[int]]]:
    """Algorithm 4, MERGE(lambda, t): join clusters whose models are near, and average their models.

    Clusters left with fewer than t clients are dissolved, unless all are. The second value lists
    the clusters that were joined.
    """
    graph = merge_graph(run, options, clusters, grouping)
    joined = cluster_graph(graph, options.graph, run.seed, options.restarts)
    before = clusters.partition.labels
    labels = np.where(before >= 0, joined.labels[before], -1)
    models = torch.stack([clusters.models[group.tolist()].mean(0) for group in joined])
    groups = [group.tolist() for group in joined if len(group) > 1]
    merged = replace(Clusters.of(labels, models), midway=clusters.midway, averaged=bool(groups))
    return merged.drop_smaller_than(options.min_size), groups
