"""A folder with a file for each client, as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.columns import READERS, SUFFIXES
from srfca.data.file_tables import Names, Purposes, file_table, prefixed
from srfca.data.grouping import Owners, marked_test_rows
from srfca.data.table import Table
from srfca.errors import require

Columns = dict[str, NDArray[Any]]
"""Arrays by name."""


def read_folder(path: Path, names: Names) -> tuple[Table, Purposes]:
    """Read a folder with a file for each client, named by the client.

    Args:
        path: The folder.
        names: The names of the columns.

    Returns:
        A table with a client column, and its columns by purpose.

    Raises:
        InputError: If a file cannot be read, or does not fit the others. The message names the
            file or the client.
    """
    require(
        names.client is None,
        f"{path}: in a folder, the name of a file is the client: leave out client={names.client!r}",
    )
    files = sorted(
        p for p in path.iterdir() if p.suffix.lower() in READERS and not p.name.startswith(".")
    )
    require(bool(files), f"{path}: has no {SUFFIXES} file in it")
    parts: dict[str, Columns] = {}
    features: list[str] = []
    for file in files:
        client_id = file.stem
        require(client_id not in parts, f"{path}: has two files of client {client_id!r}")
        require(
            client_id.isprintable(),
            f"{path}: {client_id!r} is no name for a client: rename the file to printable "
            "characters",
        )
        source = names.read(file)
        with prefixed(file):
            if isinstance(source, dict):
                source = _with_test_rows(source, names)
            table = file_table(file, source)
            features = _matching_features(names.features_of(file, table), features)
            parts[client_id] = _columns_of_client(client_id, table, names, features)
    with prefixed(path):
        table = _join(parts, names)
        return table, names.purposes(path, table) | {"features": features}


def _with_test_rows(source: Columns, names: Names) -> Columns:
    """Return the arrays of one client, with x_test and y_test as test rows of x and y.

    A cluster that is one value becomes that of every row.
    """
    source = dict(source)
    test_names = {"x_test", "y_test"} & set(source)
    if test_names:
        require(len(test_names) == 2, f"has {test_names.pop()}, but not both x_test and y_test")
        require(
            names.test_column not in source,
            f"has x_test as well as {names.test_column}: remove one of the two",
        )
        for name in ("x", "y"):
            require(name in source, f"has no {name}, but {', '.join(source)}")
        source[names.test_column] = np.repeat([0, 1], [len(source["x"]), len(source["x_test"])])
        for name in ("x", "y"):
            train, test = source[name], source.pop(f"{name}_test")
            require(
                train.shape[1:] == test.shape[1:],
                f"{name} has samples of shape {train.shape[1:]}, but {name}_test of shape "
                f"{test.shape[1:]}",
            )
            source[name] = np.concatenate([train, test])
    cluster = source.get(names.cluster_column)
    if cluster is not None and cluster.ndim == 0:
        source[names.cluster_column] = np.repeat(cluster, len(source.get("x", [])))
    return source


def _matching_features(features: list[str], expected: list[str]) -> list[str]:
    """Return the features of a file in the order of another file, if there is one."""
    require(
        not expected or set(features) == set(expected),
        f"has features {', '.join(features)}, but other files {', '.join(expected)}",
    )
    return expected or features


def _columns_of_client(client_id: str, table: Table, names: Names, features: list[str]) -> Columns:
    """Return the columns of one client's file that have a purpose, and its client column."""
    require(
        names.client_column not in table.names,
        f"has a column {names.client_column!r}, but in a folder the name of a file is the client: "
        "remove it",
    )
    require(len(table) > 0, "has no samples")
    columns = {name: table.raw(name) for name in (names.target_column, *features)}
    columns[names.client_column] = np.full(len(table), client_id)
    if names.test_column in table.names:
        owners = Owners.from_column(names.client_column, columns[names.client_column])
        [column] = table.columns([names.test_column]).values()
        columns[names.test_column] = marked_test_rows(names.test_column, column, owners)
    if names.cluster_column in table.names:
        [column] = table.columns([names.cluster_column]).values()
        columns[names.cluster_column] = column.astype(np.str_)
    return columns


def _join(parts: dict[str, Columns], names: Names) -> Table:
    """Return the table of all clients. Clients without a column of test rows have none."""
    every = list(dict.fromkeys(name for part in parts.values() for name in part))
    joined: Columns = {}
    for name in every:
        columns: Columns = {}
        for client_id, part in parts.items():
            if name == names.test_column and name not in part:
                part = {name: np.zeros(len(part[names.client_column]), dtype=np.bool_)}
            require(name in part, f"client {client_id!r} has no {name}, but other clients have")
            columns[client_id] = part[name]
        joined[name] = _concatenate(name, columns)
    return Table(joined)


def _concatenate(name: str, columns: Columns) -> NDArray[Any]:
    """Return a column of all clients."""
    first_id, first = next(iter(columns.items()))
    for client_id, column in columns.items():
        require(
            column.shape[1:] == first.shape[1:],
            f"client {client_id!r}: {name} has samples of shape {column.shape[1:]}, but client "
            f"{first_id!r} has {first.shape[1:]}",
        )
    kinds = {"U" if column.dtype.kind == "U" else "number" for column in columns.values()}
    arrays = [*columns.values()]
    if len(kinds) > 1:  # numpy would turn the numbers into strings
        arrays = [column.astype(object) for column in arrays]
    return np.concatenate(arrays)
