"""Load CIFAR-10 from its Python batches, without trusting the pickles, or its binary batches."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from srfca.data.loaders.cache import cached, data_folder
from srfca.data.loaders.images import Images
from srfca.data.loaders.publication import (
    Download,
    ExpectedFiles,
    Publication,
    register_publication,
)
from srfca.errors import InputError, require

_HASHES = {
    "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
    "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
    "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "md5:40351d587109b95175f43aff81a1287e",
}
_BATCHES = tuple(_HASHES)
_PIXELS = 3 * 32 * 32
_RECORDS = 10_000
"""Number of images in a binary batch."""
_ADVICE = "the file is damaged or another one: get it again with 'srfca data get cifar10'"


def load(folder: Path | str | None = None) -> Images:
    """Load all images ``[n, 3, 32, 32]``, red, green and blue, with their classes.

    Args:
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.

    Raises:
        InputError: If a file is missing or damaged; the message names it.
    """
    folder = data_folder(folder)
    paths = find(folder)
    return Images(**cached(folder, "cifar10", paths, lambda: _parse(paths)))


def find(folder: Path) -> list[Path]:
    """Return the five training batches and the test batch, all Python or all binary.

    Raises:
        InputError: If a batch is missing.
    """
    paths = expected_paths(folder)
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise PUBLICATION.missing_files_error(missing, folder)
    return paths


def expected_paths(folder: Path) -> list[Path]:
    """Return where the six batches are, or should be."""
    python, binary = PUBLICATION.search_folders(folder)
    layouts = [[python / name for name in _BATCHES], [binary / f"{name}.bin" for name in _BATCHES]]
    return min(layouts, key=lambda paths: sum(not path.is_file() for path in paths))


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read the images ``[n, 3, 32, 32]`` and classes ``[n]`` of a batch.

    Raises:
        InputError: If the batch is damaged or not one of CIFAR-10's.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; {_ADVICE}") from error
    parse = parse_binary_batch if path.suffix == ".bin" else parse_python_batch
    x, y = parse(path, content)
    require(int(y.min()) >= 0 and int(y.max()) <= 9, f"{path}: a class is not in 0 to 9; {_ADVICE}")
    return x.reshape(-1, 3, 32, 32), y


def parse_binary_batch(path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Parse a binary batch: for each image a byte with its class, then its 3,072 pixels.

    Args:
        path: The file, for error messages.
        content: Its bytes.

    Returns:
        Pixels ``[10000, 3072]`` and classes ``[10000]``.

    Raises:
        InputError: If it has another length.
    """
    length = _RECORDS * (1 + _PIXELS)
    require(
        len(content) == length,
        f"{path}: has {len(content)} bytes, but must have {length}; {_ADVICE}",
    )
    records = np.frombuffer(content, np.uint8).reshape(_RECORDS, 1 + _PIXELS)
    return records[:, 1:], records[:, 0].astype(np.int64)


def parse_python_batch(path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Parse a Python batch: a pickled dictionary with ``data`` and ``labels``.

    Args:
        path: The file, for error messages.
        content: Its bytes.

    Returns:
        Pixels ``[n, 3072]`` and classes ``[n]``.

    Raises:
        InputError: If the pickle is damaged, or holds anything else.
    """
    try:
        batch = restricted_load(content)
    except Exception as error:  # a damaged pickle can raise anything
        reason = str(error) or type(error).__name__
        raise InputError(f"{path}: is not a batch of CIFAR-10: {reason}; {_ADVICE}") from error
    require(isinstance(batch, dict), f"{path}: does not hold a dictionary; {_ADVICE}")
    data, labels = (batch.get(key.encode(), batch.get(key)) for key in ("data", "labels"))
    x = data.array if isinstance(data, _Array) else None
    require(
        x is not None and x.ndim == 2 and x.shape[1] == _PIXELS and len(x) > 0,
        f"{path}: 'data' is not an array of rows of {_PIXELS} bytes; {_ADVICE}",
    )
    assert x is not None
    require(
        isinstance(labels, list)
        and len(labels) == len(x)
        and all(type(label) is int and 0 <= label <= 9 for label in labels),
        f"{path}: 'labels' is not a list of {len(x)} numbers from 0 to 9; {_ADVICE}",
    )
    return x, np.array(labels, np.int64)


def restricted_load(content: bytes) -> Any:
    """Unpickle plain containers, strings, numbers and arrays of bytes, and nothing else.

    No class or function that a pickle names is ever imported: the few names that numpy's pickles
    need are replaced by the stand-ins below, which hold checked bytes.

    Args:
        content: The pickle.

    Returns:
        The unpickled object; arrays are objects with an attribute ``array``.

    Raises:
        pickle.UnpicklingError: If the pickle holds anything else.
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
    """An unpickler that knows the stand-ins only."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}") from None


class _Dtype:
    """Stand-in for ``numpy.dtype``; accepts unsigned bytes only."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        if code not in (b"u1", "u1", b"|u1", "|u1"):
            raise pickle.UnpicklingError(f"the pickle has an array of type {code!r}")

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and alignment, which bytes do not have."""


class _Array:
    """Stand-in for an array of bytes."""

    array: NDArray[np.uint8] | None = None

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _, shape, dtype, column_major, content = state
        if not (isinstance(dtype, _Dtype) and isinstance(content, bytes | bytearray)):
            raise pickle.UnpicklingError("the pickle has an array that is not of bytes")
        self.array = _reshape(content, shape, "F" if column_major else "C")


def _reshape(
    content: bytes | bytearray, shape: object, order: Literal["C", "F"]
) -> NDArray[np.uint8]:
    """Return bytes as an array of a shape that a pickle names."""
    if not (isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)):
        raise pickle.UnpicklingError("the pickle has an array without a shape")
    flat = np.frombuffer(content, np.uint8)
    return flat.reshape(shape, order=order)


def _reconstruct(*_: object) -> _Array:
    """Stand-in for numpy's ``_reconstruct``, which makes an empty array."""
    return _Array()


def _from_buffer(content: object, dtype: object, shape: object, order: object) -> _Array:
    """Stand-in for numpy's ``_frombuffer``, which newer protocols use."""
    array = _Array()
    array.__setstate__((1, shape, dtype, order in ("F", b"F"), content))
    return array


def _encode(text: object, encoding: object) -> bytes:
    """Stand-in for ``_codecs.encode``, which old protocols use for bytes."""
    if not (isinstance(text, str) and encoding in ("latin1", b"latin1")):
        raise pickle.UnpicklingError("the pickle has bytes in an encoding other than latin1")
    return text.encode("latin1")


def _refuse_call(*_: object) -> None:
    """Stand-in for ``numpy.ndarray``, which is only passed as an argument."""
    raise pickle.UnpicklingError("the pickle makes an array without content")


class _StandIn:
    """A function that a pickle can call but not modify."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call

    def __call__(self, *arguments: object) -> object:
        return self._call(*arguments)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("the pickle modifies a function")


_STAND_INS = {
    ("numpy", "ndarray"): _StandIn(_refuse_call),
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
    """Read the five training batches and the test batch."""
    batches = [read_batch(path) for path in paths]
    x, y = ([batch[i] for batch in batches[:-1]] for i in range(2))
    return {
        "train_x": np.concatenate(x),
        "train_y": np.concatenate(y),
        "test_x": batches[-1][0],
        "test_y": batches[-1][1],
    }


def _expected_files(folder: Path) -> ExpectedFiles:
    """Yield the six batches with their reader."""
    for path in expected_paths(folder):
        yield path, read_batch


PUBLICATION = register_publication(
    Publication(
        name="cifar10",
        title="CIFAR-10",
        subfolders=("cifar-10-batches-py", "cifar-10-batches-bin"),
        files=_BATCHES,
        source="https://www.cs.toronto.edu/~kriz/cifar.html",
        expected_files=_expected_files,
        downloads=(
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                "cifar-10-python.tar.gz",
                "md5:c58f30108f718f92721af3b95e74349a",
                unpack=True,
            ),
        ),
        hashes=_HASHES,
    )
)
