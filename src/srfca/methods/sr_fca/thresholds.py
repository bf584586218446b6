"""ONE_SHOT: the first clusters, from the distances between the clients' own models."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from srfca.clustering.graph import cluster_graph, threshold_graph
from srfca.clustering.lazy import lazy_clusters
from srfca.clustering.partition import Partition
from srfca.clustering.threshold import Choice, check_distances, choose, complete
from srfca.distances import Side, distance_named
from srfca.errors import InputError, require
from srfca.methods.held_out import transfer
from srfca.methods.rounds import heard

if TYPE_CHECKING:
    from srfca.methods.sr_fca import SRFCA

BLOCK = 4096
"""Rows of clients that are taken at once where there are many."""
ALIKE = 0.5
"""Transfer from which clients among whom no groups are seen are called alike."""


def one_shot(
    options: SRFCA, own: Side, w0: Tensor, seed: int
) -> tuple[Partition, Choice, np.ndarray | None]:
    """ONE_SHOT(lambda, t): edges where dist(w_i, w_j) <= lambda, clusters of at least t clients.

    Where no threshold shows groups, the clients are one cluster if what one learns serves another,
    and else every client is a cluster of its own.
    """
    m = len(own.models)
    partition, choice, distances = threshold_clusters(options, own, seed)
    if partition is None:
        gain = transfer(own.federation, w0, own.models)
        alike = gain >= ALIKE
        verdict = "one cluster" if alike else "every client is a cluster of its own"
        choice = replace(
            choice, why=f"{choice.why}; {gain:.0%} of what a client learns serves others: {verdict}"
        )
        alone = np.where(heard(own.federation, own.models, range(m)), np.arange(m), -1)
        return Partition(np.zeros(m, dtype=np.int64) if alike else alone), choice, distances
    partition = partition.keep(options.min_size)
    if partition.num_clusters == 0:
        known = ""
        if distances is not None:
            pairs = distances[~np.eye(m, dtype=bool)]
            known = f": distances are between {np.nanmin(pairs):.4g} and {np.nanmax(pairs):.4g}"
        raise InputError(
            f"ONE_SHOT found no cluster of at least {options.min_size} clients (min_size) at "
            f"threshold {choice.threshold:.4g}{known}"
        )
    return partition, choice, distances


def parts(
    options: SRFCA,
    own: Side,
    partition: Partition,
    choice: Choice,
    distances: np.ndarray | None,
    seed: int,
) -> tuple[Partition, Choice]:
    """Parts of a single cluster whose clients vary without a gap, by the median of their profiles.

    REFINE trains a model for each, and MERGE joins those that held-out data do not tell apart: what
    is then one cluster needs another REFINE. Parts of less than a tenth of the clients are left
    out, and placed by RECLUSTER.
    """
    one = choice.threshold is None and partition.num_clusters == 1
    if not one or choice.profile is None or distances is None:
        return partition, choice
    m = len(own.models)
    here = complete(distances) if own.federation.wire.absences else np.arange(m)
    apart = choice.profile.distances
    middle = float(np.median(apart[~np.eye(len(apart), dtype=bool)]))
    found = cluster_graph(threshold_graph(apart, middle), options.graph, seed).spread(here, m)
    found = found.keep(max(options.min_size, m // 10))
    if found.num_clusters < 2:
        return partition, choice
    why = f"{choice.why}, cut into {found.num_clusters} parts at profile {middle:.4g}"
    warning = "no gap: clients vary, and held-out data decide which parts of them stay apart"
    return found, replace(choice, metric="profile", threshold=middle, why=why, warning=warning)


def threshold_clusters(
    options: SRFCA, own: Side, seed: int
) -> tuple[Partition | None, Choice, np.ndarray | None]:
    """Clusters of the graph of clients at lambda, None if no lambda shows any; all pairs or few.

    A client whose distances are not known, because it did not answer, is left out; and so is one
    that is infinitely far, because its model is beyond numbers.
    """
    distance = distance_named(options.distance)
    given = (options.threshold, options.min_size, seed, options.metric)
    m = len(own.models)
    if m > options.all_pairs:
        here = np.flatnonzero(heard(own.federation, own.models, range(m)))

        def between(some: np.ndarray, others: np.ndarray) -> np.ndarray:
            blocks = np.split(here[others], range(BLOCK, len(others), BLOCK))
            mine = own.take(here[some])
            found = np.concatenate([distance(mine, own.take(block)) for block in blocks], axis=1)
            known = not np.isnan(found).any()
            require(known or bool(own.federation.wire.absences), "distances must not be NaN")
            return found

        found, choice = lazy_clusters(between, len(here), *given)
        return None if found is None else found.spread(here, m), choice, None
    distances = distance(own, own)
    endless = np.isinf(distances)
    some_lack = bool(own.federation.wire.absences) or bool(endless.any())
    distances = np.where(endless, np.nan, distances)
    here = complete(distances) if some_lack else np.arange(m)
    among = distances[np.ix_(here, here)]
    if some_lack:
        np.fill_diagonal(among, 0.0)
    check_distances(among)
    choice = choose(among, *given)
    graph = choice.graph
    if graph is None:
        return None, choice, distances
    return cluster_graph(graph, options.graph, seed).spread(here, m), choice, distances


def choice_notes(choice: Choice) -> dict[str, Any]:
    """What ONE_SHOT decided and why, for the history."""
    return {
        "metric": choice.metric,
        "threshold": choice.threshold,
        "why": choice.why,
        "margin": None if choice.margin is None else list(choice.margin),
        "warning": choice.warning,
        "candidates": [asdict(candidate) for candidate in choice.candidates],
    }
