"""Shards of a Ray Dataset: workers get its rows from each other, client by client."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch

from srfca.data.client_data import ClientData
from srfca.data.file_tables import Names, prefixed
from srfca.data.table import Table
from srfca.errors import require, unknown
from srfca.ray.shards import ShardSource, cut_by_cost, num_shards

_PLACE = Path("the Ray Dataset")
"""What errors call it."""
_NAMES = ("client", "target", "features", "test", "cluster")


def is_dataset(data: Any) -> bool:
    """Return whether something is a Ray Dataset, without importing ``ray.data``."""
    module = sys.modules.get("ray.data")
    return module is not None and isinstance(data, module.Dataset)


@dataclass(frozen=True)
class ReadBlocks:
    """Makes the clients of a shard from its rows.

    Args:
        options: Options of ``srfca.data.load``.
    """

    options: Mapping[str, Any]

    def __call__(self, *blocks: Any) -> ClientData:
        """Return the clients.

        Args:
            blocks: Arrow tables, each with rows of the shard's clients.

        Raises:
            InputError: If the rows are not as the options say.
        """
        import pyarrow as pa

        column = self.options.get("client") or "client"
        table = pa.concat_tables(blocks).sort_by(column)
        names = Names(*(self.options.get(name) for name in _NAMES))
        others = {name: value for name, value in self.options.items() if name not in _NAMES}
        with prefixed(_PLACE):
            purposes = names.purposes(_PLACE, Table(table))
            return ClientData.from_frame(table, **purposes, **others | {"standardize": False})


def shards_of(dataset: Any, num_workers: int, options: Mapping[str, Any]) -> list[ShardSource]:
    """Return the shards of a Ray Dataset: consecutive clients, in the order of their names.

    Ray does not promise an order of rows, so that the order of their first rows could change.

    The Dataset is computed once. Its rows are then cut by client, which moves all of them once
    between the machines; this process gets the clients' names and their numbers of rows.

    Args:
        dataset: With all rows of all clients, and a client column.
        num_workers: How many workers there will be.
        options: Options of ``srfca.data.load``.

    Raises:
        InputError: If there is no such column, it has missing values, or standardization is asked
            for.
    """
    require(
        not options.get("standardize"),
        "standardize needs all rows in one place, but each worker has some: leave it out",
    )
    column = options.get("client") or "client"
    columns = dataset.columns() or []
    if column not in columns:
        raise unknown("column", column, columns)
    blocks = dataset.to_arrow_refs()
    count_rows = ray.remote(num_cpus=0)(_count_rows)
    totals: dict[Any, int] = {}
    for counts in ray.get([count_rows.remote(block, column) for block in blocks]):
        for client, count in counts:
            totals[client] = totals.get(client, 0) + count
    missing = totals.pop(None, 0)
    require(
        not missing or options.get("missing") == "drop",
        f"{_PLACE}: {missing} rows have no {column}: fill it in, or leave these rows out with "
        "missing='drop'",
    )
    require(bool(totals), f"{_PLACE}: has no rows")
    totals = dict(sorted(totals.items()))
    bounds = cut_by_cost(torch.tensor(list(totals.values())), num_shards(len(totals), num_workers))
    number = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)).tolist()
    shard_of: Any = ray.put(dict(zip(totals, number, strict=True)))
    count = len(bounds) - 1
    cut_block: Any = ray.remote(num_cpus=0, num_returns=count)(_cut_block)
    parts = [cut_block.remote(block, column, shard_of, count) for block in blocks]
    parts = [[part] for part in parts] if count == 1 else parts
    return [
        ShardSource(ReadBlocks(options), [row[shard] for row in parts]) for shard in range(count)
    ]


def _count_rows(block: Any, column: str) -> list[tuple[Any, int]]:
    """Return the clients of a block, and how many rows each has, in the order of their rows."""
    counts = block[column].value_counts()
    return [(entry["values"], entry["counts"]) for entry in counts.to_pylist()]


def _cut_block(block: Any, column: str, shard_of: Mapping[Any, int], count: int) -> Any:
    """Return the rows of a block, by shard."""
    shards = np.array([shard_of.get(client, -1) for client in block[column].to_pylist()])
    parts: Sequence[Any] = [block.take(np.flatnonzero(shards == shard)) for shard in range(count)]
    return parts if count > 1 else parts[0]
