"""``rank_mean`` against a sort of every column in plain Python."""

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

from srfca.aggregation import median, trimmed_mean
from srfca.aggregation import rank_mean as implementation
from srfca.aggregation.rank_mean import rank_mean

values = st.one_of(st.sampled_from([0.0, -0.0, 1.0, float("nan")]), st.floats(-100, 100, width=32))


def rows_of(dtype: type) -> st.SearchStrategy[Tensor]:
    shapes = hnp.array_shapes(min_dims=2, max_dims=2, max_side=23)
    return hnp.arrays(dtype, shapes, elements=values).map(torch.from_numpy)


def plain_rank_mean(rows: Tensor, low: int, high: int) -> Tensor:
    """Sort every column in Python, NaN last."""
    means = []
    for column in rows.double().T.tolist():
        ranked = sorted(column, key=lambda value: (isnan(value), value))
        means.append(sum(ranked[low:high]) / (high - low))
    return torch.tensor(means, dtype=torch.float64)


def draw_ranks(data: st.DataObject, count: int) -> tuple[int, int]:
    low = data.draw(st.integers(0, count - 1))
    return low, data.draw(st.integers(low + 1, count))


@given(st.sampled_from([np.float32, np.float64]).flatmap(rows_of), st.data())
def test_rank_mean_equals_that_of_a_sort(rows: Tensor, data: st.DataObject) -> None:
    low, high = draw_ranks(data, len(rows))
    before = rows.clone()
    means = rank_mean(rows, low, high)
    assert means.dtype == rows.dtype
    assert torch.equal(rows.nan_to_num(1e9), before.nan_to_num(1e9)), "the rows are unchanged"
    rounding = 1e-4 if rows.dtype == torch.float32 else 1e-12
    torch.testing.assert_close(
        means.double(), plain_rank_mean(rows, low, high), equal_nan=True, rtol=0, atol=rounding
    )


@settings(max_examples=40)
@given(rows_of(np.float32), st.integers(1, 30), st.data())
def test_blocks_do_not_change_any_bit(rows: Tensor, block: int, data: st.DataObject) -> None:
    low, high = draw_ranks(data, len(rows))
    at_once, parts = rank_mean(rows, low, high), rank_mean(rows, low, high, block)
    assert torch.equal(at_once.view(torch.int32), parts.view(torch.int32))


@given(rows_of(np.float32), st.data())
def test_selection_equals_a_sort(rows: Tensor, data: st.DataObject) -> None:
    """For any number of dropped ranks."""
    low, high = draw_ranks(data, len(rows))
    selected = implementation._sum_by_selection(rows.numpy(), low, high)
    np.testing.assert_allclose(
        selected, implementation._sum_by_sort(rows.numpy(), low, high), rtol=0, atol=1e-3
    )


@pytest.mark.parametrize("ends", [2, 10])
def test_many_blocks_in_threads(ends: int) -> None:
    rows = torch.randn(101, 60_011, generator=torch.Generator().manual_seed(0))
    assert rows.numel() > 10 * max(implementation._SELECTION_BLOCK, implementation._SORT_BLOCK)
    low, high = ends, 101 - ends
    means, expected = rank_mean(rows, low, high), rows.double().sort(0).values[low:high].mean(0)
    torch.testing.assert_close(means.double(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(means, rank_mean(rows, low, high, block=60_011))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single_precision(dtype: torch.dtype) -> None:
    rows = torch.randn(12, 50, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = rows.double().sort(0).values[2:10].mean(0)
    assert torch.equal(rank_mean(rows, 2, 10), expected.to(dtype))


@pytest.mark.parametrize("layout", ["columns", "expanded", "strided"])
def test_rows_need_not_be_contiguous(layout: str) -> None:
    rows = torch.randn(40, 60, generator=torch.Generator().manual_seed(0))
    rows = {"columns": rows.T, "expanded": rows[0].expand(9, -1), "strided": rows[::2, ::2]}[layout]
    expected = rows.sort(0).values[1:-1].mean(0)
    torch.testing.assert_close(rank_mean(rows, 1, len(rows) - 1), expected)


def test_trimming_drops_a_few_nans_and_propagates_more() -> None:
    rows = torch.arange(10.0).unsqueeze(1).repeat(1, 3)
    rows[8:, 0] = torch.nan
    rows[7:, 1] = torch.nan
    trimmed = trimmed_mean(rows, 0.2)
    assert trimmed[0] == trimmed[2] == 4.5
    assert bool(trimmed[1].isnan())
    assert median(rows).tolist() == [4.5, 4.5, 4.5]


@given(rows_of(np.float32), st.integers(1, 30), st.data())
def test_the_sort_by_torch_is_equal(rows: Tensor, block: int, data: st.DataObject) -> None:
    """The implementation for other devices, on the CPU."""
    low, high = draw_ranks(data, len(rows))
    means = implementation._by_torch(rows, low, high, block)
    at_once = implementation._by_torch(rows, low, high, rows.shape[1])
    assert torch.equal(means.view(torch.int32), at_once.view(torch.int32))
    torch.testing.assert_close(
        means.double(), plain_rank_mean(rows, low, high), equal_nan=True, rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize(
    ("ends", "values"), [(2, implementation._SELECTION_BLOCK), (10, implementation._SORT_BLOCK)]
)
def test_memory_is_that_of_a_few_blocks(ends: int, values: int) -> None:
    rows = torch.zeros(100, 200_000)
    tracemalloc.start()
    try:
        rank_mean(rows, ends, 100 - ends)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    block = values * rows.element_size()
    assert block / 2 < peak < 3 * block * torch.get_num_threads()
