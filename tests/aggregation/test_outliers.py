"""Bounds on outliers among numbers and rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import InputError
from srfca.aggregation import ClippedMean, GeometricMedian, clip_changes, winsorize
from srfca.aggregation.outliers import norm_scales

ANY = st.floats(allow_nan=False, allow_infinity=True)


@given(value=ANY, count=st.integers(4, 60), seed=st.integers(0, 50))
def test_one_value_moves_a_mean_by_little(value: float, count: int, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(0, 1, count)
    honest = values.mean()
    values[0] = value
    assert abs(winsorize(values).mean() - honest) < 10 / count


@given(st.lists(st.floats(0.5, 1.0), min_size=6, max_size=30))
def test_values_without_outliers_stay_the_same(values: list[float]) -> None:
    array = np.concatenate([np.linspace(0.4, 1.1, 20), values])
    assert np.array_equal(winsorize(array), array)


def test_tensors_and_rows_of_values() -> None:
    rows = torch.tensor([[1.0, 2.0, 3.0, 4.0, 1e9], [1.0, 2.0, 3.0, 4.0, 5.0]])
    bounded = winsorize(rows)
    assert bounded.dtype == rows.dtype
    assert torch.equal(bounded[1], rows[1])
    assert 4 < float(bounded[0, 4]) < 20
    assert winsorize(rows[:, 3:]) is not None


def test_groups_of_other_lengths_are_not_shortened() -> None:
    """Three of ten are a hundred times as long; only one may be corrupt."""
    lengths = torch.tensor([1.0] * 7 + [100.0] * 3)
    assert torch.equal(norm_scales(lengths, dropped=1), torch.ones(10))
    assert norm_scales(lengths)[-1] == pytest.approx(0.1)
    with pytest.raises(InputError, match=r"at least 1, not 0\.5"):
        norm_scales(lengths, 0.5)


def test_changes_are_shortened_without_copies_of_clean_rows() -> None:
    rows = torch.randn(8, 30, generator=torch.Generator().manual_seed(0))
    start = torch.ones(30)
    assert clip_changes(rows, start) is rows
    rows[3] = start + 1e9 * (rows[3] - start)
    clipped = clip_changes(rows, start)
    assert torch.equal(clipped[[0, 1, 2, 4]], rows[[0, 1, 2, 4]])
    assert float((clipped[3] - start).norm()) < 11 * float((rows[0] - start).norm())


@pytest.mark.parametrize("rule", [GeometricMedian(), ClippedMean()], ids=lambda rule: rule.key)
@pytest.mark.parametrize("factor", [-10.0, 10.0, 1e9, -1e30])
def test_rules_tolerate_corrupt_rows(rule: GeometricMedian | ClippedMean, factor: float) -> None:
    rows = 1 + 0.1 * torch.randn(9, 20, generator=torch.Generator().manual_seed(0))
    honest = rows[2:].mean(0)
    rows[:2] *= factor
    assert float((rule(rows, torch.ones(9)) - honest).abs().max()) < 0.5
