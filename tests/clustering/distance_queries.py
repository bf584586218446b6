"""A matrix of distances that is queried in parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.clustering.matrices import Matrix


class DistanceQueries:
    """Answers queries for distances, and counts the distances that were asked for."""

    def __init__(self, distances: Matrix) -> None:
        self.distances = distances
        self.count = 0

    def __call__(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> Matrix:
        self.count += len(a) * len(b)
        return self.distances[np.ix_(a, b)]
