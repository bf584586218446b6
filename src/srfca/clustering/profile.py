"""Denoised profiles: what a client's distances to many clients show together.

Clients of one group have similar distances to everyone else, even where each single distance is
mostly noise. docs/thresholds.md explains the method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.matrix import MIN_COMPARABLE, Matrix, known_pairs, off_diagonal

MIN_CLIENTS = 8
"""Fewer clients have no profiles: the noise level of their distances cannot be estimated."""
_SEMICIRCLE_MEDIAN = 0.404
"""Median absolute eigenvalue of a noise matrix, relative to the largest (Wigner's semicircle)."""
_EDGE_MARGIN = 1.2
"""Eigenvalues count as signal beyond this multiple of the noise's largest eigenvalue."""
_RIDGE = 0.05
"""Weight of the penalty on coordinates that are fitted to a part of a row: 1 is all of the row."""
_RELATIVE_FLOOR = 1e-6
"""Smallest distance whose logarithm is taken, relative to the median distance."""
_INCOMPLETE_FLOOR = 0.05
"""The same where distances are unknown: clients that share few and easy classes have distances near
0, whose logarithms would hide everything else."""


@dataclass(frozen=True)
class Profile:
    """Denoised profiles of distances to L clients, the landmarks.

    A client's profile is its row of log distances to the landmarks, centered by rows and columns
    (logarithms, so that the variation of large distances does not hide small ones), and projected
    onto the directions that exceed the noise. K groups span K - 1 directions.

    Args:
        means: ``[L]``, the mean log distance of each landmark, which is subtracted.
        floor: Distances below this are raised to it, so that they have a logarithm.
        directions: ``[L, r]``, the directions that exceed the noise.
        landmarks: ``[L, r]``, the coordinates of the landmarks' profiles along the directions.
        noise: Expected distance of two profiles that differ by noise alone.

    Examples:
        >>> labels = np.arange(20) % 2
        >>> profile = denoised_profiles(np.where(labels[:, None] == labels, 1.0, 2.0))
        >>> profile.distances.shape, bool(profile.distances[0, 1] > profile.distances[0, 2])
        ((20, 20), True)
    """

    means: Matrix
    floor: float
    directions: Matrix
    landmarks: Matrix
    noise: float

    def coordinates(self, distances: Matrix) -> Matrix:
        """Return the profiles of other clients.

        Args:
            distances: ``[c, L]``, from each client to each landmark; NaN if unknown.

        Returns:
            Coordinates ``[c, r]``, comparable with ``landmarks``; NaN for clients with known
            distances to less than a quarter of the landmarks.
        """
        centered = np.log(np.maximum(distances, self.floor)) - self.means
        is_known = ~np.isnan(centered)
        if not is_known.all():
            return self._incomplete_coordinates(centered, is_known)
        coordinates: Matrix = (centered - centered.mean(1, keepdims=True)) @ self.directions
        return coordinates

    def _incomplete_coordinates(self, centered: Matrix, is_known: NDArray[np.bool_]) -> Matrix:
        """Return the profiles of clients with unknown distances."""
        count = is_known.sum(1)
        mean = np.where(is_known, centered, 0.0).sum(1) / np.maximum(count, 1)
        centered = np.where(is_known, centered - mean[:, None], 0.0)
        coordinates = _fit_rows(centered, is_known, self.directions)
        coordinates[count < MIN_COMPARABLE * is_known.shape[1]] = np.nan
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

    A distance may be unknown (NaN). Means and profiles are then least-squares fits to what is
    known. The matrix of the eigenvalues has 0 for what is not: that shrinks the noise's median and
    largest eigenvalue alike.

    Args:
        distances: ``[m, m]``; each client needs some known distances (``comparable_subset``).

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
    symmetric = distances / 2 + distances.T / 2
    if np.isnan(off_diagonal(symmetric)).any():
        return _incomplete_profiles(symmetric)
    floor = _RELATIVE_FLOOR * float(np.median(off_diagonal(symmetric))) + 1e-300
    centered = np.log(np.maximum(symmetric, floor))
    np.fill_diagonal(centered, 0.0)
    means = centered.sum(1) / (count - 2)
    centered = centered - means[:, None] - means + centered.sum() / ((count - 1) * (count - 2))
    np.fill_diagonal(centered, 0.0)
    values, vectors = np.linalg.eigh(centered)
    signal = _exceeds_noise(values)
    if not signal.any():
        return None
    directions = vectors[:, signal]
    landmarks = directions * values[signal]
    residual = centered - landmarks @ directions.T
    deviation = np.sqrt((residual**2).sum() / (count * (count - 1)))
    noise = float(deviation * np.sqrt(2 * signal.sum()))
    return Profile(means, floor, directions, landmarks, noise)


def _exceeds_noise(values: Matrix) -> NDArray[np.bool_]:
    """Return which eigenvalues ``[m]`` lie outside the semicircle of noise."""
    sizes = np.abs(values)
    radius = np.median(sizes) / _SEMICIRCLE_MEDIAN
    exceeds: NDArray[np.bool_] = sizes > radius * _EDGE_MARGIN * (1 + 1.3 * len(values) ** (-2 / 3))
    return exceeds


def _incomplete_profiles(symmetric: Matrix) -> Profile | None:
    """Compute the profiles of clients with unknown distances."""
    is_known = known_pairs(symmetric)
    floor = _INCOMPLETE_FLOOR * float(np.median(symmetric[is_known])) + 1e-300
    logs = np.where(is_known, np.log(np.maximum(np.where(is_known, symmetric, 1.0), floor)), 0.0)
    means = _additive_fit(logs, is_known)
    centered = np.where(is_known, logs - means[:, None] - means, 0.0)
    share = is_known.sum(1) / (len(is_known) - 1)
    values, vectors = np.linalg.eigh(centered)
    signal = _exceeds_noise(values)
    if not signal.any():
        return None
    directions = vectors[:, signal]
    is_known |= np.eye(len(is_known), dtype=bool)  # 0, as in profiles of complete distances
    landmarks = _fit_rows(centered, is_known, directions)
    residual = np.where(is_known, centered - landmarks @ directions.T, 0.0)
    deviation = np.sqrt((residual**2).sum() / (is_known.sum() - len(is_known)))
    noise = float(deviation * np.sqrt(2 * signal.sum() / share.mean()))
    return Profile(means, floor, directions, landmarks, noise)


def _additive_fit(logs: Matrix, is_known: NDArray[np.bool_]) -> Matrix:
    """Return the effects ``[m]`` whose sums of two fit the known entries best, by least squares."""
    system = is_known.astype(np.float64)
    system[np.diag_indices(len(is_known))] = is_known.sum(1) + 1e-9
    effects: Matrix = np.linalg.solve(system, np.where(is_known, logs, 0.0).sum(1))
    return effects


def _fit_rows(centered: Matrix, is_known: NDArray[np.bool_], directions: Matrix) -> Matrix:
    """Return the coordinates ``[c, r]`` along directions that fit the known part of each row.

    Args:
        centered: ``[c, L]``, 0 where unknown.
        is_known: ``[c, L]``
        directions: ``[L, r]``, orthonormal.
    """
    rank = directions.shape[1]
    products = np.einsum("la,lb->lab", directions, directions).reshape(len(directions), -1)
    systems = (is_known @ products).reshape(-1, rank, rank) + _RIDGE * np.eye(rank)
    fitted: Matrix = np.linalg.solve(systems, (centered @ directions)[..., None])[..., 0]
    return fitted * (1 + _RIDGE)


def spectral_coordinates(distances: Matrix) -> Matrix:
    """Return the coordinates of the clients' profiles, noise included, the largest first.

    Unknown distances do not count: they are at the mean of their row and column.

    Args:
        distances: ``[m, m]``, NaN if unknown.

    Returns:
        ``[m, m]``

    Examples:
        >>> labels = np.arange(20) % 2
        >>> coordinates = spectral_coordinates(np.where(labels[:, None] == labels, 1.0, 2.0))
        >>> bool((coordinates[::2, 0] * coordinates[1::2, 0] < 0).all())
        True
    """
    symmetric = distances / 2 + distances.T / 2
    is_known = np.isfinite(symmetric) & ~np.eye(len(symmetric), dtype=bool)
    if not is_known.any():
        return np.zeros_like(symmetric)
    floor = _RELATIVE_FLOOR * float(np.median(symmetric[is_known])) + 1e-300
    logs = np.where(is_known, np.log(np.where(is_known, np.maximum(symmetric, floor), 1.0)), 0.0)
    means = logs.sum(1) / np.maximum(is_known.sum(1), 1)
    centered = logs - means[:, None] - means + logs.sum() / is_known.sum()
    values, vectors = np.linalg.eigh(np.where(is_known, centered, 0.0))
    order = np.argsort(-np.abs(values), kind="stable")
    coordinates: Matrix = (vectors * values)[:, order]
    return coordinates
