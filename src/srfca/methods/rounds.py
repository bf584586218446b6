"""Federated training inside clusters: the rounds that all methods share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from srfca import aggregation
from srfca.clustering.partition import Partition
from srfca.errors import InputError
from srfca.federation.base import Federation, Tick, Work, silent
from srfca.random import Key, client_words, streams

Aggregate = Callable[[Tensor, Tensor], Tensor]
"""From the rows ``[J, P]`` of a cluster's clients and their sizes ``[J]`` to one row ``[P]``."""


def weighted_mean(rows: Tensor, sizes: Tensor) -> Tensor:
    """FedAvg's mean, weighted by the clients' samples."""
    return aggregation.mean(rows, sizes)


Local = Callable[[Tensor, list[int], Key], Tensor]
"""What clients do in a round: from their starts ``[c, P]`` to the rows ``[c, P]`` they send."""


def trained_models(federation: Federation, work: Work, tick: Tick = silent) -> Local:
    """Clients send their models after the local steps of the round."""

    def local(starts: Tensor, clients: list[int], key: Key) -> Tensor:
        return federation.fit(starts, clients, work, key, tick)

    return local


def gradient_steps(federation: Federation, lr: float, tick: Tick = silent) -> Local:
    """Clients send their whole gradients, which the server takes a step of ``lr`` along.

    An aggregate that moves and scales with its rows, as means, medians and trimmed means do, may be
    taken after the step as well as before.
    """

    def local(starts: Tensor, clients: list[int], key: Key) -> Tensor:
        rows = starts - lr * federation.gradients(starts, clients)
        tick(len(clients))
        return rows

    return local


def federated_training(
    federation: Federation,
    models: Tensor,
    partition: Partition,
    rounds: int,
    local: Local,
    aggregate: Aggregate,
    *,
    seed: int,
    purpose: str,
    participation: float = 1.0,
    project: Callable[[Tensor], Tensor] = lambda rows: rows,
) -> Tensor:
    """Train one model for each cluster from ``models`` ``[k, P]``: ``[k, P]``.

    Each round, the clients that take part work from their cluster's model, and what they send is
    aggregated.
    """
    for number in range(rounds):
        key = Key(seed, purpose, number)
        who = participants(federation, partition, participation, key)
        labels = torch.tensor(partition.labels[who], device=models.device)
        rows = local(models[labels], who.tolist(), key)
        models = project(aggregate_clusters(federation, rows, who, partition, aggregate))
        check_finite(models, [f"cluster {c}" for c in range(len(models))], "federated training")
    return models


def participants(
    federation: Federation, partition: Partition, participation: float, key: Key
) -> np.ndarray:
    """The clients of a round, in order: that fraction of each cluster, rounded up."""
    placed = np.flatnonzero(partition.labels >= 0)
    if participation >= 1:
        return placed
    lots = streams(key, client_words(federation.clients)).numpy()
    chosen = [
        members[np.argsort(lots[members], kind="stable")[:count]]
        for members, count in zip(partition, counts(partition, participation), strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def counts(partition: Partition, participation: float) -> list[int]:
    """How many clients of each cluster take part in a round."""
    return [int(np.ceil(participation * size - 1e-9)) for size in partition.sizes]


def aggregate_clusters(
    federation: Federation,
    rows: Tensor,
    who: np.ndarray,
    partition: Partition,
    aggregate: Aggregate,
) -> Tensor:
    """One row for each cluster from its clients' rows: ``[k, P]``."""
    labels = torch.tensor(partition.labels[who], device=rows.device)
    sizes = federation.sizes[torch.tensor(who, device=federation.sizes.device)].to(rows.device)
    of_cluster = (labels == c for c in range(partition.num_clusters))
    return torch.stack([aggregate(rows[mine], sizes[mine]) for mine in of_cluster])


def local_training(
    federation: Federation, w0: Tensor, work: Work, key: Key, tick: Tick = silent
) -> Tensor:
    """Every client trains alone from the common start w0 through all of the steps: ``[m, P]``."""
    count = len(federation.clients)
    alone = replace(work, local_steps=work.steps)
    rows = federation.fit(w0.expand(count, -1), range(count), alone, key, tick)
    return check_finite(rows, [f"client {c!r}" for c in federation.clients], "local training")


def check_finite(rows: Tensor, names: list[str], what: str) -> Tensor:
    """The rows, unless training has diverged: then an error that says for whom."""
    bad = (~torch.isfinite(rows).all(1)).nonzero().flatten().tolist()
    if bad:
        others = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise InputError(
            f"{what} diverged for {names[bad[0]]}{others}: "
            "the model has become infinite or NaN; lower lr, or set clip"
        )
    return rows
