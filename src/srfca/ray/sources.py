"""What the workers make their shards of, for each kind of data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from srfca.data.client_data import ClientData
from srfca.errors import require
from srfca.ray.datasets import is_dataset, shards_of
from srfca.ray.files import files_in
from srfca.ray.shards import Given, MakeData, ShardSource, cut, cut_by_cost, num_shards

Data: TypeAlias = "ClientData | str | Path | Sequence[MakeData] | Any"
"""Clients, a folder of files, a Ray Dataset, or a function for each shard."""


def sources_of(
    data: Data, num_workers: int, reading: Mapping[str, Any]
) -> tuple[ClientData | None, list[ShardSource]]:
    """Return the data that the driver has, and what the workers make each shard of.

    Args:
        data: Clients, a folder of files, a Ray Dataset, or a function for each shard.
        num_workers: How many workers there will be.
        reading: Options of ``srfca.data.load``, for files and for a Dataset.

    Raises:
        InputError: If there are no shards, one is not callable, or the options do not fit the data.
    """
    if isinstance(data, str | Path):
        return None, [ShardSource(make) for make in files_in(data, **reading)]
    if is_dataset(data):
        return None, shards_of(data, num_workers, reading)
    require(
        not reading,
        f"{', '.join(reading)}: only for data that workers read from a folder or a Ray Dataset",
    )
    if isinstance(data, ClientData):
        count = num_shards(len(data.client_ids), num_workers)
        bounds = cut_by_cost(data.train.sizes, count).tolist()
        return data, [ShardSource(Given(cut(data, *pair))) for pair in pairwise(bounds)]
    makers = list(data) if isinstance(data, Iterable) else []
    require(bool(makers), "data must be ClientData, or one function or more that make a shard each")
    for maker in makers:
        require(
            callable(maker),
            "data must be ClientData, a folder, a Ray Dataset, or functions without arguments that "
            f"return the ClientData of a shard each, not {type(maker).__name__}",
        )
    return None, [ShardSource(maker) for maker in makers]
