"""Denoised profiles: what a client's distances to many clients show together.

Clients of one group have similar distances to everyone else, even where each single distance is
mostly noise. docs/thresholds.md explains the method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srfca.clustering.matrix import Matrix, off_diagonal

MIN_CLIENTS = 8
"""Fewer clients have no profiles: the noise level of their distances cannot be estimated."""
_SEMICIRCLE_MEDIAN = 0.404
"""Median absolute eigenvalue of a noise matrix, relative to the largest (Wigner's semicircle)."""
_EDGE_MARGIN = 1.2
"""Eigenvalues count as signal beyond this multiple of the noise's largest eigenvalue."""
_RELATIVE_FLOOR = 1e-6
"""Smallest distance whose logarithm is taken, relative to the median distance."""


@dataclass(frozen=True)
class Profile:
    """Denoised profiles of distances to L clients, the landmarks.

    A client's profile is its row of log distances to the landmarks, centered by rows and columns
    (logarithms, so that the variation of large distances does not hide small ones), and projected
    onto the directions that exceed the noise. K groups span K - 1 directions.
    """

    means: Matrix
    """``[L]``, the mean log distance of each landmark, which is subtracted."""
    floor: float
    """Distances below this are raised to it, so that they have a logarithm."""
    directions: Matrix
    """``[L, r]``, the directions that exceed the noise."""
    landmarks: Matrix
    """``[L, r]``, the coordinates of the landmarks' profiles along the directions."""
    noise: float
    """Expected distance of two profiles that differ by noise alone."""

    def coordinates(self, distances: Matrix) -> Matrix:
        """Return the profiles of other clients.

        Args:
            distances: ``[c, L]``, from each client to each landmark.

        Returns:
            Coordinates ``[c, r]``, comparable with ``landmarks``.
        """
        centered = np.log(np.maximum(distances, self.floor)) - self.means
        coordinates: Matrix = (centered - centered.mean(1, keepdims=True)) @ self.directions
        return coordinates

    @property
    def distances(self) -> Matrix:
        """L2 distances between the landmarks' profiles: ``[L, L]``."""
        squares = (self.landmarks**2).sum(1)
        squared = squares[:, None] + squares - 2 * self.landmarks @ self.landmarks.T
        np.fill_diagonal(squared, 0.0)
        return np.asarray(np.sqrt(np.maximum(squared, 0.0)))


def denoised_profiles(distances: Matrix) -> Profile | None:
    """Compute the profiles of all clients, with each of them as a landmark.

    Directions count as signal where the eigenvalue exceeds Wigner's semicircle, whose radius is
    estimated from the median eigenvalue.

    Args:
        distances: ``[m, m]``.

    Returns:
        The profiles; None if there is nothing but noise, or for fewer than ``MIN_CLIENTS``.

    Examples:
        >>> labels = np.arange(20) % 2
        >>> profile = denoised_profiles(np.where(labels[:, None] == labels, 1.0, 2.0))
        >>> profile.landmarks.shape
        (20, 1)
    """
    count = len(distances)
    if count < MIN_CLIENTS:
        return None
    symmetric = (distances + distances.T) / 2
    floor = _RELATIVE_FLOOR * float(np.median(off_diagonal(symmetric))) + 1e-300
    centered = np.log(np.maximum(symmetric, floor))
    np.fill_diagonal(centered, 0.0)
    means = centered.sum(1) / (count - 2)
    centered = centered - means[:, None] - means + centered.sum() / ((count - 1) * (count - 2))
    np.fill_diagonal(centered, 0.0)
    values, vectors = np.linalg.eigh(centered)
    sizes = np.abs(values)
    radius = np.median(sizes) / _SEMICIRCLE_MEDIAN
    signal = sizes > radius * _EDGE_MARGIN * (1 + 1.3 * count ** (-2 / 3))
    if not signal.any():
        return None
    directions = vectors[:, signal]
    landmarks = directions * values[signal]
    residual = centered - landmarks @ directions.T
    deviation = np.sqrt((residual**2).sum() / (count * (count - 1)))
    noise = float(deviation * np.sqrt(2 * signal.sum()))
    return Profile(means, floor, directions, landmarks, noise)
