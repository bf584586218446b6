"""Matrices of distances: validation and missing entries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.partition import Indices
from srfca.errors import InputError

Matrix = NDArray[np.float64]

_ROUNDING = 1e-6
"""Negative entries up to this fraction of the largest one are taken for rounding errors."""


def check_distances(distances: Matrix) -> None:
    """Check a matrix of distances ``[m, m]``.

    Raises:
        InputError: If it is not square, or has an entry that is NaN, or one that is negative
            beyond rounding.
    """
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise InputError(f"distances must be a square matrix, not of shape {distances.shape}")
    if np.isnan(distances).any():
        row, column = np.argwhere(np.isnan(distances))[0]
        raise InputError(f"distances must not be NaN, but the one from {row} to {column} is")
    pairs = np.where(np.eye(len(distances), dtype=bool), 0.0, distances)
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


def off_diagonal(matrix: Matrix) -> Matrix:
    """Return the entries of ``[m, m]`` off the diagonal, row by row: ``[m * (m - 1)]``."""
    return matrix[~np.eye(len(matrix), dtype=bool)]
