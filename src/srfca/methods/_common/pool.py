"""A pool of samples that clients give away, for methods with shared data."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from srfca.errors import require
from srfca.federation.requests import SharedSamples
from srfca.methods._common.run import Run
from srfca.random import Key, streams


def shared_pool(run: Run, per_client: int, *, targets: bool) -> Tensor:
    """Ask all clients for samples, and return them in random order: ``[s, w]``.

    Args:
        run: The run.
        per_client: How many each client gives away; one that has fewer gives all it has.
        targets: Ask for their targets too.

    Raises:
        InputError: If no client shares any.
    """
    replies = run.ask(SharedSamples(run.everyone, per_client, run.seed, targets))
    rows = replies.values.flatten(0, 1)
    rows = rows[rows.isfinite().all(1)]
    require(
        len(rows) > 0,
        "no client shares samples, which this method needs: real clients share as many as "
        "client_app(share=...) says, and private ones none",
    )
    return rows[torch.as_tensor(random_order(len(rows), run.key("order of shared samples")))]


def deal(pool: Tensor, fraction: float, num_clients: int, key: Key) -> Tensor:
    """Return a random part of a pool for each client, in an order of its own.

    Clients that took the same batches in the same steps would gain less from averaging.

    Args:
        pool: ``[s, w]``
        fraction: The fraction that each client gets, at least one sample.
        num_clients: m
        key: Key of the draws.

    Returns:
        ``[m, s', w]``
    """
    size = max(1, round(fraction * len(pool)))
    orders = [
        random_order(len(pool), Key(key.seed, key.purpose, client))[:size]
        for client in range(num_clients)
    ]
    return pool[torch.as_tensor(np.stack(orders))]


def random_order(count: int, key: Key) -> np.ndarray:
    """Return the numbers from 0 to ``count - 1`` in random order."""
    return np.argsort(streams(key, torch.arange(count)).numpy(), kind="stable")
