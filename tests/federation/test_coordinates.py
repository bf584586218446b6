from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import InputError
from srfca.federation import Coordinates

LENGTH = 12


@st.composite
def coordinates(draw: st.DrawFn) -> Coordinates:
    bounds = sorted(draw(st.sets(st.integers(0, LENGTH), max_size=6)))
    bounds = bounds[: len(bounds) // 2 * 2]
    return Coordinates(tuple(zip(bounds[::2], bounds[1::2], strict=True)))


@given(coordinates())
def test_take_and_put_are_those_of_a_mask(chosen: Coordinates) -> None:
    rows = torch.arange(3.0 * LENGTH).view(3, LENGTH)
    mask = chosen.mask(LENGTH)
    assert len(chosen) == int(mask.sum())
    assert torch.equal(chosen.take(rows), rows[:, mask])
    before = rows.clone()
    put = chosen.put(rows, -chosen.take(rows))
    assert torch.equal(rows, before), "the rows are not changed in place"
    assert torch.equal(put, torch.where(mask, -rows, rows))
    rest = chosen.complement(LENGTH)
    assert torch.equal(rest.mask(LENGTH), ~mask)
    assert len(chosen) + len(rest) == LENGTH


def test_coordinates_of_layers_are_in_the_order_of_the_row() -> None:
    layers = {"a": slice(0, 3), "b": slice(3, 5), "c": slice(7, 9)}
    assert Coordinates.of_layers(layers, ["c", "a"]).ranges == ((0, 3), (7, 9))
    with pytest.raises(InputError, match="unknown layer 'd'"):
        Coordinates.of_layers(layers, ["d"])


@pytest.mark.parametrize("ranges", [((3, 3),), ((4, 2),), ((2, 5), (4, 6)), ((-1, 2),)])
def test_ranges_must_ascend(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InputError, match="ascending, non-empty ranges"):
        Coordinates(ranges)
