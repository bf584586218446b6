"""What many clients need: few distances instead of all pairs, few clients for a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from srfca.clustering.partition import Partition
from srfca.clustering.scalable import cluster_from_few_distances
from srfca.clustering.threshold import Choice
from srfca.distances import ModelSet, allows_unknown, distance_named
from srfca.errors import require
from srfca.methods._common.run import Run
from srfca.methods.sr_fca.clusters import Clusters

if TYPE_CHECKING:
    from srfca.methods.sr_fca.options import SRFCA

NUM_REPRESENTATIVES = 8
"""Clients that represent a cluster if there are many clients."""
_BLOCK = 4096
"""Clients whose distances are computed at once."""


def cluster_representatives(run: Run, options: SRFCA, clusters: Clusters) -> ModelSet:
    """Return the cluster models, represented by all of their clients, or by a few if m is large."""
    many = len(clusters.partition) > options.all_pairs
    models = ModelSet.of_clusters(
        run, tuple(run.client_ids), clusters.models, clusters.partition,
        NUM_REPRESENTATIVES if many else None, options.subsample(run.seed),
    )  # fmt: skip
    return replace(models, winsorized=options.max_change is not None)


def cluster_many(
    run: Run, options: SRFCA, local_models: ModelSet
) -> tuple[Partition | None, Choice]:
    """Cluster local models, computing only the distances that random pivots need.

    Returns:
        The partition of the clients of ``local_models``, None if no threshold shows groups; and
        the choice of the threshold.
    """
    distance, partial = distance_named(options.distance), allows_unknown(options.distance)

    def between(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        first, parts = local_models.take(rows), []
        for block in np.split(columns, range(_BLOCK, len(columns), _BLOCK)):
            second = local_models.take(block)
            parts.append(distance(first, second))
            unknown = partial or first.has_unanswered or second.has_unanswered
            require(unknown or not np.isnan(parts[-1]).any(), "distances must not be NaN")
        return np.concatenate(parts, axis=1)

    return cluster_from_few_distances(
        between, len(local_models.models), options.threshold, options.min_size, run.seed,
        options.metric, partial,
    )  # fmt: skip
