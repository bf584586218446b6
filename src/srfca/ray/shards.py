"""Shards: consecutive clients that one worker simulates, and where their data come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from srfca.data.client_data import ClientData, Samples

MakeData = Callable[[], ClientData]
"""Makes, or reads, the data of one shard, on the worker that simulates it."""
SHARDS_PER_WORKER = 2
MIN_CLIENTS = 50
"""Clients that a shard has at the least, if a worker has more than one."""


def cut_by_cost(costs: Tensor, count: int) -> NDArray[np.int64]:
    """Cut clients into consecutive shards of about the same cost.

    Args:
        costs: ``[m]`` of each client, positive.
        count: The number of shards; there are no more than clients.

    Returns:
        The bounds of the shards: ``[count + 1]``, from 0 to m.

    >>> import torch
    >>> cut_by_cost(torch.tensor([1, 1, 1, 1, 4, 4]), 3).tolist()
    [0, 4, 5, 6]
    """
    count = min(count, len(costs))
    ends = np.cumsum(costs.double().numpy())
    bounds = [0]
    for shard in range(1, count):
        wanted = ends[-1] * shard / count
        nearest = int(np.abs(ends - wanted).argmin()) + 1
        bounds.append(min(max(nearest, bounds[-1] + 1), len(costs) - (count - shard)))
    return np.array([*bounds, len(costs)], dtype=np.int64)


def cut(data: ClientData, start: int, stop: int) -> ClientData:
    """Return the data of consecutive clients, without what is known of all of them together."""
    test = None if data.test is None else _cut_samples(data.test, start, stop)
    train = _cut_samples(data.train, start, stop)
    return ClientData(data.client_ids[start:stop], train, test, schema=data.schema)


def _cut_samples(samples: Samples, start: int, stop: int) -> Samples:
    sizes = samples.sizes[start:stop]
    first = int(samples.offsets[start])
    span = slice(first, first + int(sizes.sum()))
    return Samples(samples.x[span], samples.y[span], sizes)


@dataclass(frozen=True)
class Given:
    """A shard whose data come from the driver."""

    data: ClientData

    def __call__(self) -> ClientData:
        """Return the data."""
        return self.data


@dataclass(frozen=True)
class ShardSource:
    """What a worker makes a shard of.

    Args:
        make: Returns the data of the shard, on the worker.
        blocks: References to what it is called with.
    """

    make: Callable[..., ClientData]
    blocks: Sequence[Any] = ()


def num_shards(num_clients: int, num_workers: int) -> int:
    """Return how many shards clients are cut into.

    Workers have two shards each, so that one of them can move away from a slow worker, unless
    these would be small.

    >>> num_shards(1000, 4), num_shards(300, 4)
    (8, 4)
    """
    per_worker = num_clients // (MIN_CLIENTS * num_workers)
    return num_workers * min(SHARDS_PER_WORKER, max(1, per_worker))


def client_range(bounds: NDArray[np.int64], clients: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the shard of each client ``[c]``.

    >>> client_range(np.array([0, 4, 5, 6]), np.array([5, 0, 4])).tolist()
    [2, 0, 1]
    """
    return np.asarray(np.searchsorted(bounds, clients, side="right") - 1)
