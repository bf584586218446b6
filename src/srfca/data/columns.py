"""Files of named arrays: npz, and parquet."""

from __future__ import annotations

import struct
from collections.abc import Callable
from importlib import import_module
from os import SEEK_END
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from srfca.errors import InputError

Columns = dict[str, NDArray[Any]]
NAMES = ("x", "y", "client", "split", "cluster")
"""What has a meaning even as the index of a data frame, which else is not read."""
_END_AT_MOST = 22 + 2**16
"""Bytes of the record that a zip file ends with, and of the comment in it."""


def read(path: Path) -> Columns:
    """All arrays of an .npz file, or all columns of a .parquet file, by name and in order."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: must be a {' or '.join(READERS)} file, or a folder of these")
    try:
        return reader(path)
    except InputError:
        raise
    except Exception as error:  # a damaged file can fail in many ways
        why = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{path}: cannot be read as {path.suffix}: {why}") from error


def _npz(path: Path) -> Columns:
    with path.open("rb") as file, ZipFile(file) as archive:
        names = archive.namelist()
        told = _announced(file)
        if len(names) != told:
            raise ValueError(f"its end speaks of {told} arrays, but {len(names)} are listed")
        return {name.removesuffix(".npy"): _array(archive, name) for name in names}


def _announced(file: BinaryIO) -> int:
    """How many members a zip file says at its end that it has: a damaged list may hide some."""
    file.seek(max(file.seek(0, SEEK_END) - _END_AT_MOST, 0))
    end = file.read()
    (count,) = struct.unpack_from("<H", end, end.rfind(b"PK\5\6") + 10)
    return int(count)


def _array(archive: ZipFile, name: str) -> NDArray[Any]:
    """One array, read to its end, since only there its checksum is compared."""
    with archive.open(name) as member:
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):
            raise ValueError(f"{name} is longer than it says")
    return array


def _parquet(path: Path) -> Columns:
    arrow = _pyarrow(path)
    from pyarrow import parquet

    with path.open("rb") as file:
        table = parquet.ParquetFile(file, page_checksum_verification=True).read()
    about = table.schema.pandas_metadata or {}
    index = [name for name in about.get("index_columns", []) if isinstance(name, str)]
    return {
        name: _values(arrow, path, name, table.column(name))
        for name in table.column_names
        if name in NAMES or not (name in index or name.startswith("__index_level_"))
    }


def _values(arrow: ModuleType, path: Path, name: str, chunks: Any) -> NDArray[Any]:
    """A column of n cells as ``[n]``, or ``[n, ...]`` where its cells are lists of one shape."""
    import pyarrow.compute

    column = chunks.combine_chunks()
    types, shape = arrow.types, [len(column)]
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    while column.null_count == 0 and any(is_list(column.type) for is_list in lists):
        lengths = np.unique(pyarrow.compute.list_value_length(column).to_numpy())
        if len(lengths) > 1:
            raise InputError(
                f"{path}: column {name} has lists of {lengths[0]} to {lengths[-1]} entries, "
                "but they must all be of one length"
            )
        shape.append(int(lengths[0]) if len(lengths) else 0)
        column = column.flatten()
    if column.null_count:
        raise InputError(f"{path}: column {name} has {column.null_count} empty cells (null)")
    values = column.to_numpy(zero_copy_only=False)
    if types.is_string(column.type) or types.is_large_string(column.type):
        values = values.astype(np.str_)
    reshaped: NDArray[Any] = values.reshape(shape)
    return reshaped


def _pyarrow(path: Path) -> ModuleType:
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise InputError(
            f"{path}: reading it needs pyarrow: install it with pip install 'srfca[parquet]'"
        ) from error


READERS: dict[str, Callable[[Path], Columns]] = {".npz": _npz, ".parquet": _parquet}
