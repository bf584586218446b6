"""Read files of named columns: .csv, .parquet and .npz."""

from __future__ import annotations

import csv
import re
import struct
from collections.abc import Callable, Sequence
from importlib import import_module
from os import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from srfca.errors import InputError, require

_MAX_ZIP_TRAILER = 22 + 2**16
"""Maximum bytes of a zip file's end record, with its comment."""
_MISSING = frozenset({"", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL"})
"""Cells of a .csv file that are missing values."""
_TRUTH = {"true": True, "false": False}
_DELIMITERS = ",;\t"
_LEADING_ZERO = re.compile(r"-?0\d+")
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")


def read_columns(path: Path, keep: Sequence[str] = ()) -> Any:
    r"""Read a file of named columns.

    Args:
        path: The file; its suffix tells its format. Pickled arrays are never read.
        keep: Columns that are read even if they are the index of a data frame; other indices are
            left out.

    Returns:
        Arrays by name, or a pyarrow table: something that ``Table`` takes.

    Raises:
        InputError: If the suffix is unknown, the file is damaged, or pyarrow is needed and not
            installed. The message names the file.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.csv")
        ...     _ = path.write_text("shop,age,buys\nulm,31,yes\nbonn,40,no\n")
        ...     read_columns(path)["age"].tolist()
        [31, 40]
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: must be a {SUFFIXES} file, or a folder of these")
    try:
        return reader(path, keep)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not encoded in UTF-8: save it again as UTF-8 (in Excel: 'CSV UTF-8')"
        ) from error
    except Exception as error:  # a damaged file can fail in many ways
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{path}: cannot be read as {path.suffix}: {reason}") from error


def _read_npz(path: Path, keep: Sequence[str]) -> dict[str, NDArray[Any]]:
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


def _read_parquet(path: Path, keep: Sequence[str]) -> Any:
    """Read a .parquet file as a pyarrow table, without a data frame's index."""
    try:
        import_module("pyarrow")
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(
            "reading it needs pyarrow: install it with pip install 'srfca[parquet]'"
        ) from error
    with path.open("rb") as file:
        table = parquet.ParquetFile(file, page_checksum_verification=True).read()
    metadata = table.schema.pandas_metadata or {}
    index = [name for name in metadata.get("index_columns", []) if isinstance(name, str)]
    return table.select(
        [
            name
            for name in table.column_names
            if name in keep or not (name in index or name.startswith("__index_level_"))
        ]
    )


def _read_csv(path: Path, keep: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read a .csv file with a header; columns are separated by commas, semicolons or tabs.

    A column without a name is the index of a data frame, and left out.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        delimiter = max(_DELIMITERS, key=file.readline().count)
        file.seek(0)
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        header = next(reader, [])
        require(bool(header), "is empty: its first line must have the names of the columns")
        require(
            len(header) > 1,
            f"has one column, {header[0]!r}: columns must be separated by commas, semicolons or "
            "tabs",
        )
        rows = []
        for row in reader:
            if len(row) != len(header) and row:
                raise InputError(
                    f"line {reader.line_num} has {len(row)} cells, but there are {len(header)} "
                    "columns"
                )
            if row:
                rows.append(row)
    for name in header:
        require(header.count(name) == 1 or not name, f"has two columns with the name {name!r}")
    cells = zip(*rows, strict=True) if rows else ((),) * len(header)
    return {name: _parse(name, column) for name, column in zip(header, cells, strict=True) if name}


def _parse(name: str, cells: Sequence[str]) -> NDArray[Any]:
    """Return the cells of a column as numbers or truth values if all of them are, else as strings.

    Each different cell is parsed once. Missing cells are NaN among numbers, and None otherwise.
    """
    present = set(cells) - _MISSING
    values, dtype = _parse_different(name, present)
    missing = set(cells) & _MISSING
    if missing:
        is_number = dtype in (np.int64, np.float64)
        values |= dict.fromkeys(missing, np.nan if is_number else None)
        dtype = np.float64 if is_number else object
    return np.array([values[cell] for cell in cells], dtype=dtype)


def _parse_different(name: str, cells: set[str]) -> tuple[dict[str, Any], type]:
    """Return the values of different cells, and their type. Leading zeros make them strings."""
    if cells and {cell.lower() for cell in cells} <= set(_TRUTH):
        return {cell: _TRUTH[cell.lower()] for cell in cells}, np.bool_
    require(
        not cells or not all(_DECIMAL_COMMA.fullmatch(cell) for cell in cells),
        f"column {name!r} has numbers with a decimal comma: write them with a point",
    )
    if any("_" in cell or _LEADING_ZERO.fullmatch(cell) for cell in cells):
        return {cell: cell for cell in cells}, np.str_
    for kind, dtype in ((int, np.int64), (float, np.float64)):
        try:
            values = {cell: kind(cell) for cell in cells}
            np.array([*values.values()], dtype=dtype)
        except (ValueError, OverflowError):
            continue
        return values, dtype
    return {cell: cell for cell in cells}, np.str_


READERS: dict[str, Callable[[Path, Sequence[str]], Any]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}
"""Readers by file suffix."""
SUFFIXES = ".csv, .parquet or .npz"
