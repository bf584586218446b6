"""After the method: newcomers are placed, and clusters follow data that drift."""

from __future__ import annotations

from dataclasses import replace
from logging import INFO, getLogger
from time import monotonic, sleep

import numpy as np

from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.base import Work
from srfca.flower.federation import FlowerFederation
from srfca.flower.settings import Settings
from srfca.methods import Method, Result
from srfca.methods.base import Answer
from srfca.methods.result import reach
from srfca.methods.rounds import federated_training, least, weighted_mean
from srfca.methods.run import Run

_log = getLogger("flwr").log


def serve(
    method: Method, settings: Settings, federation: FlowerFederation, result: Result
) -> Result:
    """Place newcomers as they come, and refresh the clusters from time to time."""
    require(servable(result), f"{method.name} has no cluster models to serve")
    start = monotonic()
    refreshes = 0
    while settings.serve_for is None or monotonic() - start < settings.serve_for:
        before = result
        if newcomers := federation.newcomers():
            result = place(federation, result, newcomers)
            whom = range(len(before.clients), len(result.clients))
            federation.keep(result.client_models[whom.start :], whom)
        if settings.refresh and monotonic() - start >= settings.refresh * (refreshes + 1):
            result = refreshed(federation, result, method.work, settings.refresh_rounds, refreshes)
            refreshes += 1
            federation.keep(result.client_models)
        if result is not before and settings.out is not None:
            result.save(settings.out)
        sleep(settings.look)
    return result


def servable(result: Result) -> bool:
    """Whether clients have the models of their clusters, rather than their own or mixtures."""
    return result.clustered and result.own is None and result.mixture is None


def place(federation: FlowerFederation, result: Result, newcomers: list[str]) -> Result:
    """Take newcomers in: each has the model of least loss on its data, unless none is in reach."""
    federation.admit(newcomers)
    every = range(len(result.clients), len(federation.clients))
    found = result.assign(federation, every).labels
    for client, label in zip(newcomers, found.tolist(), strict=True):
        _log(INFO, "client %r joins %s", client, "no cluster" if label < 0 else f"cluster {label}")
    labels = np.concatenate([result.labels, found])
    return replace(result, clients=federation.clients, labels=labels)


def refreshed(
    federation: FlowerFederation, result: Result, work: Work, rounds: int, number: int
) -> Result:
    """RECLUSTER by the losses that clients have now, then some rounds of training in each cluster.

    A client that does not answer stays where it is; one in no cluster joins one that is in reach.
    """
    federation.forget_losses()
    run = Run(federation, result.seed)
    assigned = result.assign(federation)
    nearest = least(assigned.losses)
    labels = np.where(
        result.labels < 0, assigned.labels, np.where(nearest < 0, result.labels, nearest)
    )
    answer = Answer.of(labels, result.models)
    partition = Partition(answer.labels)
    name = f"REFRESH {number + 1}"
    again = replace(work, steps=rounds * work.local_steps, schedule="constant", keep_state=False)
    models = federated_training(
        run, name, answer.models, partition, again, weighted_mean, purpose=name.lower()
    )
    moved = int((labels != result.labels).sum())
    run.record(name, partition, Answer(answer.labels, models).client_models, notes={"moved": moved})
    _log(INFO, "%s: %s clients in other clusters", name, moved)
    return replace(
        result,
        labels=answer.labels,
        models=models,
        tuned=None,
        tuned_steps=None,
        history=(*result.history, *run.history),
        reach=reach(federation, models, partition),
    )
