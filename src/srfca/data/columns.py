"""Read files of named arrays: .npz and .parquet."""

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
"""Arrays by name, in the order of the file."""
COLUMN_NAMES = ("x", "y", "client", "split", "cluster")
"""Columns with a meaning. They are read even if they are the index of a data frame."""
_MAX_ZIP_TRAILER = 22 + 2**16
"""Maximum bytes of a zip file's end record, with its comment."""


def read_columns(path: Path) -> Columns:
    """Read all arrays of an .npz file, or all columns of a .parquet file.

    Args:
        path: The file; its suffix tells its format. Pickled arrays are never read.

    Returns:
        Arrays by name. A parquet column of lists of equal lengths is an array ``[n, ...]``.

    Raises:
        InputError: If the suffix is unknown, the file is damaged, a parquet column has empty cells
            or lists of different lengths, or pyarrow is not installed. The message names the file.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/a.npz", x=np.ones(2), y=np.zeros(2))
        ...     list(read_columns(Path(folder, "a.npz")))
        ['x', 'y']
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: must be a {' or '.join(READERS)} file, or a folder of these")
    try:
        return reader(path)
    except InputError:
        raise
    except Exception as error:  # a damaged file can fail in many ways
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{path}: cannot be read as {path.suffix}: {reason}") from error


def _read_npz(path: Path) -> Columns:
    """Read all arrays of an .npz file."""
    with path.open("rb") as file, ZipFile(file) as archive:
        names = archive.namelist()
        count = _declared_members(file)
        if len(names) != count:
            raise ValueError(f"its end record counts {count} arrays, but {len(names)} are listed")
        return {name.removesuffix(".npy"): _read_array(archive, name) for name in names}


def _declared_members(file: BinaryIO) -> int:
    """Return how many members a zip file's end record counts: a damaged directory can hide some."""
    file.seek(max(file.seek(0, SEEK_END) - _MAX_ZIP_TRAILER, 0))
    trailer = file.read()
    (count,) = struct.unpack_from("<H", trailer, trailer.rfind(b"PK\5\6") + 10)
    return int(count)


def _read_array(archive: ZipFile, name: str) -> NDArray[Any]:
    """Read one array up to its end, where its checksum is verified."""
    with archive.open(name) as member:
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):
            raise ValueError(f"{name} is longer than its header says")
    return array


def _read_parquet(path: Path) -> Columns:
    """Read all columns of a .parquet file, except for a data frame's index."""
    arrow = _import_pyarrow(path)
    from pyarrow import parquet

    with path.open("rb") as file:
        table = parquet.ParquetFile(file, page_checksum_verification=True).read()
    metadata = table.schema.pandas_metadata or {}
    index = [name for name in metadata.get("index_columns", []) if isinstance(name, str)]
    return {
        name: _column_to_array(arrow, path, name, table.column(name))
        for name in table.column_names
        if name in COLUMN_NAMES or not (name in index or name.startswith("__index_level_"))
    }


def _column_to_array(arrow: ModuleType, path: Path, name: str, chunks: Any) -> NDArray[Any]:
    """Return a column of n cells as ``[n]``, or ``[n, ...]`` if its cells are lists."""
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
                "but they must all have the same length"
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


def _import_pyarrow(path: Path) -> ModuleType:
    """Import pyarrow, or say how to install it."""
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise InputError(
            f"{path}: reading it needs pyarrow: install it with pip install 'srfca[parquet]'"
        ) from error


READERS: dict[str, Callable[[Path], Columns]] = {".npz": _read_npz, ".parquet": _read_parquet}
"""Readers by file suffix."""
