"""Optional stages of SR-FCA around Algorithms 1 to 4: local models, and what follows REFINE."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from srfca.aggregation.functions import trim_count
from srfca.aggregation.outliers import clip_changes, long_changes
from srfca.aggregation.rules import Mean
from srfca.clustering.partition import Labels, Partition
from srfca.distances import ModelSet
from srfca.federation.replies import Clients
from srfca.federation.rounds import aggregate_clusters
from srfca.methods._common.rounds import (
    LocalModels,
    best_models,
    federated_training,
    train_locally,
)
from srfca.methods._common.run import Run
from srfca.methods.sr_fca.clusters import Clusters

if TYPE_CHECKING:
    from srfca.methods.sr_fca.options import SRFCA


def model_set(run: Run, options: SRFCA, local_models: LocalModels) -> ModelSet:
    """Return the local models of the clients that replied, each represented by its client.

    Models that are much further from w0 than all others are moved nearer and marked as outlying,
    except for more of them than ``trim`` allows to be corrupt: groups may differ in length.
    """
    clients, rows, outlying = local_models.clients, local_models.answered, None
    if options.max_change is not None:
        dropped = trim_count(len(rows), options.trim, options.trim_at_least)
        bound = (run.initial_model(), options.max_change, dropped)
        outlying, rows = long_changes(rows, *bound), clip_changes(rows, *bound)
    models = ModelSet.of_clients(run, rows, clients, options.subsample(run.seed))
    return replace(models, outlying=outlying)


def clusters_of_one_shot(
    run: Run, options: SRFCA, local_models: ModelSet, partition: Partition
) -> Clusters:
    """Return the clusters of ONE_SHOT with the models that the first REFINE may start from.

    They are w0, or the mean of the clients' local models if trainings start from what was there.
    """
    clusters = Clusters.untrained(partition, run.initial_model())
    if not options.continue_training:
        return clusters
    labels = partition.labels[local_models.clients]
    clustered = np.flatnonzero(labels >= 0)
    models = aggregate_clusters(
        local_models.models[torch.as_tensor(clustered)], local_models.clients[clustered],
        labels[clustered], clusters.models, run.sizes, Mean(weighted=False),
    )  # fmt: skip
    return replace(clusters, models=models)


def resample(run: Run, options: SRFCA, step: int) -> ModelSet:
    """Train the local models again on resampled data, as the theory's multi-step version does."""
    local = replace(options.one_shot_training, resample=True)
    with run.stage(f"RESAMPLE {step}", run.num_clients * local.steps):
        return model_set(run, options, train_locally(run, local, run.key(f"resample {step}")))


def train_alone(run: Run, options: SRFCA, local_models: ModelSet) -> Clusters:
    """Make each client a cluster with its local model, trained through all steps."""
    clients, models = local_models.clients, local_models.models
    if options.one_shot_training != options.local:
        with run.stage("ALONE", run.num_clients * options.local.steps):
            retrained = train_locally(run, options.local, run.key("alone"))
        clients, models = retrained.clients, retrained.answered
    labels = np.full(run.num_clients, -1, dtype=np.int64)
    labels[clients] = np.arange(len(clients))
    clusters = Clusters(Partition(labels), models)
    run.record("ALONE", clusters.partition, models, clients=clients)
    return clusters


def place_unclustered(run: Run, clusters: Clusters, nearest: Labels) -> Clusters:
    """Place clients that are in no cluster in the nearest one, by loss if that is unknown.

    Args:
        run: The run.
        clusters: The clusters.
        nearest: ``[m]`` the nearest cluster of each client, -1 if unknown.
    """
    labels = clusters.partition.labels
    labels = np.where(labels < 0, nearest, labels)
    if (labels < 0).any():
        replied, best = best_models(run, clusters.models, np.flatnonzero(labels < 0))
        labels[replied] = best
    clusters = clusters.relabel(labels)
    run.record("PLACE", clusters.partition, clusters.client_models)
    return clusters


def final_training(
    run: Run, options: SRFCA, clusters: Clusters, useless: Clients | None = None
) -> Clusters:
    """Train inside each cluster from its model, if ``final_steps`` is set.

    It is FedAvg or FedProx, with the aggregation of TrimmedMeanGD: a plain mean without trimming.

    Args:
        run: The run.
        options: The parameters.
        clusters: The clusters.
        useless: Clients that do not train.
    """
    if not options.final_steps:
        return clusters
    local = replace(options.local, steps=options.final_steps, mu=options.final_mu)
    plain = options.aggregation == "trimmed_mean" and not options.trim
    rule = Mean() if plain else options.rows_rule
    trained = clusters.without(run.everyone[:0] if useless is None else useless)
    models = federated_training(
        run, "FINAL", trained.models, trained.partition, local, rule,
        purpose="final", participation=options.participation, max_change=options.max_change,
    )  # fmt: skip
    clusters = replace(trained, models=models).with_members_of(clusters)
    run.record("FINAL", clusters.partition, clusters.client_models)
    return clusters
