"""Tensors in Flower's records: raw numbers, checked for type and shape before they are read."""

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
"""Serialization of arrays: their numbers one after another, little-endian. Nothing is pickled."""
VALUES, ARRAYS, ROWS = "values", "arrays", "rows"
"""The records of a message: plain values, the arrays of a reply, and rows by name."""

Value = str | int | float | bool | list[str] | list[int] | list[float]
Shape = tuple[int, ...]
_DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64"}
_TORCH = {name: dtype for dtype, name in _DTYPES.items()}
_NUMPY = {"float32": "<f4", "float64": "<f8", "int64": "<i8"}


class InvalidMessageError(ValueError):
    """A message whose content is not what the receiver expects."""


def pack(tensor: Tensor) -> Array:
    """Return a tensor as an array of raw numbers.

    Raises:
        InputError: If its dtype is not float32, float64 or int64.
    """
    require(
        tensor.dtype in _DTYPES, f"{tensor.dtype} cannot be sent: use float32, float64 or int64"
    )
    name = _DTYPES[tensor.dtype]
    data = tensor.detach().cpu().contiguous().numpy().astype(_NUMPY[name], copy=False).tobytes()
    return Array(dtype=name, shape=tuple(tensor.shape), stype=RAW, data=data)


def unpack(array: Array, shape: Shape | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Return the tensor in an array.

    Args:
        array: The array.
        shape: The shape that it must have; None allows any.
        dtype: The dtype that it must have; None allows float32, float64 and int64.

    Raises:
        InvalidMessageError: If the array is not as expected.

    >>> unpack(pack(torch.ones(2, 1)), (2, 1), torch.float32).tolist()
    [[1.0], [1.0]]
    >>> unpack(pack(torch.ones(2, 1)), (3,), torch.float32)
    Traceback (most recent call last):
    srfca.flower.records.InvalidMessageError: array has shape (2, 1), expected (3,)
    """
    expected = " or ".join(_TORCH) if dtype is None else _DTYPES[dtype]
    if array.stype != RAW:
        raise InvalidMessageError(f"array is serialized as {array.stype!r}, expected {RAW!r}")
    if array.dtype not in _TORCH or (dtype is not None and array.dtype != expected):
        raise InvalidMessageError(f"array has dtype {array.dtype}, expected {expected}")
    stated = tuple(array.shape)
    if shape is not None and stated != shape:
        raise InvalidMessageError(f"array has shape {stated}, expected {shape}")
    size = prod(stated) * _TORCH[array.dtype].itemsize
    if len(array.data) != size:
        raise InvalidMessageError(f"array has {len(array.data)} bytes, expected {size}")
    numbers = np.frombuffer(array.data, dtype=_NUMPY[array.dtype]).reshape(stated)
    return torch.from_numpy(numbers.astype(numbers.dtype.newbyteorder("=")))


def row_name(row: Array) -> str:
    """Return the name of a row: a hash of its type, shape and numbers."""
    digest = blake2b(f"{row.dtype} {tuple(row.shape)} ".encode(), digest_size=16)
    digest.update(row.data)
    return digest.hexdigest()


def make_content(
    values: Mapping[str, Value],
    arrays: Mapping[str, Array] | None = None,
    rows: Mapping[str, Array] | None = None,
) -> RecordDict:
    """Return the content of a message.

    Args:
        values: Plain values.
        arrays: The arrays of a reply.
        rows: Rows by name.
    """
    records = RecordDict({VALUES: ConfigRecord(dict(values))})
    for kind, entries in ((ARRAYS, arrays), (ROWS, rows)):
        if entries:
            records[kind] = ArrayRecord(dict(entries))
    return records


def values_of(records: RecordDict) -> ConfigRecord:
    """Return the plain values of a message.

    Raises:
        InvalidMessageError: If it has none.
    """
    values = records.config_records.get(VALUES)
    if values is None:
        raise InvalidMessageError("message has no values")
    return values


def arrays_of(records: RecordDict, kind: str = ARRAYS) -> Mapping[str, Array]:
    """Return the arrays, or the rows, of a message by name; it may have none."""
    return records.array_records.get(kind) or {}


def size_of(records: RecordDict) -> int:
    """Return the bytes of a message's numbers and texts, without what Flower adds."""
    arrays = sum(
        len(name) + len(array.data)
        for record in records.array_records.values()
        for name, array in record.items()
    )
    values = [item for record in records.config_records.values() for item in record.items()]
    metrics = [item for record in records.metric_records.values() for item in record.items()]
    return arrays + sum(len(name) + _length(value) for name, value in (*values, *metrics))


def _length(value: object) -> int:
    if isinstance(value, list):
        return sum(map(_length, value))
    return len(value) if isinstance(value, str | bytes) else 8
