"""Stacked tensors, copied from and to rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from srfca.engine.row_slots import RowSlots


def tensors(count: int) -> list[Tensor]:
    """Return tensors of several shapes: one in another order, a scalar and an empty one."""
    image = torch.zeros(4, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    reordered = image.expand(count, 4, 3, 2, 2).clone(memory_format=torch.preserve_format)
    if count == 1:
        reordered = image.unsqueeze(0)
        assert not reordered.is_contiguous()
    return [
        torch.zeros(count, 2, 3, requires_grad=True),
        reordered,
        torch.zeros(count),
        torch.zeros(count, 0),
        torch.zeros(count, 5),
    ]


@pytest.mark.parametrize("count", [1, 3])
def test_rows_are_loaded_and_stored(count: int) -> None:
    state = tensors(count)
    slots, rows = RowSlots(state), torch.randn(count, 60)
    slots.load(rows)
    joined = torch.cat([t.detach().reshape(count, -1) for t in state], dim=1)
    assert torch.equal(joined, rows)
    wider = torch.zeros(count + 1, 70)
    slots.store(wider[:count, 5:65])
    assert torch.equal(wider[:count, 5:65], rows)
    assert wider.count_nonzero() == rows.count_nonzero()


def test_one_row_is_loaded_for_all() -> None:
    state, row = tensors(3), torch.randn(60)
    RowSlots(state).load(row.expand(3, -1))
    assert torch.equal(state[0][2], row[:6].view(2, 3))


def test_no_tensors_are_no_columns() -> None:
    slots, rows = RowSlots([]), torch.empty(2, 0)
    slots.load(rows)
    slots.store(rows)
