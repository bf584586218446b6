"""After the method: place new clients, and let the clusters follow data that drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from logging import INFO, WARNING, getLogger
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import torch
from torch import Tensor

from srfca.aggregation.rules import Aggregation
from srfca.callbacks.progress_folder import ProgressFolder
from srfca.errors import InputError, require
from srfca.federation.local_training import LocalTraining
from srfca.flower.client_info import write_clients
from srfca.flower.drift_watch import DriftWatch
from srfca.flower.federation import FlowerFederation
from srfca.flower.settings import Settings
from srfca.methods import SRFCA, Method, Result
from srfca.methods.adaptation import adapt

REFRESH = "REFRESH"
_log = getLogger("flwr").log


def serve(
    method: Method,
    settings: Settings,
    federation: FlowerFederation,
    result: Result,
    watched: ProgressFolder | None = None,
) -> Result:
    """Place new clients as they connect, and refresh the clusters from time to time or after drift.

    Args:
        method: The method that found the clusters; refreshes train as it does.
        settings: How often, and for how long.
        federation: The clients.
        result: The clusters.
        watched: Where progress is written, if it is.

    Returns:
        The newest result.

    Raises:
        InputError: If the method leaves no cluster models that newcomers could be given.
    """
    require(has_cluster_models(result), f"{method.name} has no cluster models to serve")
    require(
        not settings.drift_check or federation.privacy is None,
        "srfca.drift-check must be 0, because private clients do not tell how their losses are "
        "distributed: set srfca.refresh",
    )
    start, watch = monotonic(), DriftWatch()
    refreshes, checks = _Every(settings.refresh), _Every(settings.drift_check)
    while settings.serve_for is None or monotonic() - start < settings.serve_for:
        before = result
        if newcomers := federation.newcomers():
            result = place_newcomers(federation, result, newcomers)
        ready = federation.ready()
        if watched is not None:
            connected = [federation.client_ids[client] for client in ready]
            watched.serving(federation.client_ids, connected)
        unclustered = [client for client in ready if result.labels[client] < 0]
        result = place_unclustered(federation, result, unclustered)
        if refreshes.due() or (checks.due() and _drifted(watch, federation, result)):
            number = 1 + sum(stage.name.startswith(REFRESH) for stage in result.history)
            try:
                result = refresh(
                    federation, result, method.local, settings.refresh_rounds, number, watched,
                    aggregation=method.rows_rule if isinstance(method, SRFCA) else None,
                )  # fmt: skip
            except InputError as error:
                _log(WARNING, "refresh failed, keeping the clusters: %s", error)
            refreshes.restart()
        if checks.due():
            checks.restart()
        deliver_final_models(federation, result, ready)
        if result is not before and settings.out is not None:
            write_result(Path(settings.out), federation, result)
        sleep(settings.poll)
    text = "serving ended after %g s: %s clients, %s clusters"
    clusters = result.partition.num_clusters
    _log(INFO, text, settings.serve_for, len(result.client_ids), clusters)
    return result


def _drifted(watch: DriftWatch, federation: FlowerFederation, result: Result) -> bool:
    """Tell whether a client has left the reach of its cluster; log why that is unknown."""
    try:
        return watch.check(federation, result)
    except InputError as error:
        _log(WARNING, "no check for drift: %s", error)
        return False


class _Every:
    """Tell when something is due that happens at intervals, in seconds; 0 is never."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._start = seconds, monotonic()

    def due(self) -> bool:
        """Tell whether the time has come."""
        return self._seconds > 0 and monotonic() >= self._start + self._seconds

    def restart(self) -> None:
        """Wait for the whole time again."""
        self._start = monotonic()


def write_result(folder: Path, federation: FlowerFederation, result: Result) -> None:
    """Write a result and its clients, for a server that is started again."""
    write_clients(folder, federation.infos)
    result.save(folder)


def deliver_final_models(
    federation: FlowerFederation, result: Result, clients: Sequence[int] | None = None
) -> None:
    """Send clients, or some of them, their final models, if they want them."""
    models = result.final_models
    if clients is not None:
        models = models[list(clients)]
    personal = result.personal if result.individual_models is None else None
    federation.keep(models, clients, personal)


def has_cluster_models(result: Result) -> bool:
    """Tell whether each cluster has a model that a newcomer can be given.

    Clients may have individual models besides, as after fine-tuning. Mixtures, and models of which
    clients keep a part, are no cluster models.
    """
    return result.clustered and result.mixture_weights is None and result.personal is None


def place_newcomers(
    federation: FlowerFederation, result: Result, newcomers: Sequence[str]
) -> Result:
    """Admit new clients: each gets the model of least loss on its data, if it is within the limit.

    Where clients have individual models, newcomers have that of their cluster until the clients
    fine-tune again, at the next refresh.

    Args:
        federation: The federation; the new clients are added to it.
        result: The clusters.
        newcomers: Client ids.

    Returns:
        The result with the new clients.
    """
    federation.admit(newcomers)
    clients = range(len(result.client_ids), len(federation.client_ids))
    unclustered = np.full(len(clients), -1)
    result = replace(
        result,
        client_ids=federation.client_ids,
        labels=np.concatenate([result.labels, unclustered]),
    )
    if result.individual_models is not None:
        result = replace(
            result, individual_models=_extended(result.individual_models, len(clients))
        )
    if result.fine_tuned_models is not None and result.fine_tuned_steps is not None:
        steps = result.fine_tuned_steps
        result = replace(
            result,
            fine_tuned_models=_extended(result.fine_tuned_models, len(clients)),
            fine_tuned_steps=torch.cat([steps, steps.new_zeros(len(clients))]),
        )
    result = place_unclustered(federation, result, clients)
    for client in clients:
        if result.labels[client] < 0:
            _log(INFO, "client %r fits no cluster", federation.client_ids[client])
    return result


def _extended(models: Tensor, count: int) -> Tensor:
    """Return models of clients with those of more clients, unknown as yet (NaN)."""
    return torch.cat([models, models.new_full((count, models.shape[1]), torch.nan)])


def place_unclustered(
    federation: FlowerFederation, result: Result, clients: Sequence[int]
) -> Result:
    """Let clients that are in no cluster join one, if their loss is within its limit.

    Args:
        federation: The federation.
        result: The clusters.
        clients: Clients that are in no cluster.

    Returns:
        The result with their labels; the same object if none fits.
    """
    assigned = result.assign(federation, clients).labels if len(clients) else np.zeros(0, np.int64)
    if not (assigned >= 0).any():
        return result
    labels = result.labels.copy()
    individual, fine_tuned = (
        None if models is None else models.clone()
        for models in (result.individual_models, result.fine_tuned_models)
    )  # fmt: skip
    for client, label in zip(clients, assigned.tolist(), strict=True):
        if label >= 0:
            _log(INFO, "client %r joins cluster %s", federation.client_ids[client], label)
            labels[client] = label
            for models in (individual, fine_tuned):
                if models is not None:
                    models[client] = result.models[label].to(models)
    return replace(
        result, labels=labels, individual_models=individual, fine_tuned_models=fine_tuned
    )


def refresh(
    federation: FlowerFederation,
    result: Result,
    local: LocalTraining,
    rounds: int,
    number: int,
    watched: ProgressFolder | None = None,
    *,
    aggregation: Aggregation | None = None,
) -> Result:
    """Adapt the clusters to the data that clients have now, and train each cluster's model on.

    Args:
        federation: The clients.
        result: The clusters before.
        local: How clients train.
        rounds: Rounds of training.
        number: Number of this refresh, from 1.
        watched: Where progress is written, if it is.
        aggregation: How the rows of a cluster become one row; None is their weighted mean.

    Returns:
        The new clusters.

    Raises:
        InputError: If no client replies, or training diverges.
    """
    federation.forget_losses()
    name = f"{REFRESH} {number}"
    refreshed = adapt(
        result, federation, local, rounds, stage=name, callbacks=watched, aggregation=aggregation
    )
    stage = next(stage for stage in reversed(refreshed.history) if stage.name == name)
    _log(INFO, "%s: %s", stage.name, stage.notes["decision"])
    for move in stage.notes["moves"]:
        text = "%s: client %r moved from cluster %s to cluster %s: %s"
        _log(INFO, text, stage.name, move["client"], move["from"], move["to"], move["why"])
    return refreshed
