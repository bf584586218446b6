"""Newcomers by their losses: the cluster of each, and how sure it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from srfca.federation.moments import ClientLosses, client_losses
from srfca.methods._common.placement import paired_confidence, place_by_losses, placement_request


def report(*losses: list[float]) -> ClientLosses:
    """Return what a client reports of the losses of each model on its samples."""
    table = torch.tensor(losses, dtype=torch.float64)
    zeros = torch.zeros(table.shape[1], dtype=torch.int64)
    return client_losses(table, torch.ones(len(table)), zeros, zeros, 1, 1)


def confidence(*losses: list[float]) -> float:
    return float(paired_confidence(report(*losses))[0])


def test_confidence_is_that_of_a_paired_test() -> None:
    rng = np.random.default_rng(0)
    first = rng.exponential(size=30)
    second = first + 0.1 + 0.3 * rng.standard_normal(30)
    expected = stats.ttest_rel(second, first, alternative="greater").pvalue
    assert second.mean() > first.mean()
    assert confidence(second.tolist(), first.tolist()) == pytest.approx(1 - expected)


def test_confidence_is_against_the_model_that_is_hardest_to_tell_apart() -> None:
    best, near, far = [1.0, 2.0, 3.0], [1.1, 1.9, 3.3], [9.0, 9.5, 9.9]
    assert confidence(far, best, near) == pytest.approx(confidence(best, near))
    assert confidence(best, far) > 0.99


def test_confidence_where_it_is_unavailable() -> None:
    assert confidence([1.0, 2.0]) == 1.0, "a single model"
    assert confidence([1.0, 2.0], [1.0, 2.0]) == 0.5, "equal models"
    assert confidence([1.0], [2.0]) == 0.5, "a single sample"
    assert confidence([torch.inf, 1.0], [torch.inf, 2.0]) == 0.5, "no finite loss"
    assert confidence([1.0, 2.0], [2.0, 3.0]) == 1.0, "always worse by the same"
    assert confidence([1.0, 2.0], [torch.inf, 3.0]) == 1.0, "infinitely worse"


def test_without_limits_everybody_is_placed() -> None:
    labels, scores = place_by_losses(report([1e9, 1e9], [1e8, 1e8]), None)
    assert labels.tolist() == [1]
    assert np.isnan(scores).all()


@pytest.mark.parametrize("splits", [("train",), ("train", "validation", "test")])
def test_newcomers_are_asked_about_all_but_test_data(splits: tuple[str, ...]) -> None:
    models: Tensor = torch.zeros(2, 3)
    request = placement_request(np.arange(4), models, splits, None)  # type: ignore[arg-type]
    assert request.splits == splits[:2]
    assert request.scales.tolist() == [1.0, 1.0]
