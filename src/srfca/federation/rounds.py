"""The default answer to a ``Round``: ``Train``, or ``Gradients``, followed by the aggregation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from srfca import progress
from srfca.aggregation.outliers import clip_changes
from srfca.aggregation.rules import Aggregation
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, Replies, T
from srfca.federation.requests import Gradients, Request, Round, Train
from srfca.models.rows import as_slice


def ask(federation: Federation, request: Request[T]) -> Replies[T]:
    """Send any request; a ``Round`` is split up where the federation does not answer it itself.

    Args:
        federation: Whose clients are asked.
        request: Any request.

    Returns:
        The replies.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.random import Key
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> starts, labels = fed.initial_model(0).repeat(2, 1), np.array([0, 1, 0, 1])
        >>> request = Round(np.arange(4), starts, labels, LocalTraining(), Key(0, "demo"))
        >>> ask(fed, request).values.shape
        torch.Size([2, 4])
    """
    if isinstance(request, Round) and not federation.answers_rounds:
        return train_and_aggregate(federation, request)
    return federation.ask(request)


def train_and_aggregate(federation: Federation, request: Round) -> Replies[Tensor]:
    """Answer a round by ``Train`` (or ``Gradients``) requests to the same federation.

    Args:
        federation: Whose clients train.
        request: The round.

    Returns:
        The new models, ``[k, P]``.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.random import Key
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> starts, labels = fed.initial_model(0).repeat(2, 1), np.array([0, 1, 0, 1])
        >>> request = Round(np.arange(4), starts, labels, LocalTraining(), Key(0, "demo"))
        >>> train_and_aggregate(fed, request).values.equal(ask(fed, request).values)
        True
    """
    requested = request.clients
    order = np.argsort(request.labels, kind="stable")  # makes each cluster's rows contiguous
    request = request.select(order)
    models, labels = request.models, request.labels
    if len(models) == 1:
        starts = models.expand(len(labels), -1)
    else:
        starts = models[torch.as_tensor(labels, device=models.device)]
    replies = _exchange(federation, request, starts)
    labels, models = labels[replies.answered], models.to(replies.values.device)
    sizes = sizes_of(federation, request)
    rows = replies.values
    if request.max_change is not None:
        rows = clip_cluster_changes(rows, labels, models, request.max_change)
    aggregated = aggregate_clusters(
        rows, replies.clients, labels, models, sizes, request.aggregation
    )
    if request.shared is not None:
        common = aggregate_clusters(
            rows, replies.clients, 0 * labels, models[:1], sizes, request.aggregation
        )
        mask = request.shared.mask(models.shape[1], models.device)
        aggregated = torch.where(mask, common, aggregated)
    return replace(replies, requested=requested, values=aggregated)


def sizes_of(federation: Federation, request: Round) -> Tensor:
    """Return the sizes that clients count with in a round: ``[m]``."""
    sizes = federation.sizes
    if request.sizes is None:
        return sizes
    clients = torch.as_tensor(request.clients, device=sizes.device)
    return sizes.index_copy(0, clients, request.sizes.to(sizes))


def _exchange(federation: Federation, request: Round, starts: Tensor) -> Replies[Tensor]:
    """Ask for what clients send in a round: ``[c, P]``.

    With gradients the server's step is taken on each client's row. An aggregation commutes with
    translation and scaling of its rows, so the result is that of a step along the aggregate.
    """
    if request.server_lr is None:
        return federation.ask(Train(request.clients, starts, request.local, request.key))
    rate = replace(request.local, lr=request.server_lr).rate(request.key.round)
    replies = federation.ask(Gradients(request.clients, starts))
    progress.report(len(request.clients))
    if replies.missing:
        starts = starts[torch.as_tensor(replies.answered, device=starts.device)]
    values = starts.to(replies.values.device) - rate * replies.values
    return replace(replies, values=values)


def clip_cluster_changes(
    rows: Tensor, labels: Clients, models: Tensor, max_change: float
) -> Tensor:
    """Shorten changes of each cluster's model ``[k, P]`` that are much longer than the median one.

    Args:
        rows: ``[c, P]`` what the clients sent, cluster by cluster.
        labels: ``[c]`` the cluster of each client, ascending.
        models: ``[k, P]`` the models that the clients started from.
        max_change: The limit, in multiples of the cluster's median.
    """
    counts = np.bincount(labels, minlength=len(models)).tolist()
    parts = rows.split(counts)
    clipped = [
        clip_changes(part, model, max_change) for part, model in zip(parts, models, strict=True)
    ]
    if all(part is same for part, same in zip(clipped, parts, strict=True)):
        return rows
    return torch.cat(clipped)


def aggregate_clusters(
    rows: Tensor,
    clients: Clients,
    labels: Clients,
    models: Tensor,
    sizes: Tensor,
    aggregation: Aggregation,
) -> Tensor:
    """Aggregate the rows of each cluster.

    Args:
        rows: ``[c, P]`` what the clients sent.
        clients: ``[c]``
        labels: ``[c]`` the cluster of each client.
        models: ``[k, P]`` the models of the clusters; a cluster without rows keeps its model.
        sizes: ``[m]`` training samples of all clients.
        aggregation: How rows become one row.

    Returns:
        ``[k, P]``
    """
    sizes = sizes[torch.as_tensor(clients, device=sizes.device)].to(rows.device)

    def aggregate(cluster: int) -> Tensor:
        members = torch.from_numpy(np.flatnonzero(labels == cluster))
        if not len(members):
            return models[cluster]
        index = as_slice(members)
        return aggregation(rows[index], sizes[index])

    return torch.stack([aggregate(cluster) for cluster in range(len(models))])
