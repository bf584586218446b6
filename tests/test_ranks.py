"""The fast mean of ranks against a sort of every column by Python."""

from __future__ import annotations

import tracemalloc
from math import isnan

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from srfca import ranks
from srfca.aggregation import median, trimmed_mean
from srfca.ranks import rank_mean

values = st.one_of(st.sampled_from([0.0, -0.0, 1.0, float("nan")]), st.floats(-100, 100, width=32))


def rows_of(dtype: type) -> st.SearchStrategy[Tensor]:
    shapes = hnp.array_shapes(min_dims=2, max_dims=2, max_side=23)
    return hnp.arrays(dtype, shapes, elements=values).map(torch.from_numpy)


def by_hand(rows: Tensor, low: int, high: int) -> Tensor:
    """Every column sorted by Python, NaN last."""
    found = []
    for column in rows.double().T.tolist():
        ranked = sorted(column, key=lambda value: (isnan(value), value))
        found.append(sum(ranked[low:high]) / (high - low))
    return torch.tensor(found, dtype=torch.float64)


def some_ranks(data: st.DataObject, count: int) -> tuple[int, int]:
    low = data.draw(st.integers(0, count - 1))
    return low, data.draw(st.integers(low + 1, count))


@given(st.sampled_from([np.float32, np.float64]).flatmap(rows_of), st.data())
def test_ranks_are_those_of_a_sort(rows: Tensor, data: st.DataObject) -> None:
    low, high = some_ranks(data, len(rows))
    before = rows.clone()
    found = rank_mean(rows, low, high)
    assert found.dtype == rows.dtype
    assert torch.equal(rows.nan_to_num(1e9), before.nan_to_num(1e9)), "the rows are not touched"
    rounding = 1e-4 if rows.dtype == torch.float32 else 1e-12
    torch.testing.assert_close(
        found.double(), by_hand(rows, low, high), equal_nan=True, rtol=0, atol=rounding
    )


@settings(max_examples=40)
@given(rows_of(np.float32), st.integers(1, 30), st.data())
def test_blocks_do_not_change_a_bit(rows: Tensor, block: int, data: st.DataObject) -> None:
    low, high = some_ranks(data, len(rows))
    whole, parts = rank_mean(rows, low, high), rank_mean(rows, low, high, block)
    assert torch.equal(whole.view(torch.int32), parts.view(torch.int32))


@given(rows_of(np.float32), st.data())
def test_selection_is_a_sort(rows: Tensor, data: st.DataObject) -> None:
    """However many ranks are left out."""
    low, high = some_ranks(data, len(rows))
    selected = ranks._selected(rows.numpy(), low, high)
    np.testing.assert_allclose(selected, ranks._sorted(rows.numpy(), low, high), rtol=0, atol=1e-3)


@pytest.mark.parametrize("ends", [2, 10])
def test_many_blocks_in_threads(ends: int) -> None:
    rows = torch.randn(101, 60_011, generator=torch.Generator().manual_seed(0))
    assert rows.numel() > 10 * max(ranks._SELECTED_BLOCK, ranks._SORTED_BLOCK)
    low, high = ends, 101 - ends
    found, expected = rank_mean(rows, low, high), rows.double().sort(0).values[low:high].mean(0)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(found, rank_mean(rows, low, high, block=60_011))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_are_added_up_in_long_ones(dtype: torch.dtype) -> None:
    rows = torch.randn(12, 50, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = rows.double().sort(0).values[2:10].mean(0)
    assert torch.equal(rank_mean(rows, 2, 10), expected.to(dtype))


@pytest.mark.parametrize("layout", ["columns", "expanded", "every second"])
def test_rows_need_not_lie_side_by_side(layout: str) -> None:
    rows = torch.randn(40, 60, generator=torch.Generator().manual_seed(0))
    rows = {"columns": rows.T, "expanded": rows[0].expand(9, -1), "every second": rows[::2, ::2]}[
        layout
    ]
    expected = rows.sort(0).values[1:-1].mean(0)
    torch.testing.assert_close(rank_mean(rows, 1, len(rows) - 1), expected)


def test_a_few_nans_are_trimmed_and_more_are_not() -> None:
    rows = torch.arange(10.0).unsqueeze(1).repeat(1, 3)
    rows[8:, 0] = torch.nan
    rows[7:, 1] = torch.nan
    trimmed = trimmed_mean(rows, 0.2)
    assert trimmed[0] == trimmed[2] == 4.5
    assert bool(trimmed[1].isnan())
    assert median(rows).tolist() == [4.5, 4.5, 4.5]


@given(rows_of(np.float32), st.integers(1, 30), st.data())
def test_torch_elsewhere_does_the_same(rows: Tensor, block: int, data: st.DataObject) -> None:
    """The way of other devices, on this one."""
    low, high = some_ranks(data, len(rows))
    found = ranks._by_torch(rows, low, high, block)
    whole = ranks._by_torch(rows, low, high, rows.shape[1])
    assert torch.equal(found.view(torch.int32), whole.view(torch.int32))
    torch.testing.assert_close(
        found.double(), by_hand(rows, low, high), equal_nan=True, rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize(
    ("ends", "values"), [(2, ranks._SELECTED_BLOCK), (10, ranks._SORTED_BLOCK)]
)
def test_memory_is_that_of_some_blocks(ends: int, values: int) -> None:
    rows = torch.zeros(100, 200_000)
    tracemalloc.start()
    try:
        rank_mean(rows, ends, 100 - ends)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    block = values * rows.element_size()
    assert block / 2 < peak < 3 * block * torch.get_num_threads()
