"""Messages between the driver and its workers: any object, with its tensors as plain buffers.

Ray moves the buffers without pickling them, and a view of a large tensor travels as what it shows.
Rows that repeat, such as the models of clients that share a few, travel once.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.cloudpickle import CloudPickler
from torch import Tensor

_MIN_NUMBERS = 1024
"""Numbers of a tensor that make it worth looking for rows that repeat."""
_COMPARED = 64
"""Coordinates that rows are compared by at first."""
_BLOCK = 2**22
"""Numbers that are compared at once."""

Buffer = NDArray[np.uint8]


@dataclass(frozen=True)
class Message:
    """A packed object.

    Args:
        body: The object without the content of its tensors and arrays.
        buffers: That content.
        name: Of an object that many get; different objects have different names.
    """

    body: bytes
    buffers: tuple[Buffer, ...]
    name: str = ""

    @property
    def num_bytes(self) -> int:
        """The size of the message."""
        return len(self.body) + sum(buffer.nbytes for buffer in self.buffers)


def pack(value: Any, name: str = "") -> Message:
    """Return an object as a message.

    Args:
        value: The object.
        name: If many get it.

    >>> message = pack({"models": torch.ones(3).expand(500, 3)})
    >>> message.num_bytes < 500, unpack(message)["models"].shape
    (True, torch.Size([500, 3]))
    """
    stream, buffers = io.BytesIO(), list[Buffer]()

    def keep(buffer: pickle.PickleBuffer) -> None:
        buffers.append(np.frombuffer(buffer.raw(), dtype=np.uint8))

    make_pickler: Any = _Pickler
    make_pickler(stream, protocol=5, buffer_callback=keep).dump(value)
    return Message(stream.getvalue(), tuple(buffers), name)


def unpack(message: Message) -> Any:
    """Return the object of a message. Its tensors are copies that may be changed."""
    return pickle.loads(message.body, buffers=[buffer.copy() for buffer in message.buffers])


class _Pickler(CloudPickler):
    """A pickler that takes tensors apart."""

    def reducer_override(self, value: Any) -> Any:
        """Return how a value is pickled."""
        if type(value) is not Tensor or value.layout is not torch.strided:
            override: Any = super().reducer_override
            return override(value)
        value = value.detach().cpu()
        repeated = repeated_rows(value)
        if repeated is not None:
            rows, index = repeated
            return (_repeat, (rows, len(index))) if len(rows) == 1 else (_take, repeated)
        content = value.contiguous().reshape(-1).view(torch.uint8).numpy()
        return _tensor, (content, value.dtype, tuple(value.shape))


def _tensor(content: Buffer, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(content).view(dtype).view(shape)


def _repeat(row: Tensor, count: int) -> Tensor:
    return row.expand(count, -1)


def _take(rows: Tensor, index: NDArray[np.int32]) -> Tensor:
    return rows[torch.from_numpy(index)]


def repeated_rows(rows: Tensor) -> tuple[Tensor, NDArray[np.int32]] | None:
    """Return the different ones of rows ``[n, P]``, and which one each row is: ``[n]``.

    Returns:
        None if less than half of the rows are repetitions, or it is not worth looking.

    >>> repeated_rows(torch.arange(2000.0).view(500, 4)) is None
    True
    >>> different, index = repeated_rows(torch.eye(2).repeat(300, 2))
    >>> different.shape, index[:4].tolist()
    (torch.Size([2, 4]), [1, 0, 1, 0])
    """
    if rows.ndim != 2 or rows.numel() < _MIN_NUMBERS or len(rows) < 2:
        return None
    if rows.stride(0) == 0:
        return rows[:1].clone(), np.zeros(len(rows), dtype=np.int32)
    stride = -(-rows.shape[1] // _COMPARED)
    sample = rows[:, ::stride].contiguous().view(torch.uint8).numpy()
    keys = sample.view(np.dtype((np.void, sample.shape[1]))).ravel()
    _, first, index = np.unique(keys, return_index=True, return_inverse=True)
    if 2 * len(first) > len(rows):
        return None
    different, places = rows[torch.from_numpy(first)], torch.from_numpy(index)
    for block in torch.arange(len(rows)).split(max(1, _BLOCK // rows.shape[1])):
        span = slice(int(block[0]), int(block[-1]) + 1)
        if not _same_bits(rows[span], different[places[span]]):
            return None
    return different, index.astype(np.int32)


def _same_bits(first: Tensor, second: Tensor) -> bool:
    return torch.equal(first.contiguous().view(torch.uint8), second.view(torch.uint8))
