"""A user's own data: a file with a client column, or a folder with a file for each client.

``.npz`` files hold arrays, ``.parquet`` files columns, one entry for each sample:

- ``x``, the inputs; in a parquet file a column of lists, or else all columns with other names are
  the features, in their order, and in a folder in that of the first file;
- ``y``, the targets: whole numbers are classes, other numbers are values;
- ``client``, whose sample it is: strings or whole numbers; in a folder, the file's name says it;
- ``split`` (optional): "train" or "test", or 0 and 1 where 1 is for testing; an npz file in a
  folder may have ``x_test`` and ``y_test`` instead;
- ``cluster`` (optional): the client's true cluster, to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.clients import ClientData
from srfca.data.columns import NAMES, READERS, Columns, read
from srfca.errors import InputError, require, unknown

Pair = tuple[NDArray[Any], NDArray[Any]]
_OF_A_CLIENT = ("x", "y", "x_test", "y_test", "split", "cluster")


@dataclass(frozen=True)
class _Client:
    """What a client holds; without test data, ``test`` has no samples."""

    train: Pair
    test: Pair
    cluster: str | None
    """The name of its true cluster."""


def load(path: str | Path) -> ClientData:
    """The clients of an .npz file, of a .parquet file, or of a folder of these.

    Clients are in the order of their first sample, those of a folder in the order of their names.
    """
    path = Path(path)
    require(path.exists(), f"there is no file or folder {path}")
    clients = _folder(path) if path.is_dir() else _file(path)
    testing = any(len(client.test[0]) for client in clients.values())
    for name, client in clients.items():
        for kind, part in (("training", client.train), ("test", client.test)):
            if len(part[0]) == 0 and (testing or kind == "training"):
                also = ", but other clients have" if kind == "test" else ""
                raise InputError(f"{path}: client {name!r} has no {kind} samples{also}")
    try:
        return ClientData.of(
            {name: client.train for name, client in clients.items()},
            {name: client.test for name, client in clients.items()} if testing else None,
            _truth(path, clients),
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _folder(path: Path) -> dict[str, _Client]:
    """A client for each file, by the name of the file."""
    files = sorted(
        p for p in path.iterdir() if p.suffix.lower() in READERS and not p.name.startswith(".")
    )
    require(bool(files), f"{path}: has no {' or '.join(READERS)} file in it")
    clients: dict[str, _Client] = {}
    features: list[str] = []
    for file in files:
        require(file.stem not in clients, f"{path}: has two files of client {file.stem!r}")
        require(file.stem.isprintable(), f"{path}: {file.stem!r} is no name for a client")
        columns, names = _columns(file, _OF_A_CLIENT, features)
        clients[file.stem] = _of_file(file, columns)
        features = features or names
    return clients


def _of_file(path: Path, columns: Columns) -> _Client:
    """The one client of a file."""
    if "cluster" in columns and columns["cluster"].ndim == 0:
        columns["cluster"] = np.repeat(columns["cluster"], len(columns["x"]))
    given = {"x_test", "y_test"} & set(columns)
    if given:
        require(len(given) == 2, f"{path}: has {given.pop()}, but not both x_test and y_test")
        require("split" not in columns, f"{path}: has x_test as well as split: one will do")
        test = {"x": columns.pop("x_test"), "y": columns.pop("y_test")}
        [client] = _clients(path, columns).values()
        [held] = _clients(path, test).values()
        return _Client(client.train, held.train, client.cluster)
    [client] = _clients(path, columns).values()
    return client


def _file(path: Path) -> dict[str, _Client]:
    """The clients of a file with a client column."""
    columns, _ = _columns(path, NAMES)
    require("client" in columns, f"{path}: has no client, but {', '.join(columns)}")
    return _clients(path, columns)


def _columns(
    path: Path, known: tuple[str, ...], like: Sequence[str] = ()
) -> tuple[Columns, list[str]]:
    """The arrays of a file, where x and y are there and every name is known.

    And the names of the features that x is made of, if it is made of columns: they are put in the
    order of those that another file has, ``like``.
    """
    columns, names = read(path), list(like)
    listed = ", ".join(columns) or "nothing"
    require(
        "client" in known or "client" not in columns,
        f"{path}: has a client of its own, but in a folder the name of a file is the client",
    )
    if path.suffix.lower() == ".parquet" and columns.get("x", np.empty(0)).ndim == 1:
        features = {name: columns.pop(name) for name in [*columns] if name not in known[1:]}
        names = names or [*features]
        require(
            not features or set(names) == set(features),
            f"{path}: has features {', '.join(features)}, but other files {', '.join(names)}",
        )
        if features:
            parts = [_numbers(path, name, features[name]) for name in names]
            columns["x"] = np.column_stack(parts)
    for name in ("x", "y"):
        require(name in columns, f"{path}: has no {name}, but {listed}")
    for name in columns:
        if name not in known:
            raise InputError(f"{path}: {unknown('array', name, known)}")
    for name in {"x", "y", "x_test", "y_test"} & set(columns):
        columns[name] = _numbers(path, name, columns[name])
        require(columns[name].ndim > 0, f"{path}: {name} is one number, not one for each sample")
    for name in {"x", "x_test"} & set(columns):
        if columns[name].ndim == 1:
            columns[name] = columns[name][:, None]
    for name in {"y", "y_test"} & set(columns):
        if columns[name].dtype.kind != "f" and columns[name].shape[1:] == (1,):
            columns[name] = columns[name][:, 0]
    return columns, names


def _numbers(path: Path, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array as torch takes it: floats as they are, whole numbers as int64 or uint8."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    require(kind in "biuf", f"{path}: {name} must be numbers, not {array.dtype}")
    if kind == "f":
        return array.astype(np.float64 if size > 8 else array.dtype.newbyteorder("="), copy=False)
    return array if array.dtype == np.uint8 else array.astype(np.int64, copy=False)


def _clients(path: Path, columns: Columns) -> dict[str, _Client]:
    """Columns of n entries as clients; without a client column there is one, named like the file.

    Samples are sorted by client once, and cut.
    """
    n = _length(path, columns)
    x, y = columns["x"], columns["y"]
    ids = columns.get("client", np.full(n, path.stem))
    require(
        ids.dtype.kind in "Uiu", f"{path}: client must be strings or whole numbers, not {ids.dtype}"
    )
    values, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    names = [str(value) for value in values[order].tolist()]
    owner = np.argsort(order)[inverse]
    clusters = _clusters(path, columns.get("cluster"), names, first[order], owner)
    test = _is_test(path, columns.get("split", np.zeros(n, np.int64)), names, owner)
    parts = []
    for rows in (np.flatnonzero(~test), np.flatnonzero(test)):
        rows = rows[np.argsort(owner[rows], kind="stable")]
        ends = np.bincount(owner[rows], minlength=len(names)).cumsum()[:-1]
        parts.append(zip(np.split(x[rows], ends), np.split(y[rows], ends), strict=True))
    return {
        name: _Client(train, held, cluster)
        for name, train, held, cluster in zip(names, *parts, clusters, strict=True)
    }


def _length(path: Path, columns: Columns) -> int:
    n = len(columns["x"])
    require(n > 0, f"{path}: has no samples")
    for name, column in columns.items():
        shape = column.shape
        require(
            len(shape) == 1 or (len(shape) > 1 and name in ("x", "y")),
            f"{path}: {name} must have one entry for each sample, but is of shape {shape}",
        )
        require(
            len(column) == n, f"{path}: x has {n} samples, but {name} has {len(column)} entries"
        )
    return n


def _is_test(
    path: Path, split: NDArray[Any], names: list[str], owner: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which samples are for testing: ``[n]``."""
    rule = "split must be 'train' or 'test', or 0 and 1 for testing"
    require(split.dtype.kind in "Ubiu", f"{path}: {rule}, not {split.dtype}")
    allowed = ["train", "test"] if split.dtype.kind == "U" else [0, 1]
    strange = np.flatnonzero(~np.isin(split, allowed))
    if len(strange):
        value, whose = split[strange[0]].item(), names[owner[strange[0]]]
        raise InputError(f"{path}: {rule}, not {value!r} as at client {whose!r}")
    test: NDArray[np.bool_] = split == allowed[1]
    return test


def _clusters(
    path: Path,
    cluster: NDArray[Any] | None,
    names: list[str],
    first: NDArray[np.int64],
    owner: NDArray[np.int64],
) -> list[str | None]:
    """The true cluster of each client: that of its first sample, and of all the others."""
    if cluster is None:
        return [None] * len(names)
    require(
        cluster.dtype.kind in "Ubiu",
        f"{path}: cluster must be strings or whole numbers, not {cluster.dtype}",
    )
    strays = np.flatnonzero(cluster != cluster[first][owner])
    if len(strays):
        row = strays[0]
        both = [cluster[place].item() for place in (first[owner[row]], row)]
        raise InputError(
            f"{path}: client {names[owner[row]]!r} is in cluster {both[0]!r} and in {both[1]!r}: "
            "it must be in one"
        )
    return [str(value) for value in cluster[first].tolist()]


def _truth(path: Path, clients: Mapping[str, _Client]) -> NDArray[np.int64] | None:
    """The true partition, where every client has a cluster: ``[m]``."""
    known = [client.cluster for client in clients.values() if client.cluster is not None]
    if not known:
        return None
    if len(known) < len(clients):
        lost = next(name for name, client in clients.items() if client.cluster is None)
        raise InputError(f"{path}: client {lost!r} has no cluster, but other clients have")
    labels: NDArray[np.int64] = np.unique(known, return_inverse=True)[1]
    return labels
