"""Read FEMNIST and Shakespeare from the tables that Flower Datasets uses.

They are ``flwrlabs/femnist`` and ``flwrlabs/shakespeare`` of the HuggingFace hub. FEMNIST has the
columns ``image`` (a struct whose ``bytes`` is a PNG file of 28 x 28 pixels, white is 255),
``writer_id`` and ``character`` (the class, 0 to 61). Shakespeare has ``character_id`` (or
``client_id``), ``x`` (80 characters) and ``y`` (the next one). It is published as a csv file, which
the hub converts to parquet; both can be read. The rows of a user need not be consecutive.

The tables have no test part, so they are split as LEAF does: 10 % of a writer's images, drawn at
random by the writer's name, are for testing; of a role's windows, which are in the order of the
play, the last 20 %.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.loaders import leaf, letters
from srfca.data.loaders.users import Users, UserSamples, ranges
from srfca.errors import InputError, require

_ROWS_PER_BATCH = 8192
_TRAIN, _TEST, _DROPPED = 0, 1, 2


def read_femnist(tables: Sequence[Path]) -> Users:
    """Read all writers with their images ``[n, 28, 28]`` and classes 0 to 61.

    Args:
        tables: The parquet files.

    Raises:
        InputError: If a file is damaged or has other columns, or if pyarrow or pillow is not
            installed.
    """
    pillow = _import("PIL.Image", "pillow")
    writers, pixels, classes = [], [], []
    for path, batch in _iterate_batches(tables, [["image"], ["writer_id"], ["character"]]):
        pictures, names, labels = batch
        writers.append(_check_strings(path, "writer_id", names))
        pixels.append(np.stack([_decode_picture(path, pillow, picture) for picture in pictures]))
        classes.append(_check_classes(path, labels))
    return _split(tables, writers, pixels, classes, _split_images)


def read_shakespeare(tables: Sequence[Path]) -> Users:
    """Read all roles with their windows ``[n, 80]`` and next characters.

    Args:
        tables: The parquet or csv files.

    Raises:
        InputError: If a file is damaged or has other columns, or if pyarrow is not installed.
    """
    roles, windows, targets = [], [], []
    for path, batch in _iterate_batches(tables, [["character_id", "client_id"], ["x"], ["y"]]):
        names, inputs, next_characters = batch
        roles.append(_check_strings(path, "character_id", names))
        x = _check_strings(path, "x", inputs, letters.WINDOW)
        windows.append(letters.encode("".join(x)).reshape(-1, letters.WINDOW))
        y = _check_strings(path, "y", next_characters, 1)
        targets.append(letters.encode("".join(y)).astype(np.int64))
    return _split(tables, roles, windows, targets, _split_windows)


def _iterate_batches(
    tables: Sequence[Path], columns: Sequence[Sequence[str]]
) -> Iterator[tuple[Path, list[list[Any]]]]:
    """Yield batches of rows as Python values.

    Args:
        tables: The files.
        columns: The columns to read; each is given by its possible names.
    """
    arrow = _import("pyarrow", "pyarrow")
    for path in tables:
        try:
            with path.open("rb") as file:
                schema, batches = _open_table(file, path)
                names = [_column_name(path, schema, alternatives) for alternatives in columns]
                for batch in batches:
                    if batch.num_rows:
                        yield path, [batch.column(name).to_pylist() for name in names]
        except InputError:
            raise
        except (arrow.ArrowException, OSError, ValueError, KeyError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{path}: cannot be read as a table: {reason}") from error


def _column_name(path: Path, schema: list[str], alternatives: Sequence[str]) -> str:
    """Return the first of several names that a table has as a column."""
    for name in alternatives:
        if name in schema:
            return name
    raise InputError(f"{path}: has no column {' or '.join(alternatives)}, but {', '.join(schema)}")


def _open_table(file: Any, path: Path) -> tuple[list[str], Iterator[Any]]:
    """Return the column names of a table and an iterator over its batches."""
    if path.suffix == ".csv":
        from pyarrow import csv

        as_text = csv.ConvertOptions(
            column_types=dict.fromkeys(("character_id", "client_id", "x", "y"), "string"),
            strings_can_be_null=False,
        )
        reader = csv.open_csv(
            file, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=as_text
        )
        return reader.schema.names, reader
    from pyarrow import parquet

    table = parquet.ParquetFile(file, page_checksum_verification=True)
    return table.schema_arrow.names, table.iter_batches(batch_size=_ROWS_PER_BATCH)


def _split(
    tables: Sequence[Path],
    users: Sequence[Sequence[str]],
    x: Sequence[NDArray[Any]],
    y: Sequence[NDArray[np.int64]],
    assign: Callable[[list[str], NDArray[np.int64]], NDArray[np.int64]],
) -> Users:
    """Group rows by user, in alphabetical order, and split each user's rows.

    Args:
        tables: The files, for error messages.
        users: The user of every row, batch by batch.
        x: The inputs of every batch.
        y: The targets of every batch.
        assign: From the users' names and numbers of rows to the split of every row, user by user.
    """
    require(len(users) > 0, f"{tables[0]}: has no rows")
    unique, owner = np.unique([name for batch in users for name in batch], return_inverse=True)
    names = unique.tolist()
    order = np.argsort(owner, kind="stable")
    splits = assign(names, np.bincount(owner).astype(np.int64))
    all_x, all_y = np.concatenate(x), np.concatenate(y)
    parts = []
    for split in (_TRAIN, _TEST):
        rows = order[splits == split]
        sizes = np.bincount(owner[rows], minlength=len(names)).astype(np.int64)
        parts.append(UserSamples(all_x[rows], all_y[rows], sizes))
    return Users(tuple(names), *parts)


def _split_images(names: list[str], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the split of each writer's images: a tenth for testing, and at least one of two."""
    splits = []
    for name, size in zip(names, sizes.tolist(), strict=True):
        split = np.full(size, _TRAIN)
        num_test = max(size // 10, 1) if size > 1 else 0
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        split[rng.permutation(size)[:num_test]] = _TEST
        splits.append(split)
    return np.concatenate(splits)


def _split_windows(names: list[str], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the split of each role's windows, as in LEAF."""
    train = letters.num_train_windows(sizes)
    position = ranges(np.zeros_like(sizes), sizes)
    return np.where(
        position < np.repeat(train, sizes),
        _TRAIN,
        np.where(position < np.repeat(train + letters.GAP, sizes), _DROPPED, _TEST),
    )


def _check_strings(
    path: Path, column: str, values: list[Any], length: int | None = None
) -> list[str]:
    """Require strings that are not empty, of this length if it is given."""
    for value in values:
        if not isinstance(value, str) or not value or len(value) != (length or len(value)):
            rule = f"of length {length}" if length else "that is not empty"
            raise InputError(f"{path}: column {column} has {value!r}, not a string {rule}")
    return values


def _check_classes(path: Path, values: list[Any]) -> NDArray[np.int64]:
    """Require classes from 0 to 61."""
    for value in values:
        if type(value) is not int or not 0 <= value < leaf.CLASSES:
            raise InputError(
                f"{path}: column character has {value!r}, not a class from 0 to {leaf.CLASSES - 1}"
            )
    return np.array(values, np.int64)


def _decode_picture(path: Path, pillow: ModuleType, value: Any) -> NDArray[np.uint8]:
    """Return the pixels of a PNG file, ``[28, 28]``."""
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes):
        raise InputError(f"{path}: column image has an entry without 'bytes'")
    try:
        with pillow.open(io.BytesIO(content), formats=["PNG"]) as picture:
            size = picture.size
            pixels = np.asarray(picture.convert("L")) if size == (28, 28) else None
    except Exception as error:  # a damaged picture can fail in many ways
        raise InputError(f"{path}: a picture is damaged: {error}") from error
    if pixels is None:
        raise InputError(f"{path}: a picture of {size[0]} x {size[1]} pixels, not 28 x 28")
    return pixels


def _import(module: str, package: str) -> ModuleType:
    """Import a module, or say how to install its package."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"reading these tables needs {package}: install it with pip install 'srfca[parquet]'"
        ) from error
