"""Aggregation that chooses among rows by their distances: Bulyan, and centered clipping.

Krum is in ``functions.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from srfca.aggregation.functions import krum_scores, mean, median
from srfca.aggregation.outliers import clip_changes
from srfca.errors import require


def bulyan(rows: Tensor, byzantine: int) -> Tensor:
    """Choose ``J - 2 f`` rows by Krum, and average the values nearest to their median.

    In every coordinate the mean is over the ``J - 4 f`` values that are nearest to the median of
    the chosen rows. El Mhamdi, Guerraoui, Rouault: The Hidden Vulnerability of Distributed Learning
    in Byzantium. ICML 2018.

    Args:
        rows: ``[J, P]``, at least ``4 f + 3`` of them.
        byzantine: Number of corrupt rows to tolerate, f.

    Returns:
        ``[P]``.

    Raises:
        InputError: If there are too few rows.

    Examples:
        >>> bulyan(torch.tensor([[0.0], [1.0], [2.1], [3.3], [4.6], [6.0], [99.0]]), 1)
        tensor([2.1333])
    """
    count = len(rows)
    require(
        byzantine >= 0 and count >= 4 * byzantine + 3,
        f"bulyan needs at least 4 byzantine + 3 rows: byzantine={byzantine}, but {count} rows",
    )
    left, chosen = torch.arange(count, device=rows.device), []
    for _ in range(count - 2 * byzantine):
        place = int(krum_scores(rows[left], byzantine).argmin())
        chosen.append(int(left[place]))
        left = torch.cat([left[:place], left[place + 1 :]])
    selected = rows[chosen]
    nearest = (selected - median(selected)).abs().argsort(dim=0, stable=True)
    return selected.gather(0, nearest[: count - 4 * byzantine]).mean(0)


def centered_clipping(rows: Tensor, limit: float = 1.0, iterations: int = 3) -> Tensor:
    """Return a mean of rows whose distance from it is bounded.

    It starts from the coordinate-wise median. In every iteration rows that are further from the
    present point than ``limit`` times the median distance are moved to that distance, and their
    mean is the next point. Karimireddy, He, Jaggi: Learning from History for Byzantine Robust
    Optimization. ICML 2021. (There the point starts from that of the last round, and the bound is
    given.)

    Args:
        rows: ``[J, P]``.
        limit: The bound, in median distances, at least 1.
        iterations: How many.

    Returns:
        ``[P]``.

    Examples:
        >>> centered_clipping(torch.tensor([[0.0], [1.0], [2.0], [3.0], [1e6]])).item() < 3
        True
    """
    point = median(rows)
    for _ in range(iterations):
        point = mean(clip_changes(rows, point, limit))
    return point
