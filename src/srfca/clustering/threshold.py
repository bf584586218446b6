"""The threshold of a graph: a number, a quantile of the distances, or automatic.

The automatic threshold compares the graphs of many candidates, both of the distances themselves
and of the clients' denoised profiles. A candidate is credible if few edges of its graph disagree
with the graph's own clusters; without a credible candidate the clients show no groups.
docs/thresholds.md explains the method and where it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from srfca.clustering.candidates import (
    METRICS,
    Candidate,
    Evaluated,
    Metric,
    ThresholdMetric,
    evaluate_candidates,
)
from srfca.clustering.graph import Graph, threshold_graph
from srfca.clustering.matrix import Matrix, off_diagonal
from srfca.clustering.profile import Profile, denoised_profiles
from srfca.errors import is_number, require, unknown

MAX_DISAGREEMENT = 0.15
"""Largest smoothed disagreement of a credible candidate."""
MAX_CLEAN_DISAGREEMENT = 0.03
"""Largest disagreement at which more clusters are preferred to fewer."""
MAX_CLEAN_UNCLUSTERED = 0.1
"""Largest fraction of unclustered clients at which more clusters are preferred to fewer."""


@dataclass(frozen=True)
class Choice:
    """A threshold, its graph, and the reason for choosing it.

    Args:
        metric: What the threshold applies to: ``distance`` or ``profile``.
        threshold: None if no threshold shows groups.
        graph: The graph at the threshold; None if no threshold shows groups.
        reason: Why it was chosen.
        candidates: All thresholds that were evaluated; none unless the choice was automatic.
        margin: The smallest and largest candidate threshold around the chosen one with equal
            clusters.
        warning: What makes an automatic choice doubtful, if anything.
        profile: The denoised profiles, if they were computed and show more than noise.
        clear: Whether an automatic choice found a graph that its clusters explain almost entirely.

    Examples:
        >>> choice = choose_threshold(np.array([[0.0, 1.0], [1.0, 0.0]]), 2.0, min_size=2)
        >>> choice.metric, choice.threshold, choice.candidates
        ('distance', 2.0, ())
    """

    metric: ThresholdMetric
    threshold: float | None
    graph: Graph | None
    reason: str
    candidates: tuple[Candidate, ...] = ()
    margin: tuple[float, float] | None = None
    warning: str | None = None
    profile: Profile | None = None
    clear: bool = False


def check_threshold(threshold: float | str, name: str = "threshold") -> None:
    """Check a threshold.

    Args:
        threshold: ``auto``, a percentage such as ``"30%"``, or a number of at least 0.
        name: The option's name, for the error message.

    Raises:
        InputError: If it is none of these.
    """
    if isinstance(threshold, str):
        if threshold == "auto":
            return
        try:
            percentage = float(threshold.removesuffix("%"))
        except ValueError:
            percentage = np.nan
        require(
            threshold.endswith("%") and 0 <= percentage <= 100,
            f"{name} must be 'auto', a number, or a quantile such as '30%', not {threshold!r}",
        )
        return
    require(
        is_number(threshold),
        f"{name} must be 'auto', a number, or a quantile such as '30%', not {threshold!r}",
    )
    require(threshold >= 0, f"{name} must not be negative, but is {threshold}")


def choose_threshold(
    distances: Matrix,
    threshold: float | str,
    min_size: int,
    seed: int = 0,
    metric: Metric = "auto",
) -> Choice:
    """Return the graph of a matrix of distances at a threshold, or at the best one.

    Args:
        distances: ``[m, m]``. An entry may be NaN, for a pair that cannot be compared: such a
            pair has no edge, and an automatic threshold is one of the profiles, since distances
            with holes are no graph.
        threshold: A number, a quantile of the distances such as ``"30%"``, or ``"auto"``.
        min_size: Smaller clusters do not count as clusters in an automatic choice.
        seed: Seed of the correlation clustering in an automatic choice.
        metric: What the threshold applies to: ``distance``, ``profile`` (distances between
            denoised profiles), or ``auto``: the distances, except for an automatic threshold,
            which takes whichever shows groups better.

    Returns:
        The choice; its threshold and graph are None if there are no groups.

    Raises:
        InputError: If an option is invalid, a distance is infinite and the threshold is not a
            number, or a distance is unknown and ``auto`` is for the metric ``distance``.

    Examples:
        >>> from srfca.clustering import cluster_graph
        >>> at = np.array([1.0, 1.1, 1.2, 5.0, 5.1, 5.2])
        >>> choice = choose_threshold(np.abs(at[:, None] - at), "auto", min_size=2)
        >>> cluster_graph(choice.graph)
        Partition(3 in cluster 0, 3 in cluster 1)
    """
    check_threshold(threshold)
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    require(
        not isinstance(threshold, str) or not np.isinf(distances).any(),
        f"threshold={threshold!r} needs finite distances: set threshold to a number",
    )
    if threshold == "auto":
        return _choose_automatically(distances, min_size, seed, metric)
    profile = denoised_profiles(distances) if metric == "profile" else None
    if metric == "profile" and profile is None:
        return Choice("profile", None, None, "no groups: the profiles show nothing but noise")
    matrix = distances if profile is None else profile.distances
    name: ThresholdMetric = "distance" if profile is None else "profile"
    if isinstance(threshold, str):
        quantile = float(threshold.removesuffix("%")) / 100
        value = _quantile(matrix, quantile)
        reason = f"the {threshold} quantile of the {name}s"
    else:
        value, reason = float(threshold), "given"
    return Choice(name, value, threshold_graph(matrix, value), reason, profile=profile)


def _quantile(matrix: Matrix, quantile: float) -> float:
    """Return a quantile of the distances that are known, 0 if there are none."""
    pairs = off_diagonal(matrix)
    pairs = pairs[~np.isnan(pairs)]
    return float(np.quantile(pairs, quantile)) if len(pairs) else 0.0


def _choose_automatically(distances: Matrix, min_size: int, seed: int, metric: Metric) -> Choice:
    """Evaluate all candidates and choose the most credible one."""
    num_unknown = int(np.isnan(off_diagonal(distances)).sum())
    if num_unknown:
        require(
            metric != "distance",
            f"{num_unknown} of the distances are unknown: set metric to 'auto' or 'profile', or "
            "threshold to a number",
        )
        metric = "profile"
    profile = None if metric == "distance" else denoised_profiles(distances)
    evaluated = evaluate_candidates(distances, profile, min_size, seed, metric)
    candidates = tuple(item.candidate for item in evaluated)
    credible = [
        item for item in evaluated if item.candidate.smoothed_disagreement <= MAX_DISAGREEMENT
    ]
    credible = [item for item in credible if item.candidate.num_clusters] or credible
    if not credible:
        lowest = min((c.smoothed_disagreement for c in candidates), default=1.0)
        reason = f"no groups: every threshold has a disagreement of {lowest:.0%} or more"
        return Choice("distance", None, None, reason, candidates, profile=profile)
    clean = [item for item in credible if _is_clean(item.candidate, len(distances))]
    best = min(
        clean or credible,
        key=lambda item: (
            -item.candidate.num_clusters if clean else 0,
            item.candidate.smoothed_disagreement,
        ),
    )
    margin = _margin(best, evaluated)
    return Choice(
        metric=best.candidate.metric,
        threshold=best.candidate.threshold,
        graph=best.graph,
        reason=_reason(best.candidate, margin),
        candidates=candidates,
        margin=margin,
        warning=_warning(best.candidate, margin, bool(clean)),
        profile=profile,
        clear=bool(clean),
    )


def _is_clean(candidate: Candidate, num_clients: int) -> bool:
    """Tell whether a candidate is so clear that more clusters are preferred to fewer."""
    return (
        candidate.disagreement <= MAX_CLEAN_DISAGREEMENT
        and candidate.num_unclustered <= MAX_CLEAN_UNCLUSTERED * num_clients
    )


def _margin(best: Evaluated, evaluated: Sequence[Evaluated]) -> tuple[float, float]:
    """Return the thresholds around the best one between which the clusters stay the same."""
    rivals = [item for item in evaluated if item.candidate.metric == best.candidate.metric]
    position = next(i for i, item in enumerate(rivals) if item.candidate == best.candidate)
    low = high = position
    while low > 0 and rivals[low - 1].partition == best.partition:
        low -= 1
    while high + 1 < len(rivals) and rivals[high + 1].partition == best.partition:
        high += 1
    return rivals[low].candidate.threshold, rivals[high].candidate.threshold


def _reason(best: Candidate, margin: tuple[float, float]) -> str:
    """Explain an automatic choice."""
    count = best.num_clusters
    clusters = "is 1 cluster" if count == 1 else f"are {count} clusters"
    return (
        f"at {best.metric} {best.threshold:.4g} there {clusters}, with a "
        f"disagreement of {best.disagreement:.1%}; they are the same from {margin[0]:.4g} to "
        f"{margin[1]:.4g}"
    )


def _warning(best: Candidate, margin: tuple[float, float], clean: bool) -> str | None:
    """Say what makes an automatic choice doubtful, None if nothing does."""
    if not clean:
        return (
            f"no clear gap: {best.disagreement:.0%} of the graph disagrees with the clusters; "
            f"unclustered clients: {best.num_unclustered}"
        )
    if margin[0] == margin[1]:
        return "no clear gap: the neighboring thresholds give other clusters"
    return None
