"""SR-FCA, as in Algorithms 1 to 4 of the paper.

Harshvardhan, Avishek Ghosh, Arya Mazumdar: An Improved Federated Clustering Algorithm with
Model-based Clustering. Transactions on Machine Learning Research, 02/2024.

What a threshold permits is in ``thresholds.py``, what many clients need in ``scale.py``, and stages
that are not in these algorithms in ``optional_stages.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from srfca.aggregation.rules import TrimmedMean
from srfca.clustering.graph import cluster_graph
from srfca.clustering.partition import Partition
from srfca.clustering.threshold import Choice
from srfca.distances import ModelSet, distance_named
from srfca.methods._common.rounds import federated_training, resolve_server_lr, train_locally
from srfca.methods._common.run import Run
from srfca.methods.sr_fca.clusters import Clusters, onto_ball
from srfca.methods.sr_fca.optional_stages import (
    final_training,
    model_set,
    place_unclustered,
    resample,
    train_alone,
)
from srfca.methods.sr_fca.scale import cluster_representatives
from srfca.methods.sr_fca.thresholds import choice_notes, merge_graph, one_shot_clusters

if TYPE_CHECKING:
    from srfca.methods.sr_fca.options import SRFCA


def sr_fca(run: Run, options: SRFCA) -> Clusters:
    """Algorithm 1, SR-FCA: ONE_SHOT, then R times REFINE."""
    local_models, partition, choice = one_shot(run, options)
    if choice.threshold is None and partition.num_clusters > 1:  # no two clients are alike
        return train_alone(run, options, local_models, partition)
    clusters = Clusters(partition, run.initial_model().expand(partition.num_clusters, -1))
    for step in range(1, options.refine_steps + 1):
        if options.resample:
            local_models = resample(run, options, step)
        previous = clusters.partition
        clusters = refine(run, options, clusters, local_models, choice, step)
        if clusters.partition == previous and not options.resample:
            break
    if options.refine_steps == 0:
        clusters = trimmed_mean_gd(run, options, clusters.partition, step=0)
    if len(clusters.partition.unclustered):
        nearest = nearest_clusters(run, options, clusters, local_models)
        clusters = place_unclustered(run, clusters, nearest)
    return final_training(run, options, clusters)


def one_shot(run: Run, options: SRFCA) -> tuple[ModelSet, Partition, Choice]:
    """Algorithm 1, ONE_SHOT(lambda, t): train local models, and cluster the graph of near ones.

    Every client trains alone from w0. Clients are joined by an edge if dist(w_i, w_j) <= lambda,
    and the clusters of that graph with at least t clients are kept.
    """
    local = options.one_shot_training
    with run.stage("ONE_SHOT", run.num_clients * local.steps):
        local_models = model_set(run, options, train_locally(run, local, run.key("one_shot")))
        partition, choice, distances = one_shot_clusters(run, options, local_models)
        if options.refine_steps > 1:
            partition, choice = options.rule.split(run, options, partition, choice, distances)
    run.record(
        "ONE_SHOT", partition, local_models.models, distances, choice_notes(choice),
        clients=local_models.clients,
    )  # fmt: skip
    return local_models, partition, choice


def refine(
    run: Run,
    options: SRFCA,
    clusters: Clusters,
    local_models: ModelSet,
    choice: Choice,
    step: int,
) -> Clusters:
    """Algorithm 1, REFINE: TrimmedMeanGD, RECLUSTER, MERGE."""
    clusters = trimmed_mean_gd(run, options, clusters.partition, step)
    clusters = recluster(run, options, clusters, local_models)
    run.record(f"RECLUSTER {step}", clusters.partition, clusters.client_models)
    clusters, joined = merge(run, options, clusters, choice)
    notes = {"joined": joined}
    run.record(f"MERGE {step}", clusters.partition, clusters.client_models, notes=notes)
    return clusters


def trimmed_mean_gd(run: Run, options: SRFCA, partition: Partition, step: int) -> Clusters:
    """Algorithm 2, TrimmedMeanGD(beta): train each cluster from w0 with trimmed means."""
    w0 = run.initial_model()

    def project(models: Tensor) -> Tensor:
        return models if options.diameter is None else onto_ball(models, w0, options.diameter)

    models = federated_training(
        run, f"TRIMMED_MEAN_GD {step}", w0.expand(partition.num_clusters, -1), partition,
        options.local, TrimmedMean(options.trim), purpose=f"refine {step}",
        participation=options.participation, project=project,
        server_lr=resolve_server_lr(options.exchange, options.server_lr, options.local),
    )  # fmt: skip
    clusters = Clusters(partition, models)
    run.record(f"TRIMMED_MEAN_GD {step}", partition, clusters.client_models)
    return clusters


def recluster(run: Run, options: SRFCA, clusters: Clusters, local_models: ModelSet) -> Clusters:
    """Algorithm 3, RECLUSTER: every client goes to argmin_c dist(w_i, omega_c).

    On a tie it is the lowest c. Held-out data may keep a client where it is (``rule``).
    """
    nearest = nearest_clusters(run, options, clusters, local_models)
    return clusters.relabel(options.rule.allow_moves(run, clusters, nearest))


def merge(
    run: Run, options: SRFCA, clusters: Clusters, choice: Choice
) -> tuple[Clusters, list[list[int]]]:
    """Algorithm 4, MERGE(lambda, t): join clusters whose models are near, and average their models.

    Clusters left with fewer than t clients are dissolved, unless all are. The second value lists
    the clusters that were joined.
    """
    joined = cluster_graph(merge_graph(run, options, clusters, choice), options.graph, run.seed)
    before = clusters.partition.labels
    labels = np.where(before >= 0, joined.labels[before], -1)
    models = torch.stack([clusters.models[group.tolist()].mean(0) for group in joined])
    large = np.bincount(labels[labels >= 0]) >= options.min_size
    if large.any():
        labels = np.where(large[labels], labels, -1)
    groups = [group.tolist() for group in joined if len(group) > 1]
    return Clusters.of(labels, models), groups


def nearest_clusters(
    run: Run, options: SRFCA, clusters: Clusters, local_models: ModelSet
) -> np.ndarray:
    """Return the nearest cluster of each client, its present one if no distance is finite."""
    representatives = cluster_representatives(run, options, clusters)
    distances = distance_named(options.distance)(local_models, representatives)
    finite = np.isfinite(distances)
    nearest = np.where(finite, distances, np.inf).argmin(1)
    labels, clients = clusters.partition.labels.copy(), local_models.clients
    labels[clients] = np.where(finite.any(1), nearest, labels[clients])
    return labels
