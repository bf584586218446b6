"""Rows with a client column, as client data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.data.client_data import ClientData, Samples, few_rows
from srfca.errors import InputError, require
from srfca.random import Key, bits, client_words, streams


@dataclass(frozen=True)
class Owners:
    """Which client each of n rows belongs to.

    Args:
        client_ids: The clients, in the order of their first rows.
        client: ``[n]`` the position of each row's client.
        first: ``[m]`` the first row of each client.
    """

    client_ids: tuple[str, ...]
    client: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def from_column(cls, name: str, column: NDArray[Any]) -> Owners:
        """Return the owners of rows from a column of names or numbers.

        Args:
            name: Name of the column, for error messages.
            column: ``[n]`` strings or whole numbers.

        Raises:
            InputError: If it holds anything else, or there are no rows.

        >>> Owners.from_column("shop", np.array(["b", "a", "b"]))
        Owners(client_ids=('b', 'a'), client=array([0, 1, 0]), first=array([0, 1]))
        """
        check_shape(name, column)
        require(len(column) > 0, "there are no rows")
        require(
            column.dtype.kind in "Uiu",
            f"{name!r} names the client of each row, so it must be strings or whole numbers, not "
            f"{column.dtype}: convert it",
        )
        values, first, inverse = np.unique(column, return_index=True, return_inverse=True)
        order = np.argsort(first)
        names = tuple(str(value) for value in values[order].tolist())
        return cls(names, np.argsort(order)[inverse], first[order])


def check_shape(name: str, column: NDArray[Any]) -> None:
    """Require one entry for each row."""
    require(
        column.ndim == 1,
        f"{name!r} must have one entry for each row, but is of shape {column.shape}",
    )


def marked_test_rows(name: str, column: NDArray[Any], owners: Owners) -> NDArray[np.bool_]:
    """Return which rows are test samples, ``[n]``.

    Args:
        name: Name of the column, for error messages.
        column: ``[n]`` "train" and "test", 0 and 1, or truth values.
        owners: Whose rows they are, for error messages.

    Raises:
        InputError: If the column holds anything else.
    """
    check_shape(name, column)
    rule = f"{name!r} must be 'train' or 'test', or 0 and 1 for testing"
    require(column.dtype.kind in "Ubiu", f"{rule}, not {column.dtype}")
    allowed = ["train", "test"] if column.dtype.kind == "U" else [0, 1]
    invalid = np.flatnonzero(~np.isin(column, allowed))
    if len(invalid):
        value, client = column[invalid[0]].item(), owners.client[invalid[0]]
        raise InputError(f"{rule}, not {value!r} as at client {owners.client_ids[client]!r}")
    test: NDArray[np.bool_] = column == allowed[1]
    return test


def draw_test_rows(fraction: float, owners: Owners, seed: int) -> NDArray[np.bool_]:
    """Draw a fraction of each client's rows as test samples: at least one, and not all.

    Args:
        fraction: In (0, 1).
        owners: Whose rows they are.
        seed: Decides which rows are drawn, together with the client's id.

    Raises:
        InputError: If the fraction is out of range, or a client has one row only.

    >>> owners = Owners.from_column("shop", np.repeat(["a", "b"], [8, 4]))
    >>> np.bincount(owners.client[draw_test_rows(0.25, owners, seed=0)]).tolist()
    [2, 1]
    """
    require(0 < fraction < 1, f"the fraction of test rows must be in (0, 1), not {fraction}")
    test = np.zeros(len(owners.client), dtype=np.bool_)
    client_streams = streams(Key(seed, "test rows"), client_words(owners.client_ids))
    sizes = np.bincount(owners.client, minlength=len(owners.client_ids))
    single = [owners.client_ids[client] for client in np.flatnonzero(sizes < 2).tolist()]
    if single:
        raise InputError(
            f"{few_rows(single)} one row, so that none can be drawn for testing: leave out clients "
            "with one"
        )
    for client, rows in enumerate(_rows_by_client(owners)):
        count = min(max(1, int(fraction * len(rows) + 1e-9)), len(rows) - 1)
        order = bits(client_streams[client], len(rows)).argsort().numpy()
        test[rows[order[:count]]] = True
    return test


def true_clusters(name: str, column: NDArray[Any], owners: Owners) -> Partition:
    """Return the true partition, from a column that has each client's cluster in all of its rows.

    Args:
        name: Name of the column, for error messages.
        column: ``[n]`` strings, whole numbers or truth values.
        owners: Whose rows they are.

    Raises:
        InputError: If the column holds anything else, or a client is in two clusters.
    """
    check_shape(name, column)
    require(
        column.dtype.kind in "Ubiu",
        f"{name!r} must be strings or whole numbers, not {column.dtype}",
    )
    conflicts = np.flatnonzero(column != column[owners.first][owners.client])
    if len(conflicts):
        client = owners.client[conflicts[0]]
        names = [column[row].item() for row in (owners.first[client], conflicts[0])]
        raise InputError(
            f"client {owners.client_ids[client]!r} is in cluster {names[0]!r} and in "
            f"{names[1]!r}: it must be in one"
        )
    return Partition(np.unique(column[owners.first], return_inverse=True)[1])


def group(
    x: Tensor,
    y: Tensor,
    owners: Owners,
    test: NDArray[np.bool_] | None = None,
    truth: Partition | None = None,
) -> ClientData:
    """Return rows as client data.

    Args:
        x: ``[n, ...]`` inputs.
        y: ``[n, ...]`` targets.
        owners: Whose rows they are.
        test: ``[n]`` which rows are test samples; None is none.
        truth: The true partition, if it is known.

    Raises:
        InputError: If a client has no training samples, or no test samples while others have.
    """
    test = np.zeros(len(x), dtype=np.bool_) if test is None else test
    train = _samples(x, y, owners, ~test)
    _require_samples(train, owners.client_ids, "training samples")
    if not test.any():
        return ClientData(owners.client_ids, train, None, truth)
    held = _samples(x, y, owners, test)
    _require_samples(held, owners.client_ids, "test samples, but other clients have")
    return ClientData(owners.client_ids, train, held, truth)


def _samples(x: Tensor, y: Tensor, owners: Owners, selected: NDArray[np.bool_]) -> Samples:
    """Return some of the rows client by client, in their original order."""
    rows = np.flatnonzero(selected)
    rows = rows[np.argsort(owners.client[rows], kind="stable")]
    sizes = np.bincount(owners.client[rows], minlength=len(owners.client_ids))
    index = torch.from_numpy(rows)
    return Samples(x[index], y[index], torch.from_numpy(sizes))


def _require_samples(samples: Samples, client_ids: Sequence[str], kind: str) -> None:
    empty = (samples.sizes == 0).nonzero().flatten().tolist()
    require(not empty, f"client {client_ids[empty[0] if empty else 0]!r} has no {kind}")


def _rows_by_client(owners: Owners) -> list[NDArray[np.int64]]:
    """Return the rows of each client, in their original order."""
    sizes = np.bincount(owners.client, minlength=len(owners.client_ids))
    rows = np.argsort(owners.client, kind="stable")
    return [*np.split(rows, sizes.cumsum()[:-1])]
