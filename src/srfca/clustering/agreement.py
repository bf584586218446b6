"""How well two partitions agree: the adjusted Rand index and the normalized mutual information.

They are those of scikit-learn, whose import alone takes as long as a small run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import xlogy

Counts = NDArray[np.int64]


def adjusted_rand_index(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Return the adjusted Rand index of two labelings.

    Args:
        first: ``[m]``, any integers of at least 0.
        second: ``[m]``

    Returns:
        At most 1, for equal partitions; about 0 for labels at random.

    Examples:
        >>> adjusted_rand_index(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
        1.0
    """
    both, rows, columns = (_pairs(counts) for counts in _counts(first, second))
    apart = len(first) * (len(first) - 1) - rows - columns + both
    only_first, only_second = rows - both, columns - both
    if only_first == only_second == 0:
        return 1.0
    chance = rows * (only_first + apart) + columns * (only_second + apart)
    return 2 * (both * apart - only_first * only_second) / chance


def normalized_mutual_information(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Return the mutual information of two labelings over the mean of their entropies.

    Args:
        first: ``[m]``, any integers of at least 0.
        second: ``[m]``

    Returns:
        From 0 to 1.

    Examples:
        >>> normalized_mutual_information(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
        0.0
    """
    both, rows, columns = (_entropy(counts) for counts in _counts(first, second))
    if rows == columns == 0:
        return 1.0
    shared = rows + columns - both
    return max(0.0, shared / ((rows + columns) / 2)) if shared > 1e-12 else 0.0


def _counts(first: NDArray[np.int64], second: NDArray[np.int64]) -> tuple[Counts, Counts, Counts]:
    """Count members of the common refinement and of each partition."""
    rows, columns = np.bincount(first), np.bincount(second)
    ones, shape = np.ones(len(first), dtype=np.int64), (len(rows), len(columns))
    both = sparse.coo_array((ones, (first, second)), shape=shape).tocsr().data
    return np.asarray(both), rows, columns


def _pairs(counts: Counts) -> int:
    """Count ordered pairs within parts; Python's integers do not overflow."""
    return int((counts * (counts - 1)).sum())


def _entropy(counts: Counts) -> float:
    shares = counts / max(counts.sum(), 1)
    return -float(xlogy(shares, shares).sum())
