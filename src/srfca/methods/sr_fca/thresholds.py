"""Threshold rules: which clients are joined, which may move, and which clusters may merge.

``Fixed`` and ``Quantile`` are the paper's thresholds. ``Auto`` chooses the threshold from the
distances, and checks moves and merges on the clients' held-out data.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.graph import Graph, cluster_graph, threshold_graph
from srfca.clustering.matrix import check_distances, complete_subset
from srfca.clustering.partition import Partition
from srfca.clustering.threshold import Choice, choose_threshold
from srfca.distances import ModelSet, distance_named
from srfca.errors import InputError
from srfca.methods._common.held_out import held_out_losses, interchangeable, transfer
from srfca.methods._common.rounds import require_replies
from srfca.methods._common.run import Run
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.scale import cluster_many, cluster_representatives

if TYPE_CHECKING:
    from srfca.methods.sr_fca.options import SRFCA

MIN_TRANSFER = 0.5
"""Transfer from which clients without visible groups count as alike."""

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class ThresholdRule:
    """How a threshold is chosen, and what it permits.

    Args:
        threshold: A number, a quantile, or ``auto``.
    """

    threshold: float | str

    def split(
        self,
        run: Run,
        options: SRFCA,
        partition: Partition,
        choice: Choice,
        distances: np.ndarray | None,
    ) -> tuple[Partition, Choice]:
        """Split a single cluster whose clients vary without a gap; by default it stays whole."""
        return partition, choice

    def allow_moves(self, run: Run, clusters: Clusters, nearest: Labels) -> Labels:
        """Return the clusters that clients move to, given their nearest ones: ``[m]``."""
        return nearest

    def merge_threshold(self, choice: Choice) -> float | None:
        """Return lambda of MERGE by default; None if held-out data decide."""
        return choice.threshold if choice.metric == "distance" else None


class Fixed(ThresholdRule):
    """A number."""


class Quantile(ThresholdRule):
    """A quantile of the distances, such as ``30%``."""


class Auto(ThresholdRule):
    """Chosen from the distances, and checked on held-out data (docs/thresholds.md)."""

    def split(
        self,
        run: Run,
        options: SRFCA,
        partition: Partition,
        choice: Choice,
        distances: np.ndarray | None,
    ) -> tuple[Partition, Choice]:
        """Split a single cluster whose clients vary without a gap, at the median of profiles.

        REFINE trains a model for each part, and MERGE joins parts that held-out data do not tell
        apart; the joined cluster needs another REFINE. Parts of less than a tenth of the clients
        are unclustered, and placed by RECLUSTER.
        """
        single = choice.threshold is None and partition.num_clusters == 1
        if not single or choice.profile is None or distances is None:
            return partition, choice
        m = run.num_clients
        complete = complete_subset(distances)
        apart = choice.profile.distances
        middle = float(np.median(apart[~np.eye(len(apart), dtype=bool)]))
        parts = cluster_graph(threshold_graph(apart, middle), options.graph, run.seed)
        parts = parts.embed(complete, m).drop_smaller_than(max(options.min_size, m // 10))
        if parts.num_clusters < 2:
            return partition, choice
        reason = f"{choice.reason}, cut into {parts.num_clusters} parts at profile {middle:.4g}"
        warning = "no gap: clients vary, and held-out data decide which parts of them stay apart"
        return parts, replace(
            choice, metric="profile", threshold=middle, reason=reason, warning=warning
        )

    def allow_moves(self, run: Run, clusters: Clusters, nearest: Labels) -> Labels:
        """Let a client stay if it would do worse, on its held-out data, in the nearest cluster.

        Distances of poor local models mislead (docs/sr_fca.md).
        """
        losses = held_out_losses(run, clusters.models)
        everyone, present = run.everyone, clusters.partition.labels
        worse = (present >= 0) & (losses[nearest, everyone] > losses[present, everyone])
        return np.where(worse, present, nearest)

    def merge_threshold(self, choice: Choice) -> float | None:
        """Return None: held-out data decide."""
        return None


def threshold_rule(threshold: float | str) -> ThresholdRule:
    """Return the rule of a threshold.

    >>> threshold_rule("auto"), threshold_rule("30%"), threshold_rule(1.5)
    (Auto(threshold='auto'), Quantile(threshold='30%'), Fixed(threshold=1.5))
    """
    if threshold == "auto":
        return Auto(threshold)
    return Quantile(threshold) if isinstance(threshold, str) else Fixed(threshold)


def one_shot_clusters(
    run: Run, options: SRFCA, local_models: ModelSet
) -> tuple[Partition, Choice, np.ndarray | None]:
    """Cluster the graph of clients at lambda; clusters of fewer than t clients are dropped.

    If no threshold shows groups, the clients are one cluster if what one learns serves another, and
    else each client is a cluster of its own.

    Raises:
        InputError: If fewer than two clients replied, or no cluster is large enough.

    Returns:
        The partition, the choice of the threshold, and the distances ``[m, m]`` if all pairs were
        computed, NaN if unknown.
    """
    m = run.num_clients
    require_replies(local_models.clients, 2)
    partition, choice, distances = _threshold_clusters(run, options, local_models)
    if partition is None:
        gain = transfer(run, local_models.models, local_models.clients)
        alike = gain >= MIN_TRANSFER
        verdict = "one cluster" if alike else "each client is a cluster of its own"
        choice = replace(
            choice,
            reason=f"{choice.reason}; {gain:.0%} of what a client learns serves others: {verdict}",
        )
        alone = np.full(m, -1)
        alone[local_models.clients] = local_models.clients
        return Partition(np.zeros(m, dtype=np.int64) if alike else alone), choice, distances
    partition = partition.drop_smaller_than(options.min_size)
    if partition.num_clusters == 0:
        span = ""
        if distances is not None:
            pairs = distances[~np.eye(m, dtype=bool)]
            span = f": distances are between {np.nanmin(pairs):.4g} and {np.nanmax(pairs):.4g}"
        raise InputError(
            f"ONE_SHOT found no cluster of at least {options.min_size} clients (min_size) at "
            f"threshold {choice.threshold:.4g}{span}"
        )
    return partition, choice, distances


def _threshold_clusters(
    run: Run, options: SRFCA, local_models: ModelSet
) -> tuple[Partition | None, Choice, np.ndarray | None]:
    """Cluster the graph at lambda; None if no lambda shows groups.

    Clients with unknown distances, because they did not reply, are left unclustered, and so are
    those whose distances are infinite, because their model is beyond numbers.
    """
    m, clients = run.num_clients, local_models.clients
    if m > options.all_pairs:
        partition, choice = cluster_many(run, options, local_models)
        return None if partition is None else partition.embed(clients, m), choice, None
    among = distance_named(options.distance)(local_models, local_models)
    unknown = np.isinf(among) | (np.isnan(among) & local_models.unanswered_pairs())
    among = np.where(unknown, np.nan, among)
    complete = complete_subset(np.where(unknown, np.nan, 0.0))
    matrix = among[np.ix_(complete, complete)]
    if unknown.any():
        np.fill_diagonal(matrix, 0.0)
    check_distances(matrix)
    choice = choose_threshold(matrix, options.threshold, options.min_size, run.seed, options.metric)
    distances = np.full((m, m), np.nan)
    distances[np.ix_(clients, clients)] = among
    if choice.graph is None:
        return None, choice, distances
    partition = cluster_graph(choice.graph, options.graph, run.seed)
    return partition.embed(clients[complete], m), choice, distances


def merge_graph(run: Run, options: SRFCA, clusters: Clusters, choice: Choice) -> Graph:
    """Return the graph of clusters that MERGE joins: by distance, or by held-out data."""
    threshold = options.merge_threshold
    if threshold is None:
        threshold = options.rule.merge_threshold(choice)
    if threshold is None or threshold == "auto":
        losses = held_out_losses(run, clusters.models)
        return threshold_graph(~interchangeable(losses, clusters.partition), 0)
    models = cluster_representatives(run, options, clusters)
    return threshold_graph(distance_named(options.distance)(models, models), float(threshold))


def choice_notes(choice: Choice) -> dict[str, Any]:
    """Return what ONE_SHOT decided and why, for the history."""
    return {
        "metric": choice.metric,
        "threshold": choice.threshold,
        "reason": choice.reason,
        "margin": None if choice.margin is None else list(choice.margin),
        "warning": choice.warning,
        "candidates": [asdict(candidate) for candidate in choice.candidates],
    }
