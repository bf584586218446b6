"""Matrices of distances for tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def block_distances(
    labels: list[int], within: float, across: float, noise: float, seed: int = 0
) -> Matrix:
    """Return distances ``[m, m]`` of groups, with symmetric noise and a zero diagonal."""
    truth = np.array(labels)
    errors = noise * np.random.default_rng(seed).standard_normal((len(truth), len(truth)))
    distances = np.where(truth[:, None] == truth, within, across) + (errors + errors.T) / np.sqrt(2)
    np.fill_diagonal(distances, 0.0)
    return np.asarray(distances)
