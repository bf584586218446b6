"""Storage of the rows of many clients."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

from srfca.methods._common import row_store


def test_rows_fit_up_to_a_fraction_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    row = torch.zeros(1000)
    assert row_store.fits(10, row)
    monkeypatch.setattr(row_store, "MEMORY_FRACTION", 0.0)
    assert not row_store.fits(1, row)


def test_rows_on_disk_are_zeros_and_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = row_store.on_disk(3, torch.zeros(7, dtype=torch.float64))
    assert rows.shape == (3, 7)
    assert rows.dtype == torch.float64
    assert not rows.any()
    rows[1] = torch.arange(7.0).double()
    assert rows[1].tolist() == list(range(7))
    assert not rows[[0, 2]].any()
    assert list(tmp_path.iterdir()) == [], "deleted with the last reference to it"


def test_a_block_has_at_least_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "BLOCK_BYTES", 100)
    assert row_store.block_length(torch.zeros(5)) == 5
    assert row_store.block_length(torch.zeros(1000)) == 1
