"""Threshold rules: which clients ONE_SHOT joins, which may move, which clusters may merge.

``Fixed`` and ``Quantile`` are the paper's thresholds; ``Auto`` (``auto.py``) chooses the threshold
from the distances and decides by the clients' held-out data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from srfca.aggregation.functions import trim_count
from srfca.clustering.graph import Graph, cluster_graph, threshold_graph
from srfca.clustering.matrix import (
    check_distances,
    comparable_subset,
    complete_subset,
    isolated,
)
from srfca.clustering.partition import Indices, Labels, Partition
from srfca.clustering.threshold import Choice, choose_threshold
from srfca.distances import Distance, ModelSet, allows_unknown, distance_named
from srfca.errors import InputError
from srfca.methods._common.held_out import held_out_losses, interchangeable
from srfca.methods._common.rounds import require_replies
from srfca.methods._common.run import Run
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.optional_stages import final_training, place_unclustered
from srfca.methods.sr_fca.scale import cluster_many, cluster_representatives
from srfca.methods.sr_fca.step_distances import between_clusters, to_clusters

if TYPE_CHECKING:
    from srfca.methods.sr_fca.options import SRFCA

Distances = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OneShot:
    """What ONE_SHOT found.

    Args:
        partition: The clusters; clients in none are unclustered.
        choice: The threshold, and why.
        distances: ``[m, m]`` between local models, NaN if unknown; None if not all were computed.
        distance: The name or function of the distance, which RECLUSTER and MERGE use too.
        separation: Separation of the least separated cluster by these distances, 0 if that is
            unknown.
        compared: The clients that the choice was made from; None if that is unknown.
        parts: Whether the clusters are parts of one whose clients vary without a gap.
        useless: Clients whose local model is useless, so that they train no cluster.
        screened: Why clients are not believed, or their local models not used, by client id.
        started: The clusters after the first part of their training, if a trial has done that.
        rival: Other clusters that were behind them then.
    """

    partition: Partition
    choice: Choice
    distances: Distances | None = None
    distance: str | Distance = "cross_loss"
    separation: float = 0.0
    compared: Indices | None = None
    parts: bool = False
    useless: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    screened: Mapping[str, str] = field(default_factory=dict)
    started: Clusters | None = None
    rival: Clusters | None = None

    def notes(self) -> dict[str, Any]:
        """Return what ONE_SHOT decided and why, for the history."""
        choice = self.choice
        return {
            "metric": choice.metric,
            "threshold": choice.threshold,
            "reason": choice.reason,
            "margin": None if choice.margin is None else list(choice.margin),
            "warning": choice.warning,
            "distance": self.distance if isinstance(self.distance, str) else "custom",
            "separation": self.separation or None,
            "screened": dict(self.screened),
            "candidates": [asdict(candidate) for candidate in choice.candidates],
        }


@dataclass(frozen=True)
class ThresholdRule:
    """How a threshold is chosen, and what it permits: the paper's rules.

    Args:
        threshold: A number, a quantile, or ``auto``.
    """

    threshold: float | str

    def one_shot(self, run: Run, options: SRFCA, local_models: ModelSet) -> OneShot:
        """Cluster the graph of clients at lambda; clusters of fewer than t clients are dropped.

        Raises:
            InputError: If fewer than two clients replied, or no cluster is large enough.
        """
        grouping = threshold_clusters(run, options, local_models)
        if grouping.partition.num_clusters == 0:
            raise no_cluster(options, grouping)
        return grouping

    def segments(self, rounds: int) -> Sequence[range]:
        """Return the parts of a training; held-out data is scored after the first of several."""
        return [range(rounds)]

    def allow_moves(
        self,
        run: Run,
        clusters: Clusters,
        local_models: ModelSet,
        distances: Distances,
        one_shot: OneShot,
    ) -> Labels:
        """Return the clusters that clients move to.

        Args:
            run: The run.
            clusters: The present clusters.
            local_models: The local models.
            distances: ``[m, k]`` of the local models to the clusters' models, NaN if unknown.
            one_shot: What ONE_SHOT found.

        Returns:
            ``[m]``
        """
        return nearest(distances, clusters.partition.labels)

    def merge_threshold(self, choice: Choice) -> float | None:
        """Return lambda of MERGE by default; None if held-out data decide."""
        return choice.threshold if choice.metric == "distance" else None

    def finish(
        self,
        run: Run,
        options: SRFCA,
        clusters: Clusters,
        local_models: ModelSet,
        one_shot: OneShot,
    ) -> Clusters:
        """Place the unclustered clients in the nearest clusters, and train a last time."""
        if len(clusters.partition.unclustered):
            distances = distances_to_clusters(run, options, clusters, local_models, one_shot)
            labels = nearest(distances, clusters.partition.labels)
            clusters = place_unclustered(run, clusters, labels)
        return final_training(run, options, clusters)


class Fixed(ThresholdRule):
    """A number."""


class Quantile(ThresholdRule):
    """A quantile of the distances, such as ``30%``."""


def threshold_clusters(
    run: Run,
    options: SRFCA,
    local_models: ModelSet,
    distance: str | Distance | None = None,
    useless: NDArray[np.bool_] | None = None,
) -> OneShot:
    """Cluster the graph at lambda; without a cluster if no lambda shows groups.

    Clients with unknown distances, because they did not reply, are left unclustered, and so are
    those whose model is outlying, or whose distances are infinite. If the threshold is automatic,
    so are a few clients that are further from everyone than any two others are from
    each other, as many as ``trim`` allows to be corrupt. If the distance leaves pairs unknown,
    clients that can be compared with too few others are left unclustered.

    Args:
        run: The run.
        options: The parameters.
        local_models: The local models.
        distance: Instead of that of the options.
        useless: ``[c]`` whose local model is to be left out.
    """
    distance = options.distance if distance is None else distance
    m, clients = run.num_clients, local_models.clients
    require_replies(clients, 2)
    left_out = np.zeros(len(clients), dtype=bool)
    for mask in (local_models.outlying, useless):
        if mask is not None:
            left_out |= mask
    excluded = clients[:0] if useless is None else clients[useless]
    if m > options.all_pairs:
        kept = np.flatnonzero(~left_out)
        require_replies(clients[kept], 2)
        few, choice = cluster_many(run, options, local_models.take(kept))
        partition = Partition(np.full(m, -1)) if few is None else few.embed(clients[kept], m)
        partition = partition.drop_smaller_than(options.min_size)
        return OneShot(partition, choice, None, distance, useless=excluded)
    among = distance_named(distance)(local_models, local_models)
    unknown = np.isinf(among) | (np.isnan(among) & local_models.unanswered_pairs())
    among = np.where(unknown, np.nan, among)
    far = (
        far_clients(options, among) if options.threshold == "auto" else np.zeros(len(clients), bool)
    )
    far |= left_out
    unknown |= far[:, None] | far
    among = np.where(unknown, np.nan, among)
    partial = allows_unknown(distance)
    complete = (
        comparable_subset(among) if partial else complete_subset(np.where(unknown, np.nan, 0.0))
    )
    matrix = among[np.ix_(complete, complete)]
    if unknown.any() or partial:
        np.fill_diagonal(matrix, 0.0)
    check_distances(matrix, allow_unknown=partial)
    choice = choose_threshold(matrix, options.threshold, options.min_size, run.seed, options.metric)
    distances = np.full((m, m), np.nan)
    distances[np.ix_(clients, clients)] = among
    partition = Partition(np.full(m, -1))
    if choice.graph is not None:
        graph_clusters = cluster_graph(choice.graph, options.graph, run.seed, options.restarts)
        partition = graph_clusters.embed(clients[complete], m)
    partition = partition.drop_smaller_than(options.min_size)
    return OneShot(
        partition, choice, distances, distance, compared=clients[complete], useless=excluded
    )


def far_clients(options: SRFCA, among: Distances) -> NDArray[np.bool_]:
    """Return which of ``[c]`` clients are far from everyone, by their distances ``[c, c]``."""
    if options.min_size < 2:
        return np.zeros(len(among), dtype=bool)
    return isolated(among, trim_count(len(among), options.trim, options.trim_at_least))


def no_cluster(options: SRFCA, grouping: OneShot) -> InputError:
    """Return an error for a threshold at which no cluster is large enough."""
    span = ""
    if grouping.distances is not None:
        pairs = grouping.distances[~np.eye(len(grouping.distances), dtype=bool)]
        span = f": distances are between {np.nanmin(pairs):.4g} and {np.nanmax(pairs):.4g}"
    at = (
        ""
        if grouping.choice.threshold is None
        else f" at threshold {grouping.choice.threshold:.4g}"
    )
    return InputError(
        f"ONE_SHOT found no cluster of at least {options.min_size} clients (min_size){at}{span}"
    )


def merge_graph(run: Run, options: SRFCA, clusters: Clusters, one_shot: OneShot) -> Graph:
    """Return the graph of clusters that MERGE joins: by distance, or by held-out data."""
    threshold = options.merge_threshold
    if threshold is None:
        threshold = options.rule.merge_threshold(one_shot.choice)
    if threshold is None or threshold == "auto":
        losses = held_out_losses(run, clusters.models)
        alike = interchangeable(
            losses, clusters.partition, trim=options.trim, trim_at_least=options.trim_at_least
        )
        return threshold_graph(~alike, 0)
    models = cluster_representatives(run, options, clusters)
    distances = distance_named(one_shot.distance)(models, models)
    run.describe(between_clusters=between_clusters(distances, float(threshold)))
    return threshold_graph(distances, float(threshold))


def distances_to_clusters(
    run: Run, options: SRFCA, clusters: Clusters, local_models: ModelSet, one_shot: OneShot
) -> Distances:
    """Return the distances of all clients' local models to the clusters' models: ``[m, k]``.

    They are NaN if unknown, also if they are infinite.
    """
    representatives = cluster_representatives(run, options, clusters)
    values = distance_named(one_shot.distance)(local_models, representatives)
    distances = np.full((len(clusters.partition), len(clusters.models)), np.nan)
    distances[local_models.clients] = np.where(np.isfinite(values), values, np.nan)
    run.describe(to_clusters=to_clusters(distances, clusters.partition.labels))
    return distances


def nearest(distances: Distances, labels: Labels) -> Labels:
    """Return the nearest cluster of each client, its present one if no distance is known: ``[m]``.

    On a tie it is the first.

    >>> nearest(np.array([[2.0, 1.0], [np.nan, np.nan]]), np.array([0, 0])).tolist()
    [1, 0]
    """
    values = ~np.isnan(distances)
    closest = np.where(values, distances, np.inf).argmin(1)
    return np.where(values.any(1), closest, labels)


def with_reason(grouping: OneShot, reason: str, **changes: Any) -> OneShot:
    """Return the same clusters with a reason added, and other changes of the choice."""
    full = f"{grouping.choice.reason}; {reason}" if grouping.choice.reason else reason
    return replace(grouping, choice=replace(grouping.choice, reason=full, **changes))
