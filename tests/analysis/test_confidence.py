from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from srfca import Result, Simulation
from srfca.analysis import Analysis, analyze
from srfca.analysis.confidence import (
    TEMPERATURE,
    measure_confidence,
    memberships,
    t_statistics,
)
from srfca.analysis.evidence import Evidence


def evidence(losses: list[list[float]], variance: float = 1.0, samples: float = 25.0) -> Evidence:
    """Return the evidence of clients whose losses differ with the same variance everywhere."""
    values = np.array(losses)
    variances = np.where(values > values.min(1, keepdims=True), variance, 0.0)
    shares = np.eye(values.shape[1])[values.argmin(1)]
    count = np.full(len(values), samples)
    return Evidence(np.arange(values.shape[1]), values, shares, variances, count)


def test_right_clients_are_sure_and_a_client_moved_by_hand_is_not(
    result: Result, federation: Simulation, analysis: Analysis
) -> None:
    assert analysis.confidence is not None
    assert analysis.confidence.confidence.min() > 0.8
    labels = result.labels.copy()
    moved = [3, 8, 17]
    labels[moved] = 1 - labels[moved]
    confidence = analyze(replace(result, labels=labels), federation).confidence
    assert confidence is not None
    assert confidence.confidence[moved].max() < 0.2
    assert confidence.doubtful.nonzero()[0].tolist() == moved
    assert (confidence.margin[moved] < 0).all()
    assert (confidence.standard_errors[moved] < 0).all()
    assert confidence.stays[moved].max() < 0.2
    others = np.setdiff1d(np.arange(24), moved)
    assert confidence.confidence[others].min() > 0.8
    assert confidence.next_cluster[others].tolist() == (1 - labels[others]).tolist()
    assert confidence.stability.max() < 0.95, "moved clients leave the clusters"
    assert analysis.confidence.stability.min() > 0.95


def test_the_first_client_may_be_moved(result: Result, federation: Simulation) -> None:
    """Labels are those of the models, also if the first client is not in cluster 0."""
    labels = result.labels.copy()
    labels[0] = 1
    confidence = analyze(replace(result, labels=labels), federation, differences=False).confidence
    assert confidence is not None
    assert confidence.confidence[0] < 0.2
    assert confidence.confidence[1:].min() > 0.8


def test_two_clusters_are_compared_by_the_normal_distribution() -> None:
    part = evidence([[1.0, 1.4], [1.4, 1.0], [1.0, 1.4]])
    np.testing.assert_allclose(t_statistics(part), [[0.0, 2.0], [2.0, 0.0], [0.0, 2.0]])
    measured = measure_confidence(part, np.array([0, 0, 0]), ("a", "b", "c"), 10, 0)
    sure = ndtr(2 / TEMPERATURE)
    np.testing.assert_allclose(measured.confidence, [sure, 1 - sure, sure])
    np.testing.assert_allclose(measured.margin, [0.4 / 1.4, -0.4 / 1.4, 0.4 / 1.4])
    np.testing.assert_allclose(measured.standard_errors, [2.0, -2.0, 2.0])
    assert measured.next_cluster.tolist() == [1, 1, 1]
    assert measured.doubtful.tolist() == [False, True, False]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.floats(0.0, 50.0), min_size=3, max_size=3), min_size=1, max_size=5),
    st.floats(0.5, 5.0),
)
def test_memberships_are_probabilities_that_fall_with_the_loss(
    rows: list[list[float]], temperature: float
) -> None:
    statistics = np.array(rows)
    statistics -= statistics.min(1, keepdims=True)
    values = memberships(statistics, temperature)
    np.testing.assert_allclose(values.sum(1), 1.0)
    for row, expected in zip(values, statistics, strict=True):
        order = np.argsort(expected, kind="stable")
        assert (np.diff(row[order]) <= 1e-12).all()


def test_confidence_is_calibrated_where_the_model_holds() -> None:
    """Normal differences of two groups, and T = 1: confidence c is right in c of the cases."""
    rng = np.random.default_rng(0)
    groups = rng.integers(2, size=4000)
    effect = np.where(groups == 0, 1.0, -1.0) * 0.3
    differences = rng.normal(effect[:, None], 1.0, size=(4000, 20))
    means = differences.mean(1)
    losses = np.stack([np.maximum(-means, 0), np.maximum(means, 0)], 1)
    variances = np.where(losses > 0, differences.var(1, ddof=1)[:, None], 0.0)
    part = Evidence(np.arange(2), losses, np.eye(2)[(means < 0).astype(int)], variances,
                    np.full(4000, 20.0))  # fmt: skip
    confidence = memberships(t_statistics(part), 1.0)
    best = losses.argmin(1)
    sure = confidence[np.arange(4000), best]
    right = best == groups
    for low, high in ((0.5, 0.8), (0.8, 0.95), (0.95, 1.0)):
        inside = (sure >= low) & (sure < high)
        assert right[inside].mean() >= sure[inside].mean() - 0.05, "never overconfident"


def test_clients_without_a_reply_have_no_confidence() -> None:
    part = evidence([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]])
    part.losses[1] = part.shares[1] = part.variances[1] = np.nan
    part.samples[1] = 0.0
    measured = measure_confidence(part, np.array([0, 1, 0]), ("a", "b", "c"), 10, 0)
    for values in (measured.confidence, measured.margin, measured.standard_errors, measured.stays):
        assert np.isnan(values).tolist() == [False, True, False]
    assert measured.next_cluster.tolist() == [1, -1, 1]
    assert np.isnan(measured.stability[1])


def test_clients_alone_have_a_next_cluster_and_no_confidence() -> None:
    part = replace(evidence([[1.0, 2.0], [2.0, 1.0], [1.5, 1.0]]), clusters=np.array([0, 2]))
    measured = measure_confidence(part, np.array([0, 2, 1]), ("a", "b", "c"), 10, 0)
    assert np.isnan(measured.confidence).tolist() == [False, False, True]
    assert measured.next_cluster.tolist() == [2, 0, 2]


def test_few_samples_are_pooled_with_others() -> None:
    """A client whose two samples happen to agree is not certain."""
    part = evidence([[1.0, 1.1]] * 9 + [[1.0, 1.1]], variance=4.0, samples=40.0)
    part.samples[9], part.variances[9] = 2.0, 1e-9
    statistics = t_statistics(part)[:, 1]
    assert statistics[9] < statistics[0]
    assert statistics[9] == pytest.approx(0.1 / np.sqrt(3.0 / 4.0 * 4.0 / 2.0), rel=0.05)


def test_equal_losses_of_every_sample_decide() -> None:
    part = evidence([[1.0, 2.0], [2.0, 1.0]], variance=0.0)
    assert memberships(t_statistics(part))[0, 0] == pytest.approx(1.0)
    tie = evidence([[1.0, 1.0]], variance=0.0)
    assert memberships(t_statistics(tie)).tolist() == [[0.5, 0.5]]
