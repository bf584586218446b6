from __future__ import annotations

import numpy as np

from srfca.clustering import denoised_profiles
from tests.clustering.matrices import block_distances

EVEN = [i % 4 for i in range(40)]


def test_profiles_need_structure_and_enough_clients() -> None:
    assert denoised_profiles(np.ones((3, 3))) is None
    assert denoised_profiles(block_distances([0] * 50, 10, 10, 1.0)) is None


def test_profiles_separate_groups_beyond_the_noise() -> None:
    profile = denoised_profiles(block_distances(EVEN, 1.0, 3.0, 0.2))
    assert profile is not None
    distances = profile.distances
    same = np.array(EVEN)[:, None] == np.array(EVEN)
    assert distances[same].max() < distances[~same].min()
    assert profile.noise < distances[~same].min()


def test_other_clients_lie_near_the_landmarks_of_their_group() -> None:
    labels = np.array([i % 2 for i in range(60)])
    d = block_distances(labels.tolist(), 1.0, 3.0, 0.1)
    profile = denoised_profiles(d[:40, :40])
    assert profile is not None
    placed = profile.coordinates(d[40:, :40])
    away = np.linalg.norm(placed[:, None] - profile.landmarks, axis=2)
    assert np.array_equal(labels[:40][away.argmin(1)], labels[40:])
