"""Which clients a chart shows, where all of them are too many."""

from __future__ import annotations

import numpy as np

from srfca.clustering.partition import Indices, Labels


def sample_clients(labels: Labels, count: int) -> Indices:
    """Return clients ordered by cluster, at most about ``count``.

    Every cluster has its share, evenly spaced over its clients, and at least one client.
    Unclustered clients come last.

    >>> sample_clients(np.array([1, 0, 0, 1, -1]), 10).tolist()
    [1, 2, 0, 3, 4]
    >>> sample_clients(np.array([0] * 8 + [1] * 2), 5).tolist()
    [0, 2, 4, 6, 8]
    """
    order = np.argsort(np.where(labels < 0, len(labels), labels), kind="stable")
    if len(labels) <= count:
        return order
    groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    return np.concatenate([_spaced(group, count * len(group) / len(labels)) for group in groups])


def _spaced(group: Indices, share: float) -> Indices:
    count = max(1, round(share))
    return group[np.linspace(0, len(group), count, endpoint=False).astype(np.int64)]


def short(value: float, digits: int = 4) -> float | None:
    """Return a number with few digits, to keep files small; None if it is not finite.

    >>> short(0.123456), short(float("nan"))
    (0.1235, None)
    """
    return float(f"{value:.{digits}g}") if np.isfinite(value) else None
