"""Shards: consecutive clients that one worker simulates, and where their data comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from srfca.data.client_data import ClientData, Samples
from srfca.errors import require

MakeData = Callable[[], ClientData]
"""Makes, or reads, the data of one shard, on the worker that simulates it."""


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


def sources_of(
    data: ClientData | Sequence[MakeData], num_workers: int
) -> tuple[ClientData | None, list[MakeData]]:
    """Return the data that the driver has, and what makes the data of each shard.

    Raises:
        InputError: If there are no shards, or one is not callable.
    """
    if isinstance(data, ClientData):
        bounds = cut_by_cost(data.train.sizes, num_workers).tolist()
        return data, [Given(cut(data, *pair)) for pair in pairwise(bounds)]
    makers = list(data)
    require(bool(makers), "data must be ClientData, or one function or more that make a shard each")
    for maker in makers:
        require(
            callable(maker),
            "data must be ClientData, or functions without arguments that return the ClientData "
            f"of a shard each, not {type(maker).__name__}",
        )
    return None, makers


def client_range(bounds: NDArray[np.int64], clients: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the shard of each client ``[c]``.

    >>> client_range(np.array([0, 4, 5, 6]), np.array([5, 0, 4])).tolist()
    [2, 0, 1]
    """
    return np.asarray(np.searchsorted(bounds, clients, side="right") - 1)
