from __future__ import annotations

import numpy as np
import pytest

from srfca.analysis.stability import jaccard_stability

NAMES = [f"client {number}" for number in range(40)]


def test_clusters_that_never_change_are_stable() -> None:
    positions = np.repeat([0, 1, 2], [4, 5, 6])
    stability = jaccard_stability(np.eye(3)[positions], positions, NAMES, 20, 0)
    assert stability.tolist() == [1.0, 1.0, 1.0]


def test_a_client_that_leaves_costs_its_part() -> None:
    """Of five clients one is always placed elsewhere: 4 of 5 are left, and 4 of 5 there."""
    positions = np.repeat([0, 1], [5, 4])
    shares = np.eye(2)[positions]
    shares[4] = [0.0, 1.0]
    np.testing.assert_allclose(jaccard_stability(shares, positions, NAMES, 20, 0), [0.8, 0.8])


def test_the_mean_over_draws_is_that_of_a_simulation() -> None:
    positions, rng = np.repeat([0, 1], [10, 10]), np.random.default_rng(0)
    shares = np.where(positions[:, None] == np.arange(2), 0.8, 0.2)
    expected = []
    for _ in range(2000):
        stay = rng.random(20) < 0.8
        placed = np.where(stay, positions, 1 - positions)
        best = []
        for cluster in range(2):
            original = positions == cluster
            similar = [
                (original & (placed == other)).sum() / (original | (placed == other)).sum()
                for other in range(2)
            ]
            best.append(max(similar))
        expected.append(best)
    stability = jaccard_stability(shares, positions, NAMES, 2000, 0)
    np.testing.assert_allclose(stability, np.mean(expected, axis=0), atol=0.02)


def test_draws_depend_on_seed_and_names() -> None:
    positions = np.repeat([0, 1], [10, 10])
    shares = np.full((20, 2), 0.5)
    first = jaccard_stability(shares, positions, NAMES, 5, 0)
    assert jaccard_stability(shares, positions, NAMES, 5, 0).tolist() == first.tolist()
    assert jaccard_stability(shares, positions, NAMES, 5, 1).tolist() != first.tolist()


def test_unknown_clients_do_not_count() -> None:
    shares = np.array([[1.0, 0.0], [np.nan, np.nan], [0.0, 1.0]])
    stability = jaccard_stability(shares, np.array([0, 0, -1]), NAMES, 5, 0)
    assert stability[0] == pytest.approx(1.0)
    assert np.isnan(stability[1])
    nobody = jaccard_stability(shares, np.array([-1, -1, -1]), NAMES, 5, 0)
    assert np.isnan(nobody).all()
