"""Load your own data: a file with a client column, or a folder with a file for each client.

``.npz`` files hold arrays, ``.parquet`` files columns, with an entry for each sample:

- ``x``, the inputs. In a parquet file it is a column of lists; without it, all columns with other
  names are the features, in the order of the file, or of the first file of a folder.
- ``y``, the targets: integers are classes, floats are values.
- ``client``, the client that has the sample: strings or integers. In a folder, each file is a
  client, and the file's name is the client id.
- ``split`` (optional): "train" or "test", or 0 for training and 1 for testing. An npz file in a
  folder can have ``x_test`` and ``y_test`` instead.
- ``cluster`` (optional): the client's true cluster, to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.client_data import ClientData
from srfca.data.columns import COLUMN_NAMES, READERS, Columns, read_columns
from srfca.errors import InputError, require, unknown

Pair = tuple[NDArray[Any], NDArray[Any]]
"""Inputs and targets."""
_NAMES_IN_FOLDER = ("x", "y", "x_test", "y_test", "split", "cluster")
"""Arrays that a file of a folder can have."""


@dataclass(frozen=True)
class _Client:
    """The samples of one client; without test data, ``test`` is empty."""

    train: Pair
    test: Pair
    cluster: str | None
    """The name of its true cluster."""


def load(path: str | Path) -> ClientData:
    """Load the clients of an .npz file, of a .parquet file, or of a folder of these.

    Args:
        path: The file or folder; see the module's documentation for its contents.

    Returns:
        The clients in the order of their first samples; the clients of a folder in alphabetical
        order.

    Raises:
        InputError: If something is missing, unknown, inconsistent or damaged. The message names the
            file and, where possible, the client.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/a.npz", x=np.ones((4, 3)), y=[0, 1, 0, 1], client=[7, 7, 8, 8])
        ...     load(f"{folder}/a.npz").client_ids
        ('7', '8')
    """
    path = Path(path)
    require(path.exists(), f"there is no file or folder {path}")
    clients = _read_folder(path) if path.is_dir() else _read_file(path)
    has_test_data = any(len(client.test[0]) for client in clients.values())
    for client_id, client in clients.items():
        for kind, (x, _) in (("training", client.train), ("test", client.test)):
            if len(x) == 0 and (has_test_data or kind == "training"):
                contrast = ", but other clients have" if kind == "test" else ""
                raise InputError(f"{path}: client {client_id!r} has no {kind} samples{contrast}")
    try:
        return ClientData.from_arrays(
            {client_id: client.train for client_id, client in clients.items()},
            {client_id: client.test for client_id, client in clients.items()}
            if has_test_data
            else None,
            _true_labels(path, clients),
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _read_folder(path: Path) -> dict[str, _Client]:
    """Read a folder with a file for each client, named by the client."""
    files = sorted(
        p for p in path.iterdir() if p.suffix.lower() in READERS and not p.name.startswith(".")
    )
    require(bool(files), f"{path}: has no {' or '.join(READERS)} file in it")
    clients: dict[str, _Client] = {}
    features: list[str] = []
    for file in files:
        client_id = file.stem
        require(client_id not in clients, f"{path}: has two files of client {client_id!r}")
        require(
            client_id.isprintable(),
            f"{path}: {client_id!r} is no name for a client: rename the file to printable "
            "characters",
        )
        columns, names = _checked_columns(file, _NAMES_IN_FOLDER, features)
        clients[client_id] = _only_client(file, columns)
        features = features or names
    return clients


def _only_client(path: Path, columns: Columns) -> _Client:
    """Return the one client of a file."""
    if "cluster" in columns and columns["cluster"].ndim == 0:
        columns["cluster"] = np.repeat(columns["cluster"], len(columns["x"]))
    test_names = {"x_test", "y_test"} & set(columns)
    if test_names:
        require(
            len(test_names) == 2, f"{path}: has {test_names.pop()}, but not both x_test and y_test"
        )
        require(
            "split" not in columns, f"{path}: has x_test as well as split: remove one of the two"
        )
        test_columns = {"x": columns.pop("x_test"), "y": columns.pop("y_test")}
        [client] = _group_by_client(path, columns).values()
        [test] = _group_by_client(path, test_columns).values()
        return _Client(client.train, test.train, client.cluster)
    [client] = _group_by_client(path, columns).values()
    return client


def _read_file(path: Path) -> dict[str, _Client]:
    """Read a file with a client column."""
    columns, _ = _checked_columns(path, COLUMN_NAMES)
    require("client" in columns, f"{path}: has no client, but {', '.join(columns)}")
    return _group_by_client(path, columns)


def _checked_columns(
    path: Path, allowed: tuple[str, ...], features: Sequence[str] = ()
) -> tuple[Columns, list[str]]:
    """Read the arrays of a file, and require x, y and no unknown names.

    Args:
        path: The file.
        allowed: The names that arrays can have.
        features: The feature columns of another file, which x is made of in the same order.

    Returns:
        The arrays, and the names of the columns that x is made of, empty if x is an array.
    """
    columns, feature_names = read_columns(path), list(features)
    listed = ", ".join(columns) or "nothing"
    require(
        "client" in allowed or "client" not in columns,
        f"{path}: has an array client, but in a folder the name of a file is the client: remove it",
    )
    if path.suffix.lower() == ".parquet" and columns.get("x", np.empty(0)).ndim == 1:
        feature_names = _stack_features(path, columns, allowed, feature_names)
    for name in ("x", "y"):
        require(name in columns, f"{path}: has no {name}, but {listed}")
    for name in columns:
        if name not in allowed:
            raise InputError(f"{path}: {unknown('array', name, allowed)}")
    for name in {"x", "y", "x_test", "y_test"} & set(columns):
        columns[name] = _as_numbers(path, name, columns[name])
        require(columns[name].ndim > 0, f"{path}: {name} is one number, not one for each sample")
    for name in {"x", "x_test"} & set(columns):
        if columns[name].ndim == 1:
            columns[name] = columns[name][:, None]
    for name in {"y", "y_test"} & set(columns):
        if columns[name].dtype.kind != "f" and columns[name].shape[1:] == (1,):
            columns[name] = columns[name][:, 0]
    return columns, feature_names


def _stack_features(
    path: Path, columns: Columns, allowed: tuple[str, ...], expected: list[str]
) -> list[str]:
    """Replace the feature columns of a table by x, and return their names in order."""
    features = {name: columns.pop(name) for name in [*columns] if name not in allowed[1:]}
    names = expected or [*features]
    require(
        not features or set(names) == set(features),
        f"{path}: has features {', '.join(features)}, but other files {', '.join(names)}",
    )
    if features:
        columns["x"] = np.column_stack([_as_numbers(path, name, features[name]) for name in names])
    return names


def _as_numbers(path: Path, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in a type that torch supports: a float, int64 or uint8."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    require(kind in "biuf", f"{path}: {name} must be numbers, not {array.dtype}")
    if kind == "f":
        return array.astype(np.float64 if size > 8 else array.dtype.newbyteorder("="), copy=False)
    return array if array.dtype == np.uint8 else array.astype(np.int64, copy=False)


def _group_by_client(path: Path, columns: Columns) -> dict[str, _Client]:
    """Group n samples by client.

    Without a client column there is one client, named like the file.
    """
    n = _num_samples(path, columns)
    x, y = columns["x"], columns["y"]
    ids = columns.get("client", np.full(n, path.stem))
    require(
        ids.dtype.kind in "Uiu", f"{path}: client must be strings or whole numbers, not {ids.dtype}"
    )
    values, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    client_ids = [str(value) for value in values[order].tolist()]
    owner = np.argsort(order)[inverse]
    clusters = _cluster_names(path, columns.get("cluster"), client_ids, first[order], owner)
    test = _is_test(path, columns.get("split", np.zeros(n, np.int64)), client_ids, owner)
    splits = []
    for indices in (np.flatnonzero(~test), np.flatnonzero(test)):
        indices = indices[np.argsort(owner[indices], kind="stable")]
        ends = np.bincount(owner[indices], minlength=len(client_ids)).cumsum()[:-1]
        splits.append(zip(np.split(x[indices], ends), np.split(y[indices], ends), strict=True))
    return {
        client_id: _Client(train_pair, test_pair, cluster)
        for client_id, train_pair, test_pair, cluster in zip(
            client_ids, *splits, clusters, strict=True
        )
    }


def _num_samples(path: Path, columns: Columns) -> int:
    """Return the number of samples; all columns must have as many entries."""
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
    path: Path, split: NDArray[Any], client_ids: list[str], owner: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Tell which samples are test samples, ``[n]``."""
    rule = "split must be 'train' or 'test', or 0 and 1 for testing"
    require(split.dtype.kind in "Ubiu", f"{path}: {rule}, not {split.dtype}")
    allowed = ["train", "test"] if split.dtype.kind == "U" else [0, 1]
    invalid = np.flatnonzero(~np.isin(split, allowed))
    if len(invalid):
        value, client_id = split[invalid[0]].item(), client_ids[owner[invalid[0]]]
        raise InputError(f"{path}: {rule}, not {value!r} as at client {client_id!r}")
    test: NDArray[np.bool_] = split == allowed[1]
    return test


def _cluster_names(
    path: Path,
    cluster: NDArray[Any] | None,
    client_ids: list[str],
    first: NDArray[np.int64],
    owner: NDArray[np.int64],
) -> list[str | None]:
    """Return the true cluster of each client, which all of its samples must have."""
    if cluster is None:
        return [None] * len(client_ids)
    require(
        cluster.dtype.kind in "Ubiu",
        f"{path}: cluster must be strings or whole numbers, not {cluster.dtype}",
    )
    conflicts = np.flatnonzero(cluster != cluster[first][owner])
    if len(conflicts):
        sample = conflicts[0]
        client = owner[sample]
        names = [cluster[index].item() for index in (first[client], sample)]
        raise InputError(
            f"{path}: client {client_ids[client]!r} is in cluster {names[0]!r} "
            f"and in {names[1]!r}: it must be in one"
        )
    return [str(value) for value in cluster[first].tolist()]


def _true_labels(path: Path, clients: Mapping[str, _Client]) -> NDArray[np.int64] | None:
    """Return the true partition, ``[m]``, or None if no client has a cluster."""
    clusters = [client.cluster for client in clients.values() if client.cluster is not None]
    if not clusters:
        return None
    if len(clusters) < len(clients):
        client_id = next(name for name, client in clients.items() if client.cluster is None)
        raise InputError(f"{path}: client {client_id!r} has no cluster, but other clients have")
    labels: NDArray[np.int64] = np.unique(clusters, return_inverse=True)[1]
    return labels
