"""The Triton kernel of ``rank_mean``."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.triton_device import DEVICE

pytest.importorskip("triton", reason="needs triton, which is for Linux")

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # torch's own


@given(st.integers(1, 24), st.sampled_from([1, 33, 300]), st.integers(0, 999), st.data())
@settings(max_examples=30)
def test_the_kernel_equals_a_sort(count: int, length: int, seed: int, data: st.DataObject) -> None:
    from srfca.aggregation import rank_mean_triton

    low = data.draw(st.integers(0, (count - 1) // 2))
    high = data.draw(st.integers(count // 2 + 1, count))
    rows = torch.randn(count, length, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    rows[0, ::3] = torch.nan
    rows[-1, ::2] = -torch.inf
    means = rank_mean_triton.rank_mean(rows, low, high)
    expected = rows.sort(0).values[low:high].mean(0)
    torch.testing.assert_close(means, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
