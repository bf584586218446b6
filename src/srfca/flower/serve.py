"""After the method: newcomers are placed, and clusters follow data that drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from logging import INFO, WARNING, getLogger
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import torch

from srfca.clustering.partition import Partition
from srfca.errors import InputError, require
from srfca.federation.base import Work
from srfca.flower.federation import FlowerFederation
from srfca.flower.members import write_members
from srfca.flower.settings import Settings
from srfca.methods import Method, Result
from srfca.methods.base import Answer
from srfca.methods.result import reach
from srfca.methods.rounds import federated_training, least, weighted_mean
from srfca.methods.run import Run

_log = getLogger("flwr").log
REFRESH = "REFRESH"


def serve(
    method: Method, settings: Settings, federation: FlowerFederation, result: Result
) -> Result:
    """Place newcomers as they come, and refresh the clusters from time to time."""
    require(servable(result), f"{method.name} has no cluster models to serve")
    start = monotonic()
    due = start + settings.refresh
    while settings.serve_for is None or monotonic() - start < settings.serve_for:
        before = result
        if newcomers := federation.newcomers():
            result = place(federation, result, newcomers)
        here = federation.ready()
        result = join(federation, result, [c for c in here if result.labels[c] < 0])
        if settings.refresh and monotonic() >= due:
            done = sum(stage.name.startswith(REFRESH) for stage in result.history)
            try:
                result = refreshed(federation, result, method.work, settings.refresh_rounds, done)
            except InputError as error:
                _log(WARNING, "clusters stay as they are, without a refresh: %s", error)
            due = monotonic() + settings.refresh
        federation.keep(result.final_models[here], here)
        if result is not before and settings.out is not None:
            write(Path(settings.out), federation, result)
        sleep(settings.look)
    return result


def write(folder: Path, federation: FlowerFederation, result: Result) -> None:
    """Write down the result and who its clients are, for a server that is started again."""
    write_members(folder, federation.members)
    result.save(folder)


def servable(result: Result) -> bool:
    """Whether clients have the models of their clusters, rather than their own or mixtures."""
    return result.clustered and result.own is None and result.mixture is None


def place(federation: FlowerFederation, result: Result, newcomers: list[str]) -> Result:
    """Take newcomers in: each has the model of least loss on its data, unless none is in reach."""
    federation.admit(newcomers)
    every = range(len(result.clients), len(federation.clients))
    nowhere = np.full(len(every), -1)
    result = replace(
        result, clients=federation.clients, labels=np.concatenate([result.labels, nowhere])
    )
    if result.tuned is not None and result.tuned_steps is not None:
        rows = result.tuned.new_full((len(every), result.tuned.shape[1]), torch.nan)
        steps = result.tuned_steps.new_zeros(len(every))
        result = replace(
            result,
            tuned=torch.cat([result.tuned, rows]),
            tuned_steps=torch.cat([result.tuned_steps, steps]),
        )
    result = join(federation, result, every)
    for client in every:
        if result.labels[client] < 0:
            _log(INFO, "client %r joins no cluster", federation.clients[client])
    return result


def join(federation: FlowerFederation, result: Result, clients: Sequence[int]) -> Result:
    """Let clients that are in no cluster join one that is in reach."""
    found = result.assign(federation, clients).labels if len(clients) else np.zeros(0, np.int64)
    if not (found >= 0).any():
        return result
    labels = result.labels.copy()
    tuned = None if result.tuned is None else result.tuned.clone()
    for client, label in zip(clients, found.tolist(), strict=True):
        if label >= 0:
            _log(INFO, "client %r joins cluster %s", federation.clients[client], label)
            labels[client] = label
            if tuned is not None:
                tuned[client] = result.models[label].to(tuned)
    return replace(result, labels=labels, tuned=tuned)


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
    name = f"{REFRESH} {number + 1}"
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
