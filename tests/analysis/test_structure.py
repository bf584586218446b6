from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import silhouette_samples

from srfca.analysis.evidence import Evidence
from srfca.analysis.structure import from_distances, from_losses, loss_map


def points(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return distances of two groups on a line, and an outlier that is alone."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(0, 1, 12), rng.normal(8, 1, 10), [30.0]])
    return np.abs(x[:, None] - x), np.repeat([0, 1, 2], [12, 10, 1])


def test_silhouettes_are_those_of_scikit_learn() -> None:
    distances, labels = points()
    structure = from_distances(distances, labels, np.array([0, 1]))
    expected = silhouette_samples(distances[:22, :22], labels[:22], metric="precomputed")
    np.testing.assert_allclose(structure.silhouette[:22], expected)
    assert np.isnan(structure.silhouette[22])
    assert structure.source == "distances"


def test_unknown_distances_do_not_count() -> None:
    distances, labels = points()
    expected = from_distances(distances, labels, np.array([0, 1])).silhouette
    distances[3, 4] = distances[4, 3] = np.nan
    silhouette = from_distances(distances, labels, np.array([0, 1])).silhouette
    assert np.isfinite(silhouette[:22]).all()
    assert silhouette[3] == pytest.approx(expected[3], abs=0.1)
    distances[5] = np.nan
    assert np.isnan(from_distances(distances, labels, np.array([0, 1])).silhouette[5])


def test_an_outlier_scores_high_and_a_typical_client_low() -> None:
    distances, labels = points()
    score = from_distances(distances, labels, np.array([0, 1])).outlier_score
    assert ((score >= 0) & (score <= 1)).all()
    assert score[22] > 0.9, "alone, and far from the nearest cluster"
    assert np.median(score[:22]) < 0.1
    twice = np.ones((4, 4)) - np.eye(4)
    twice[3, :3] = twice[:3, 3] = 2.0
    scores = from_distances(twice, np.zeros(4, np.int64), np.array([0])).outlier_score
    assert scores[3] == pytest.approx(1 - (4 / 3) / 2)
    assert scores[:3].tolist() == [0.0, 0.0, 0.0]


def test_one_cluster_has_outliers_but_no_silhouettes() -> None:
    distances, _ = points()
    structure = from_distances(distances, np.zeros(23, np.int64), np.array([0]))
    assert np.isnan(structure.silhouette).all()
    assert structure.outlier_score.argmax() == 22


def test_losses_stand_in_for_distances() -> None:
    losses = np.array([[1.0, 4.0], [1.0, 2.0], [3.0, 2.0], [np.nan, np.nan], [9.0, 8.0]])
    part = Evidence(np.array([0, 1]), losses, losses, losses, np.ones(5))
    structure = from_losses(part, np.array([0, 0, 1, 1, 2]))
    np.testing.assert_allclose(structure.silhouette, [0.75, 0.5, 1 / 3, np.nan, np.nan])
    np.testing.assert_allclose(structure.outlier_score, [0.0, 0.0, 0.0, np.nan, 0.75])
    assert structure.source == "losses"


def test_the_map_of_losses_separates_groups() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], 10)
    losses = 1.0 - 0.8 * np.eye(4)[labels] + 0.05 * rng.random((40, 4))
    losses *= rng.uniform(0.5, 2.0, (40, 1))  # some clients have harder data
    losses[7] = np.nan
    made = loss_map(losses)
    assert made is not None
    places, kept = made
    assert np.isnan(places[7]).all()
    assert 0.5 < kept <= 1
    known = np.delete(np.arange(40), 7)
    assert np.median(silhouette_samples(places[known], labels[known])) > 0.3


def test_there_is_no_map_where_losses_say_nothing() -> None:
    assert loss_map(np.ones((5, 1))) is None
    assert loss_map(np.ones((5, 3))) is None
    assert loss_map(np.array([[1.0, 2.0], [np.nan, np.nan], [2.0, 1.0]])) is None
