"""Normal scores against distributions of scipy and simulated ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from srfca.methods._common.normal_scores import (
    from_chi_bar,
    from_hotelling,
    from_student,
    from_tail,
)


def test_students_t_has_the_same_tail() -> None:
    values = np.array([-4.0, -1.0, 0.5, 6.0])
    np.testing.assert_allclose(stats.norm.sf(from_student(values, 7)), stats.t.sf(values, 7))
    assert from_student(np.array([1e9]), 50.0)[0] > 30


def test_tails_that_are_0_have_the_largest_score() -> None:
    assert from_tail(np.array([0.0]))[0] == pytest.approx(37.0, abs=0.1)
    assert np.isfinite(from_tail(np.array([1.0])))


@pytest.mark.parametrize("count", [2, 5])
def test_positive_squares_have_the_simulated_tail(count: int) -> None:
    draws = np.random.default_rng(0).standard_normal((200_000, count))
    squares = (np.maximum(draws, 0) ** 2).sum(1)
    for quantile in (0.9, 0.99):
        value = np.quantile(squares, quantile)
        score = from_chi_bar(np.array([value]), np.array([count]))
        assert score[0] == pytest.approx(stats.norm.ppf(quantile), abs=0.03)


def test_a_hundred_groups_do_not_overflow() -> None:
    score = from_chi_bar(np.array([[50.0, 300.0]]), np.array([[100, 100]]))
    assert score[0, 0] == pytest.approx(0.0, abs=0.1)
    assert 10 < score[0, 1] < 37


def test_distances_in_estimated_covariances_have_the_simulated_tail() -> None:
    rng, width, freedom = np.random.default_rng(0), 3, 20
    scores = []
    for _ in range(4000):
        sample = rng.standard_normal((freedom, width))
        x = rng.standard_normal(width)
        squares = x @ np.linalg.solve(sample.T @ sample / freedom, x)
        scores.append(from_hotelling(np.array([squares]), width, np.array([freedom]))[0])
    assert np.mean(scores) == pytest.approx(0.0, abs=0.06)
    assert np.std(scores) == pytest.approx(1.0, abs=0.06)
