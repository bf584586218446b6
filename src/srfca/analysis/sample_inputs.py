"""Single inputs of each cluster, to look at: only where all data is on this machine.

Clients elsewhere are never asked for samples. A simulation holds them anyway, but every
reader of the report sees them, so they are shown only on request.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from srfca.analysis.differences import SampleInput
from srfca.data.client_data import ClientData, Samples

Labels = NDArray[np.int64]


def sample_inputs(data: ClientData, labels: Labels, cluster: int, count: int) -> list[SampleInput]:
    """Return some training samples of a cluster, to be compared with those of other clusters.

    If targets are classes, they are of the first ``count`` classes that the federation has, one of
    each: the same classes for every cluster. Nothing is drawn: it is the first sample of its class
    at the first client that has one, and every class begins with another client.

    Args:
        data: The samples of all clients.
        labels: ``[m]`` the clients' clusters.
        cluster: Which one.
        count: How many samples.
    """
    members = np.flatnonzero(labels == cluster)
    if data.train.y.is_floating_point() or data.train.y.ndim > 1:
        chosen = ((client, 0) for client in members[:count].tolist())
        return [_sample(data, client, row) for client, row in chosen]
    classes = np.unique(data.train.y.cpu().numpy())[:count].tolist()
    candidates = (
        _first(data.train, np.roll(members, -place).tolist(), target)
        for place, target in enumerate(classes)
    )
    return [_sample(data, *pair) for pair in candidates if pair is not None]


def _first(samples: Samples, clients: list[int], target: int) -> tuple[int, int] | None:
    """Return a client and its first sample of a class, None if no client has one."""
    return next(_samples_of(samples, clients, target), None)


def _samples_of(samples: Samples, clients: list[int], target: int) -> Iterator[tuple[int, int]]:
    for client in clients:
        rows = np.flatnonzero(samples.of(client)[1].cpu().numpy() == target)
        if len(rows):
            yield client, int(rows[0])


def _sample(data: ClientData, client: int, row: int) -> SampleInput:
    x, y = data.train.of(client)
    values = x[row].cpu().double().ravel().tolist()
    is_class = not y.is_floating_point() and y.ndim == 1
    return SampleInput(
        data.client_ids[client],
        int(y[row]) if is_class else None,
        tuple(float(f"{value:.4g}") for value in values),
    )
