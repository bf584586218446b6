from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca.analysis.gains import client_gains, fairness, losing_clients, mean_gain
from tests.analysis.made_up import scores


def test_gains_in_accuracy() -> None:
    answer, other = scores([0.9, 0.5, float("nan"), 0.7]), scores([0.6, 0.6, 0.6, 0.7])
    gain = mean_gain(answer, other)
    assert gain is not None
    assert gain.mean == pytest.approx((0.3 - 0.1 + 0.0) / 3)
    assert (gain.clients, gain.losing, gain.relative) == (3, 1, None)
    assert gain.standard_error == pytest.approx(np.std([0.3, -0.1, 0.0], ddof=1) / np.sqrt(3))
    assert not gain.is_clear
    assert gain.text() == "+6.7"
    assert losing_clients(answer, other).tolist() == [1]


def test_gains_in_loss_are_relative() -> None:
    answer, other = scores(None, [1.0, 1.0]), scores(None, [2.0, 1.5])
    gain = mean_gain(answer, other)
    assert gain is not None
    assert gain.mean == pytest.approx(0.75)
    assert gain.relative == pytest.approx(0.75 / 1.75)
    assert gain.text() == "-43%"
    assert client_gains(answer, other).tolist() == [1.0, 0.5]


def test_gains_of_some_clients() -> None:
    answer, other = scores([0.9, 0.5, 0.8]), scores([0.6, 0.7, 0.6])
    gain = mean_gain(answer, other, np.array([1]))
    assert gain is not None
    assert gain.mean == pytest.approx(-0.2)
    assert gain.losing == 1
    assert gain.standard_error == np.inf
    assert mean_gain(answer, other, np.zeros(0, np.int64)) is None


def test_the_worst_lose_first() -> None:
    answer, other = scores([0.5, 0.2, 0.9]), scores([0.6, 0.6, 0.6])
    assert losing_clients(answer, other).tolist() == [1, 0]


def test_fairness() -> None:
    accuracy = [0.1] + [0.9] * 19
    part = fairness(scores(accuracy))
    assert part is not None
    assert part.worst_tenth == pytest.approx(0.5)
    assert part.standard_deviation == pytest.approx(np.std(accuracy))
    expected = sum(accuracy) ** 2 / (20 * sum(a * a for a in accuracy))
    assert part.jain == pytest.approx(expected)
    by_loss = fairness(scores(None, [1.0, 2.0, 9.0]))
    assert by_loss is not None
    assert (by_loss.worst_tenth, by_loss.jain) == (9.0, None)
    nothing = scores(None, [float("nan")])
    assert fairness(nothing) is None
    zeros = fairness(scores([0.0, 0.0]))
    assert zeros is not None
    assert zeros.jain == 1.0
    assert isinstance(nothing.loss, torch.Tensor)
