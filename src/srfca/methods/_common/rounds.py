"""Federated training inside clusters: the rounds that all methods share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca import aggregation
from srfca.clustering.partition import Partition
from srfca.errors import InputError, require, unknown
from srfca.federation.base import Federation, Tick, Work, silent
from srfca.methods import store
from srfca.methods.run import Run
from srfca.models.rows import run_of
from srfca.random import Key, client_words, streams

Aggregate = Callable[[Tensor, Tensor], Tensor]
"""From the rows ``[J, P]`` of a cluster's clients and their sizes ``[J]`` to one row ``[P]``."""


def weighted_mean(rows: Tensor, sizes: Tensor) -> Tensor:
    """FedAvg's mean, weighted by the clients' samples."""
    return aggregation.mean(rows, sizes)


def plain_mean(rows: Tensor, sizes: Tensor) -> Tensor:
    """All clients alike."""
    return aggregation.mean(rows)


def aggregate_named(name: str, trim: float) -> Aggregate:
    """``mean`` (weighted by samples), or one that a few wrong clients cannot spoil."""

    def trimmed(rows: Tensor, sizes: Tensor) -> Tensor:
        return aggregation.trimmed_mean(rows, trim)

    def median(rows: Tensor, sizes: Tensor) -> Tensor:
        return aggregation.median(rows)

    known = {"mean": weighted_mean, "trimmed_mean": trimmed, "median": median}
    if name not in known:
        raise unknown("aggregate", name, known)
    return known[name]


Exchange = Callable[[Tensor, list[int], Key, Tick], Tensor]
"""What clients do in a round: from their starts ``[c, P]`` to the rows ``[c, P]`` they send."""


def trained_models(federation: Federation, work: Work) -> Exchange:
    """Clients send their models after the local steps of the round."""

    def exchange(starts: Tensor, clients: list[int], key: Key, tick: Tick) -> Tensor:
        return federation.fit(starts, clients, work, key, tick)

    return exchange


def gradient_steps(federation: Federation, work: Work, lr: float) -> Exchange:
    """Clients send their whole gradients, which the server takes a step of ``lr`` along.

    The rate follows the schedule of ``work``.
    An aggregate that moves and scales with its rows, as means, medians and trimmed means do, may be
    taken after the step as well as before.
    """
    server = replace(work, lr=lr)

    def exchange(starts: Tensor, clients: list[int], key: Key, tick: Tick) -> Tensor:
        rows = starts - server.rate(key.round) * federation.gradients(starts, clients)
        tick(len(clients))
        return rows

    return exchange


def schedule(federation: Federation, work: Work, server_lr: float | None) -> tuple[int, Exchange]:
    """How many rounds make a whole training, and what clients do in each.

    They send their models after the local steps of a round; with ``server_lr`` their whole
    gradients at every step.
    """
    if server_lr is None:
        return work.rounds, trained_models(federation, work)
    return work.steps, gradient_steps(federation, work, server_lr)


def cluster_round(
    federation: Federation,
    models: Tensor,
    who: NDArray[np.int64],
    labels: NDArray[np.int64],
    exchange: Exchange,
    aggregate: Aggregate,
    key: Key,
    tick: Tick = silent,
    common: Tensor | None = None,
) -> Tensor:
    """One round: the clients ``who`` work from the models of ``labels``, both ``[c]``: ``[k, P]``.

    What the clients of a cluster send is aggregated; a cluster without clients keeps its model. The
    coordinates ``common`` ``[P]`` are aggregated over all clients, for all clusters.
    """
    together = np.argsort(labels, kind="stable")  # a cluster's rows then need no copy
    who, labels = who[together], labels[together]
    one = len(models) == 1
    starts = models.expand(len(who), -1) if one else models[torch.tensor(labels).to(models.device)]
    rows = exchange(starts, who.tolist(), key, tick)
    found = aggregate_clusters(federation, rows, who, labels, models, aggregate)
    if common is not None:
        of_all = aggregate_clusters(federation, rows, who, 0 * labels, models[:1], aggregate)
        found = torch.where(common, of_all, found)
    for cluster in (~torch.isfinite(found).all(1)).nonzero().flatten().tolist():
        raise diverged("federated training", f"cluster {cluster}")
    return found


def aggregate_clusters(
    federation: Federation,
    rows: Tensor,
    who: NDArray[np.int64],
    labels: NDArray[np.int64],
    models: Tensor,
    aggregate: Aggregate,
) -> Tensor:
    """One row for each cluster, from its clients' rows, or its model if it has none: ``[k, P]``."""
    sent = heard(federation, rows, who)
    if not sent.all():
        rows, who, labels = rows[torch.tensor(sent, device=rows.device)], who[sent], labels[sent]
    sizes = federation.sizes[torch.tensor(who, device=federation.sizes.device)].to(rows.device)

    def aggregated(cluster: int) -> Tensor:
        mine = torch.from_numpy(np.flatnonzero(labels == cluster))
        if not len(mine):
            return models[cluster]
        some = run_of(mine)
        return aggregate(rows[some], sizes[some])

    return torch.stack([aggregated(cluster) for cluster in range(len(models))])


def federated_training(
    run: Run,
    stage: str,
    models: Tensor,
    partition: Partition,
    work: Work,
    aggregate: Aggregate,
    *,
    purpose: str,
    participation: float = 1.0,
    server_lr: float | None = None,
    project: Callable[[Tensor], Tensor] = lambda rows: rows,
    rounds: range | None = None,
) -> Tensor:
    """Train one model for each cluster from ``models`` ``[k, P]``: ``[k, P]``.

    Clients send their models after the local steps of each round; with ``server_lr`` their whole
    gradients at every step, which the server follows at that rate. ``rounds`` are those to do now,
    if not all of them.
    """
    count, exchange = schedule(run.federation, work, server_lr)
    rounds = range(count) if rounds is None else rounds
    steps = work.steps * len(rounds) // count
    with run.stage(stage, sum(counts(partition, participation)) * steps) as tick:
        training = f"{stage}, {purpose}, {rounds}"
        stands = {"models": models, "done": torch.tensor(0)}
        if not work.keep_state:
            stands = run.latest(training, **stands)
        models = stands["models"]
        for number in rounds[int(stands["done"]) :]:
            key = Key(run.seed, purpose, number)
            who = participants(run.federation, partition, participation, key)
            labels = partition.labels[who]
            models = project(
                cluster_round(run.federation, models, who, labels, exchange, aggregate, key, tick)
            )
            if not work.keep_state:
                done = torch.tensor(number - rounds.start + 1)
                run.checkpoint(training, models=models, done=done)
    return models


def participants(
    federation: Federation, partition: Partition, participation: float, key: Key
) -> NDArray[np.int64]:
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


def everybody(federation: Federation) -> Partition:
    """All clients in one cluster."""
    return Partition(np.zeros(len(federation.clients), dtype=np.int64))


def nearest(federation: Federation, models: Tensor, who: NDArray[np.int64]) -> NDArray[np.int64]:
    """The model of the least loss on each client's training data, as ``least`` has it: ``[c]``."""
    return least(federation.losses(models, who.tolist()))


def least(losses: Tensor) -> NDArray[np.int64]:
    """Where each column of losses ``[k, c]`` is least, first on a tie, or -1 if unknown: ``[c]``.

    >>> least(torch.tensor([[3.0, 1.0, torch.nan], [2.0, torch.nan, torch.nan]])).tolist()
    [1, 0, -1]
    """
    unknown = losses.isnan()
    found = losses.masked_fill(unknown, torch.inf).argmin(0)
    return np.asarray(found.masked_fill(unknown.all(0), -1).cpu().numpy())


def local_training(
    federation: Federation, w0: Tensor, work: Work, key: Key, tick: Tick = silent
) -> Tensor:
    """Every client trains alone from the common start w0 through all of the steps: ``[m, P]``.

    On disk if they are too many for the memory. The row of a client that does not answer is NaN.
    """
    clients = range(len(federation.clients))
    alone = replace(work, local_steps=work.steps)

    def trained(some: range) -> Tensor:
        rows = federation.fit(w0.expand(len(some), -1), some, alone, key, tick)
        return check_finite(federation, rows, some, "local training", otherwise=rows)

    if store.fits(len(clients), w0):
        return trained(clients)
    rows = store.on_disk(len(clients), w0)
    for start in range(0, len(clients), store.block_length(w0)):
        some = clients[start : start + store.block_length(w0)]
        rows[some.start : some.stop] = trained(some).to(rows.device)
    return rows


def trained_part(federation: Federation, rows: Tensor) -> Tensor:
    """What is trained of rows ``[c, P]``, without buffers such as BatchNorm's: ``[c, trained]``."""
    return torch.cat([rows[:, layer] for layer in federation.layers.values()], dim=1)


def heard(
    federation: Federation, rows: Tensor, clients: Sequence[int] | NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which of the rows ``[c, P]`` were sent: all but those of clients that did not answer."""
    absent = {absence.client for absence in federation.wire.absences}
    if not absent:
        return np.ones(len(clients), dtype=bool)
    sent = [federation.clients[client] not in absent for client in clients]
    return np.asarray(np.asarray(sent) | torch.isfinite(rows).all(1).cpu().numpy())


def check_finite(
    federation: Federation,
    rows: Tensor,
    clients: Sequence[int] | NDArray[np.int64],
    what: str,
    otherwise: Tensor,
) -> Tensor:
    """The rows ``[c, P]``, unless training has diverged: then an error that says for whom.

    A client that did not answer has its row of ``otherwise``.
    """
    bad = (~torch.isfinite(rows).all(1)).nonzero().flatten().tolist()
    if not bad:
        return rows
    sent = heard(federation, rows, clients)
    for place in bad:
        if sent[place]:
            name = f"client {federation.clients[clients[place]]!r}"
            raise diverged(what, name, sum(map(bool, sent[bad])) - 1)
    return torch.where(torch.tensor(sent, device=rows.device).unsqueeze(1), rows, otherwise)


def answered(
    federation: Federation, rows: Tensor, clients: NDArray[np.int64], what: str
) -> tuple[Tensor, NDArray[np.int64]]:
    """Those of the rows ``[c, P]`` of clients ``[c]`` that were sent, and by whom."""
    check_finite(federation, rows, clients, what, otherwise=rows)
    sent = heard(federation, rows, clients)
    return (rows, clients) if sent.all() else (rows[torch.tensor(sent)], clients[sent])


def require_clients(m: int, k: int | None) -> None:
    """Refuse to make more clusters than there are clients."""
    require(k is None or k <= m, f"k={k} is more than the {m} clients")


def require_answers(here: NDArray[np.int64], k: int | None = None) -> None:
    """Refuse to make k clusters, or any, if fewer clients are ``here``."""
    wanted = 1 if k is None else k
    require(
        len(here) >= wanted, f"only {len(here)} clients answer, where {wanted} or more are wanted"
    )


def diverged(what: str, name: str, others: int = 0) -> InputError:
    """An error for a model that has become infinite or NaN."""
    more = f" and {others} more" if others else ""
    return InputError(
        f"{what} diverged for {name}{more}: "
        "the model, or its loss, has become infinite or NaN; lower lr, or set clip "
        "(where gradients are averaged, lower server_lr)"
    )
