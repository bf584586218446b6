"""CIFAR-10: the python batches, read without trusting the pickles, or the binary ones."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.loaders import registry
from srfca.data.loaders.images import Images
from srfca.data.loaders.store import cached, data_folder
from srfca.errors import InputError, require

_BATCHES = tuple(registry.DATA_SETS["cifar10"].files)
_PIXELS = 3 * 32 * 32
_AGAIN = "the file is damaged or another one: get it again with 'srfca data get cifar10'"


def load(folder: Path | str | None = None) -> Images:
    """All images ``[N, 3, 32, 32]``, red, green and blue from 0 to 255, with their classes."""
    folder = data_folder(folder)
    paths = find(folder)
    return Images(**cached(folder, "cifar10", paths, lambda: _parse(paths)))


def find(folder: Path) -> list[Path]:
    """The five training batches and the test batch, all python or all binary."""
    paths = located(folder)
    absent = [path.name for path in paths if not path.is_file()]
    if absent:
        raise registry.missing(registry.data_set("cifar10"), absent, folder)
    return paths


def located(folder: Path) -> list[Path]:
    """Where the six batches are, or where they should be."""
    python, binary = registry.data_set("cifar10").searched(folder)
    layouts = [[python / name for name in _BATCHES], [binary / f"{name}.bin" for name in _BATCHES]]
    return min(layouts, key=lambda paths: sum(not path.is_file() for path in paths))


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images ``[n, 3, 32, 32]`` and classes ``[n]`` of a batch."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; {_AGAIN}") from error
    x, y = binary_batch(path, content) if path.suffix == ".bin" else python_batch(path, content)
    require(int(y.min()) >= 0 and int(y.max()) <= 9, f"{path}: a class is not in 0 to 9; {_AGAIN}")
    return x.reshape(-1, 3, 32, 32), y


def binary_batch(
    path: Path, content: bytes, records: int = 10_000
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """A binary batch: for each image a byte with its class, then its 3,072 pixels."""
    wanted = records * (1 + _PIXELS)
    require(
        len(content) == wanted,
        f"{path}: has {len(content)} bytes, but must have {wanted}; {_AGAIN}",
    )
    rows = np.frombuffer(content, np.uint8).reshape(records, 1 + _PIXELS)
    return rows[:, 1:], rows[:, 0].astype(np.int64)


def python_batch(path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """A python batch: a pickled dictionary with ``data`` ``[n, 3072]`` and ``labels``."""
    try:
        batch = restricted_load(content)
    except Exception as error:  # a damaged pickle can fail in any way that a program can
        why = str(error) or type(error).__name__
        raise InputError(f"{path}: is not a batch of CIFAR-10: {why}; {_AGAIN}") from error
    require(isinstance(batch, dict), f"{path}: does not hold a dictionary; {_AGAIN}")
    data, labels = (batch.get(key.encode(), batch.get(key)) for key in ("data", "labels"))
    x = data.array if isinstance(data, _Array) else None
    require(
        x is not None and x.ndim == 2 and x.shape[1] == _PIXELS and len(x) > 0,
        f"{path}: 'data' is not an array of rows of {_PIXELS} bytes; {_AGAIN}",
    )
    assert x is not None
    require(
        isinstance(labels, list)
        and len(labels) == len(x)
        and all(type(label) is int and 0 <= label <= 9 for label in labels),
        f"{path}: 'labels' is not a list of {len(x)} numbers from 0 to 9; {_AGAIN}",
    )
    return x, np.array(labels, np.int64)


def restricted_load(content: bytes) -> Any:
    """Unpickle plain containers, strings, numbers and arrays of bytes, and nothing else.

    No class or function that a pickle names is ever looked up: the few names that numpy's own
    pickles need stand for the small things below, which hold checked bytes. Arrays come out as
    objects with an ``array``.
    """
    puts = 0
    for operation, argument, _ in pickletools.genops(content):
        if operation.name not in _OPERATIONS:
            raise pickle.UnpicklingError(f"the pickle has the operation {operation.name}")
        if operation.name in ("BINPUT", "LONG_BINPUT"):
            puts += 1
            if int(argument or 0) > 2 * puts + 256:
                raise pickle.UnpicklingError("the pickle's memo is not in order")
    return _Restricted(io.BytesIO(content), encoding="bytes").load()


_OPERATIONS = frozenset(
    operation
    for operations in (
        "PROTO FRAME STOP MARK EMPTY_DICT EMPTY_LIST EMPTY_TUPLE DICT LIST TUPLE",
        "TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS",
        "BININT BININT1 BININT2 LONG1 NONE NEWTRUE NEWFALSE",
        "BINSTRING SHORT_BINSTRING BINUNICODE SHORT_BINUNICODE",
        "BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8",
        "BINPUT LONG_BINPUT BINGET LONG_BINGET MEMOIZE",
        "GLOBAL STACK_GLOBAL REDUCE BUILD",
    )
    for operation in operations.split()
)


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}") from None


class _Dtype:
    """Stands for ``numpy.dtype``: unsigned bytes alone."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        if code not in (b"u1", "u1", b"|u1", "|u1"):
            raise pickle.UnpicklingError(f"the pickle has an array of type {code!r}")

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment mean nothing for bytes."""


class _Array:
    """Stands for an array of bytes, in row order."""

    array: NDArray[np.uint8] | None = None

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _, shape, dtype, by_column, content = state
        if not (isinstance(dtype, _Dtype) and isinstance(content, bytes | bytearray)):
            raise pickle.UnpicklingError("the pickle has an array that is not of bytes")
        self.array = _shaped(content, shape, "F" if by_column else "C")


def _shaped(content: bytes | bytearray, shape: object, order: str) -> NDArray[np.uint8]:
    if not (isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)):
        raise pickle.UnpicklingError("the pickle has an array without a shape")
    flat = np.frombuffer(content, np.uint8)
    return flat.reshape(shape, order="F") if order == "F" else flat.reshape(shape)


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(content: object, dtype: object, shape: object, order: object) -> _Array:
    array = _Array()
    array.__setstate__((1, shape, dtype, order in ("F", b"F"), content))
    return array


def _encode(text: object, encoding: object) -> bytes:
    """Stands for ``_codecs.encode``, with which old protocols write bytes."""
    if not (isinstance(text, str) and encoding in ("latin1", b"latin1")):
        raise pickle.UnpicklingError("the pickle has bytes in another encoding than latin1")
    return text.encode("latin1")


def _uncalled(*_: object) -> None:
    """Stands for ``numpy.ndarray``, which is only ever an argument."""
    raise pickle.UnpicklingError("the pickle makes an array without content")


class _StandIn:
    """Something that a pickle can call but not change."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call

    def __call__(self, *arguments: object) -> object:
        return self._call(*arguments)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("the pickle changes what it may only call")


_STAND_INS = {
    ("numpy", "ndarray"): _StandIn(_uncalled),
    ("numpy", "dtype"): _StandIn(_Dtype),
    ("_codecs", "encode"): _StandIn(_encode),
} | {
    (f"numpy.{core}.{module}", name): _StandIn(call)
    for core in ("core", "_core")
    for module, name, call in (
        ("multiarray", "_reconstruct", _reconstruct),
        ("numeric", "_frombuffer", _from_buffer),
    )
}


def _parse(paths: list[Path]) -> dict[str, NDArray[Any]]:
    batches = [read_batch(path) for path in paths]
    x, y = ([batch[i] for batch in batches[:-1]] for i in range(2))
    return {
        "train_x": np.concatenate(x),
        "train_y": np.concatenate(y),
        "test_x": batches[-1][0],
        "test_y": batches[-1][1],
    }
