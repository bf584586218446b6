from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from srfca.aggregation import (
    AGGREGATIONS,
    Aggregation,
    Mean,
    Median,
    TrimmedMean,
    aggregation_named,
    mean,
    median,
    trimmed_mean,
)
from srfca.errors import InputError

RULES: list[Aggregation] = [Mean(), Mean(weighted=False), TrimmedMean(0.2), Median()]

row_tensors = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
    elements=st.floats(-100, 100, width=32),
).map(torch.from_numpy)


@given(row_tensors, st.data())
def test_rules_are_the_functions_to_the_bit(rows: Tensor, data: st.DataObject) -> None:
    sizes = torch.tensor(
        data.draw(st.lists(st.integers(1, 50), min_size=len(rows), max_size=len(rows)))
    )
    assert torch.equal(Mean()(rows, sizes), mean(rows, sizes))
    assert torch.equal(Mean(weighted=False)(rows, sizes), mean(rows))
    assert torch.equal(TrimmedMean(0.2)(rows, sizes), trimmed_mean(rows, 0.2))
    assert torch.equal(Median()(rows, sizes), median(rows))


@pytest.mark.parametrize("rule", RULES, ids=str)
@given(rows=row_tensors, scale=st.floats(-10, 10), data=st.data())
def test_rules_commute_with_translation_and_scaling(
    rule: Aggregation, rows: Tensor, scale: float, data: st.DataObject
) -> None:
    rows = rows.double()
    sizes = torch.tensor(
        data.draw(st.lists(st.integers(1, 50), min_size=len(rows), max_size=len(rows)))
    )
    start = torch.linspace(-5, 5, rows.shape[1], dtype=torch.float64)
    moved_before = rule(start + scale * rows, sizes)
    moved_after = start + scale * rule(rows, sizes)
    torch.testing.assert_close(moved_before, moved_after, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rules_are_named_by_key_and_parameters(rule: Aggregation) -> None:
    assert isinstance(rule, Aggregation)
    parameters = asdict(rule)  # type: ignore[call-overload]
    named = aggregation_named(rule.key, **parameters)
    assert named == rule
    assert hash(named) == hash(rule)


def test_keys() -> None:
    assert {key: rule.key for key, rule in AGGREGATIONS.items()} == {
        "mean": "mean",
        "trimmed_mean": "trimmed_mean",
        "median": "median",
        "geometric_median": "geometric_median",
        "clipped_mean": "clipped_mean",
    }
    assert aggregation_named("mean") == Mean(weighted=True)


@pytest.mark.parametrize(
    ("key", "parameters", "message"),
    [
        ("trimed_mean", {"beta": 0.1}, "unknown aggregation 'trimed_mean': did you mean"),
        ("mean", {"beta": 0.1}, "'mean' has no parameter 'beta': its parameters are weighted"),
        ("median", {"beta": 0.1}, "'median' has no parameter 'beta': its parameters are none"),
        ("trimmed_mean", {}, "'trimmed_mean' needs the parameter 'beta'"),
        ("trimmed_mean", {"beta": 0.5}, r"beta must be in \[0, 0.5\), not 0.5"),
        ("trimmed_mean", {"beta": -0.1}, r"beta must be in \[0, 0.5\), not -0.1"),
    ],
)
def test_invalid_rules_are_refused(key: str, parameters: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        aggregation_named(key, **parameters)
