"""Tensors in Flower's records: raw numbers, whose shape and type are known before they are read."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from math import prod

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from srfca.errors import require

RAW = "srfca.raw"
"""How arrays are written: their numbers one after another, little-endian. Nothing is pickled."""
VALUES, ARRAYS, ROWS = "values", "arrays", "rows"
"""The records of a message: what is asked or answered, figures, and models by their names."""

Value = str | int | float | bool | list[str] | list[int] | list[float]
_DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64"}
_NUMPY = {"float32": "<f4", "float64": "<f8", "int64": "<i8"}


class NonsenseError(ValueError):
    """A message that is not what was asked for; says why."""


def pack(tensor: Tensor) -> Array:
    """A tensor as an array of raw numbers."""
    require(tensor.dtype in _DTYPES, f"{tensor.dtype} cannot be sent: use float32 or float64")
    name = _DTYPES[tensor.dtype]
    data = tensor.detach().cpu().contiguous().numpy().astype(_NUMPY[name], copy=False).tobytes()
    return Array(dtype=name, shape=tuple(tensor.shape), stype=RAW, data=data)


def unpack(array: Array, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The tensor in an array, which must be of this shape and type.

    >>> unpack(pack(torch.ones(2, 1)), (2, 1), torch.float32).tolist()
    [[1.0], [1.0]]
    >>> unpack(pack(torch.ones(2, 1)), (3,), torch.float32)
    Traceback (most recent call last):
    srfca.flower.records.NonsenseError: an array of shape (2, 1), where (3,) is due
    """
    name = _DTYPES[dtype]
    if array.stype != RAW:
        raise NonsenseError(f"an array written as {array.stype!r}, where {RAW!r} is due")
    if array.dtype != name:
        raise NonsenseError(f"an array of {array.dtype}, where {name} is due")
    if tuple(array.shape) != shape:
        raise NonsenseError(f"an array of shape {tuple(array.shape)}, where {shape} is due")
    size = prod(shape) * dtype.itemsize
    if len(array.data) != size:
        raise NonsenseError(f"an array of {len(array.data)} bytes, where {size} are due")
    numbers = np.frombuffer(array.data, dtype=_NUMPY[name]).reshape(shape)
    return torch.from_numpy(numbers.astype(numbers.dtype.newbyteorder("=")))


def name_of(row: Array) -> str:
    """A model's name: a hash of its numbers, the same for server and client."""
    return blake2b(row.data, digest_size=16).hexdigest()


def content(
    values: Mapping[str, Value],
    arrays: Mapping[str, Array] | None = None,
    rows: Mapping[str, Array] | None = None,
) -> RecordDict:
    """What a message holds."""
    records = RecordDict({VALUES: ConfigRecord(dict(values))})
    for kind, some in ((ARRAYS, arrays), (ROWS, rows)):
        if some:
            records[kind] = ArrayRecord(dict(some))
    return records


def values_of(records: RecordDict) -> ConfigRecord:
    """What is asked or answered."""
    found = records.config_records.get(VALUES)
    if found is None:
        raise NonsenseError("a message without values")
    return found


def arrays_of(records: RecordDict, kind: str = ARRAYS) -> Mapping[str, Array]:
    """The arrays of a message, none if it has none."""
    return records.array_records.get(kind) or {}


def size_of(records: RecordDict) -> int:
    """Bytes of a message's numbers and texts, without what Flower adds."""
    arrays = sum(
        len(name) + len(array.data)
        for record in records.array_records.values()
        for name, array in record.items()
    )
    values = (item for record in records.config_records.values() for item in record.items())
    return arrays + sum(len(name) + _length(value) for name, value in values)


def _length(value: object) -> int:
    if isinstance(value, list):
        return sum(map(_length, value))
    return len(value) if isinstance(value, str | bytes) else 8
