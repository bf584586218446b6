"""Sums of data by class, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import InputError
from srfca.federation.data_moments import ColumnMoments, column_moments, columns_of
from srfca.federation.requests import MIN_CLASS_SAMPLES


def test_sums_by_client_and_class_without_small_classes() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(60, 2, 3)))
    y = torch.from_numpy(rng.integers(4, size=60))
    owner = torch.from_numpy(rng.integers(3, size=60))
    moments = column_moments(x, y, owner, y, 3, 4)
    left_out = 0
    for client in range(3):
        for label in range(4):
            part = x[(owner == client) & (y == label)].flatten(1)
            if len(part) < MIN_CLASS_SAMPLES:
                left_out, part = left_out + 1, part[:0]
            assert moments.counts[client, label] == len(part)
            torch.testing.assert_close(moments.sums[client, label], part.sum(0))
            torch.testing.assert_close(moments.squares[client, label], (part**2).sum(0))
    assert left_out, "no class was small: the test is void"
    unpacked = ColumnMoments.unpack(moments.pack())
    assert torch.equal(unpacked.squares, moments.squares)


def test_many_samples_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, owner = torch.rand(50, 3), torch.rand(50), torch.arange(50) % 2
    expected = column_moments(x, y, owner, 0 * owner, 2, 1).pack()
    monkeypatch.setattr("srfca.federation.data_moments._PASS", 8)
    torch.testing.assert_close(column_moments(x, y, owner, 0 * owner, 2, 1).pack(), expected)


def test_columns_are_inputs_and_targets_that_are_floats() -> None:
    assert columns_of(torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 1])).shape == (2, 0)
    assert columns_of(torch.zeros(2, 3), torch.zeros(2, 2)).shape == (2, 5)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(InputError, match="moments of data have no shape"):
        ColumnMoments.unpack(torch.zeros(2, 3, 4))
