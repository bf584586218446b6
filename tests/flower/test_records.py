"""Arrays in messages: raw numbers that come back as they were sent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flwr.app import Array, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from srfca import InputError
from srfca.flower.records import (
    RAW,
    InvalidMessageError,
    make_content,
    pack,
    row_name,
    size_of,
    unpack,
    values_of,
)


@given(
    hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=5), elements=st.floats(width=32))
)
def test_arrays_come_back_as_they_were_sent(numbers: np.ndarray) -> None:
    tensor = torch.from_numpy(numbers)
    packed = pack(tensor)
    back = unpack(packed, tuple(tensor.shape), torch.float32)
    assert pack(back).data == packed.data
    assert pack(unpack(packed)).data == packed.data
    assert row_name(pack(back)) == row_name(packed)
    with pytest.raises(InvalidMessageError):
        unpack(packed, (*tensor.shape, 1), torch.float32)
    with pytest.raises(InvalidMessageError):
        unpack(packed, tuple(tensor.shape), torch.float64)
    size = size_of(make_content({"text": "four", "numbers": [1.0, 2.0]}, {"x": packed}))
    assert size == len("text") + 4 + len("numbers") + 16 + len("x") + tensor.numel() * 4


def test_rows_of_another_type_or_shape_have_another_name() -> None:
    rows = [torch.zeros(8), torch.zeros(4).double(), torch.zeros(4).long(), torch.zeros(2, 4)]
    assert len({row_name(pack(row)) for row in rows}) == len(rows)


def test_what_an_array_states_is_checked() -> None:
    with pytest.raises(InvalidMessageError, match="dtype float16, expected float32 or float64"):
        unpack(Array("float16", (2,), RAW, b"1234"))
    with pytest.raises(InvalidMessageError, match="4 bytes, expected 8"):
        unpack(Array("float32", (2,), RAW, b"1234"))
    with pytest.raises(InvalidMessageError, match="message has no values"):
        values_of(RecordDict())
    with pytest.raises(InputError, match=r"torch\.bfloat16 cannot be sent"):
        pack(torch.zeros(2, dtype=torch.bfloat16))
