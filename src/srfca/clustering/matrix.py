"""Matrices of distances: validation and missing entries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.partition import Indices
from srfca.errors import InputError

Matrix = NDArray[np.float64]

_ROUNDING = 1e-6
"""Negative entries up to this fraction of the largest one are taken for rounding errors."""


MIN_COMPARABLE = 0.25
"""Least fraction of the others that a client must have known distances to."""


def check_distances(distances: Matrix, allow_unknown: bool = False) -> None:
    """Check a matrix of distances ``[m, m]``.

    Args:
        distances: The matrix.
        allow_unknown: Whether an entry may be NaN.

    Raises:
        InputError: If it is not square, or has an entry that is NaN, or one that is negative
            beyond rounding.
    """
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise InputError(f"distances must be a square matrix, not of shape {distances.shape}")
    if not allow_unknown and np.isnan(distances).any():
        row, column = np.argwhere(np.isnan(distances))[0]
        raise InputError(f"distances must not be NaN, but the one from {row} to {column} is")
    ignored = np.eye(len(distances), dtype=bool) | np.isnan(distances)
    pairs = np.where(ignored, 0.0, distances)
    smallest = pairs.min(initial=0.0)
    if smallest < -_ROUNDING * pairs.max(initial=0.0):
        row, column = np.argwhere(pairs == smallest)[0]
        raise InputError(
            f"distances must not be negative, but the one from {row} to {column} is "
            f"{smallest:.4g}: if they are losses that can be negative, add a constant to the loss"
        )


def complete_subset(distances: Matrix) -> Indices:
    """Return vertices among which no distance is missing (NaN), in ascending order.

    Vertices are removed greedily, the one with the most missing distances first. The diagonal is
    ignored.

    Args:
        distances: ``[m, m]``.

    Examples:
        >>> nan = np.nan
        >>> complete_subset(np.array([[0, nan, 1], [nan, 0, nan], [1, nan, 0]])).tolist()
        [0, 2]
    """
    missing = np.isnan(distances)
    np.fill_diagonal(missing, False)
    missing |= missing.T
    selected = np.ones(len(distances), dtype=bool)
    while (num_missing := (missing & selected).sum(1) * selected).any():
        selected[num_missing.argmax()] = False
    return np.flatnonzero(selected)


def comparable_subset(distances: Matrix) -> Indices:
    """Return vertices with known distances to at least a quarter of each other, in ascending order.

    Vertices are removed greedily, the one with the fewest known distances first. A distance is
    known unless it is NaN in one of both directions. The diagonal is ignored.

    Args:
        distances: ``[m, m]``.

    Examples:
        >>> distances = np.ones((6, 6))
        >>> distances[2, 1:] = distances[0, 1] = np.nan
        >>> comparable_subset(distances).tolist()
        [0, 1, 3, 4, 5]
    """
    is_known = known_pairs(distances)
    num_known = is_known.sum(1)
    subset = np.arange(len(distances))
    while len(subset) > 1:
        fewest = int(num_known[subset].argmin())
        removed = subset[fewest]
        if num_known[removed] >= MIN_COMPARABLE * (len(subset) - 1):
            break
        subset = np.delete(subset, fewest)
        num_known -= is_known[removed]
    return subset


def isolated(distances: Matrix, count: int) -> NDArray[np.bool_]:
    """Return which vertices are further from all others than any two of the rest are: ``[m]``.

    They belong to no group, and their distances, however large, must not decide what a large
    distance is.

    Args:
        distances: ``[m, m]``, NaN if unknown. The diagonal is ignored.
        count: The most vertices that may be isolated.

    Examples:
        >>> at = np.array([0.0, 1.0, 5.0, 6.0, 1e9])
        >>> isolated(np.abs(at[:, None] - at), 1).tolist()
        [False, False, False, False, True]
    """
    apart = np.where(known_pairs(distances), distances, np.inf)
    nearest = apart.min(1, initial=np.inf)
    core = np.argsort(nearest, kind="stable")[: max(len(nearest) - count, 0)]
    within = apart[np.ix_(core, core)]
    largest = within[np.isfinite(within)].max(initial=-np.inf)
    found: NDArray[np.bool_] = np.isfinite(nearest) & (nearest > largest)
    found[core] = False
    return found if len(core) > 1 else np.zeros(len(nearest), dtype=bool)


def known_pairs(distances: Matrix) -> NDArray[np.bool_]:
    """Return which distances off the diagonal are known in both directions: ``[m, m]``."""
    is_known: NDArray[np.bool_] = ~np.isnan(distances)
    np.fill_diagonal(is_known, False)
    return is_known & is_known.T


def off_diagonal(matrix: Matrix) -> Matrix:
    """Return the entries of ``[m, m]`` off the diagonal, row by row: ``[m * (m - 1)]``."""
    return matrix[~np.eye(len(matrix), dtype=bool)]
