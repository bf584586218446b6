"""FEMNIST and Shakespeare as Flower Datasets users have them: tables of the HuggingFace hub.

What is assumed, from the cards of ``flwrlabs/femnist`` and ``flwrlabs/shakespeare``: FEMNIST has
the columns ``image`` (a struct whose ``bytes`` is a PNG file of 28 x 28 pixels, white is 255),
``writer_id`` and ``character`` (the class, 0 to 61); Shakespeare has ``character_id`` (or
``client_id``), ``x`` (80 characters) and ``y`` (the next one), and is published as a csv file that
the hub converts to parquet: both are read. Rows of a user need not be together.

The tables have one part, so that we split it as LEAF does: of a writer's images 10 %, drawn at
random by the writer's name, are for testing; of a role's windows, which come in the order of the
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
from srfca.data.loaders.users import Part, Users, spans
from srfca.errors import InputError, require

_ROWS = 8192


def femnist(tables: Sequence[Path]) -> Users:
    """All writers with their images ``[n, 28, 28]`` and classes 0 to 61."""
    pillow = _needed("PIL.Image", "pillow")
    writers, pixels, classes = [], [], []
    for path, batch in _batches(tables, [["image"], ["writer_id"], ["character"]]):
        pictures, names, labels = batch
        writers.append(_strings(path, "writer_id", names))
        pixels.append(np.stack([_picture(path, pillow, picture) for picture in pictures]))
        classes.append(_classes(path, labels))
    return _split(tables, writers, pixels, classes, _random)


def shakespeare(tables: Sequence[Path]) -> Users:
    """All roles with their windows ``[n, 80]`` and next characters."""
    roles, windows, targets = [], [], []
    for path, batch in _batches(tables, [["character_id", "client_id"], ["x"], ["y"]]):
        names, shown, following = batch
        roles.append(_strings(path, "character_id", names))
        x = _strings(path, "x", shown, letters.WINDOW)
        windows.append(letters.encode("".join(x)).reshape(-1, letters.WINDOW))
        y = _strings(path, "y", following, 1)
        targets.append(letters.encode("".join(y)).astype(np.int64))
    return _split(tables, roles, windows, targets, _last)


def _batches(
    tables: Sequence[Path], columns: Sequence[Sequence[str]]
) -> Iterator[tuple[Path, list[list[Any]]]]:
    """Some rows at a time of these columns, each known by several names, as python values."""
    arrow = _needed("pyarrow", "pyarrow")
    for path in tables:
        try:
            with path.open("rb") as file:
                schema, batches = _open(file, path)
                names = []
                for choices in columns:
                    name = next((choice for choice in choices if choice in schema), None)
                    if name is None:
                        raise InputError(
                            f"{path}: has no column {' or '.join(choices)}, but {', '.join(schema)}"
                        )
                    names.append(name)
                for batch in batches:
                    if batch.num_rows:
                        yield path, [batch.column(name).to_pylist() for name in names]
        except InputError:
            raise
        except (arrow.ArrowException, OSError, ValueError, KeyError) as error:
            why = str(error).partition("\n")[0]
            raise InputError(f"{path}: cannot be read as a table: {why}") from error


def _open(file: Any, path: Path) -> tuple[list[str], Iterator[Any]]:
    if path.suffix == ".csv":
        from pyarrow import csv

        text = csv.ConvertOptions(
            column_types=dict.fromkeys(("character_id", "client_id", "x", "y"), "string"),
            strings_can_be_null=False,
        )
        reader = csv.open_csv(
            file, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=text
        )
        return reader.schema.names, reader
    from pyarrow import parquet

    table = parquet.ParquetFile(file, page_checksum_verification=True)
    return table.schema_arrow.names, table.iter_batches(batch_size=_ROWS)


def _split(
    tables: Sequence[Path],
    users: Sequence[Sequence[str]],
    x: Sequence[NDArray[Any]],
    y: Sequence[NDArray[np.int64]],
    kind: Callable[[list[str], NDArray[np.int64]], NDArray[np.int64]],
) -> Users:
    """Rows in file order to users in alphabetical order, each with its two parts."""
    require(len(users) > 0, f"{tables[0]}: has no rows")
    found, owner = np.unique([name for some in users for name in some], return_inverse=True)
    names = found.tolist()
    order = np.argsort(owner, kind="stable")
    where = kind(names, np.bincount(owner).astype(np.int64))
    all_x, all_y = np.concatenate(x), np.concatenate(y)
    parts = []
    for part in (_TRAIN, _TEST):
        rows = order[where == part]
        sizes = np.bincount(owner[rows], minlength=len(names)).astype(np.int64)
        parts.append(Part(all_x[rows], all_y[rows], sizes))
    return Users(tuple(names), *parts)


_TRAIN, _TEST, _NEITHER = 0, 1, 2


def _random(names: list[str], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which part each writer's images are in: a tenth for testing, and at least one of two."""
    where = []
    for name, size in zip(names, sizes.tolist(), strict=True):
        part = np.full(size, _TRAIN)
        held = max(size // 10, 1) if size > 1 else 0
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        part[rng.permutation(size)[:held]] = _TEST
        where.append(part)
    return np.concatenate(where)


def _last(names: list[str], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which part each role's windows are in, as LEAF splits them."""
    train = letters.split(sizes)
    place = spans(np.zeros_like(sizes), sizes)
    return np.where(
        place < np.repeat(train, sizes),
        _TRAIN,
        np.where(place < np.repeat(train + letters.GAP, sizes), _NEITHER, _TEST),
    )


def _strings(path: Path, column: str, values: list[Any], length: int | None = None) -> list[str]:
    for value in values:
        if not isinstance(value, str) or not value or len(value) != (length or len(value)):
            wanted = f"of length {length}" if length else "that is not empty"
            raise InputError(f"{path}: column {column} has {value!r}, not a string {wanted}")
    return values


def _classes(path: Path, values: list[Any]) -> NDArray[np.int64]:
    for value in values:
        if type(value) is not int or not 0 <= value < leaf.CLASSES:
            raise InputError(
                f"{path}: column character has {value!r}, not a class from 0 to {leaf.CLASSES - 1}"
            )
    return np.array(values, np.int64)


def _picture(path: Path, pillow: ModuleType, value: Any) -> NDArray[np.uint8]:
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes):
        raise InputError(f"{path}: column image has something without 'bytes'")
    try:
        with pillow.open(io.BytesIO(content), formats=["PNG"]) as picture:
            size = picture.size
            pixels = np.asarray(picture.convert("L")) if size == (28, 28) else None
    except Exception as error:  # a damaged picture can fail in many ways
        raise InputError(f"{path}: a picture is damaged: {error}") from error
    if pixels is None:
        raise InputError(f"{path}: a picture of {size[0]} x {size[1]} pixels, not 28 x 28")
    return pixels


def _needed(module: str, package: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"reading these tables needs {package}: install it with pip install 'srfca[parquet]'"
        ) from error
