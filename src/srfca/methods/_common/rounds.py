"""Local and federated training: what all methods share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.rules import Aggregation
from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients
from srfca.federation.requests import Losses, Round, Train
from srfca.methods._common import row_store
from srfca.methods._common.run import Run
from srfca.methods._common.server_update import ServerUpdate
from srfca.random import Key, client_words, streams

Exchange = Literal["models", "gradients"]
"""What clients send in a round: their trained models, or full gradients."""


@dataclass(frozen=True)
class LocalModels:
    """Models that clients trained alone.

    Args:
        rows: ``[m, P]``; clients that did not reply have the initial model.
        replied: ``[m]`` whether a client replied.

    Examples:
        >>> local_models = LocalModels(torch.tensor([[1.0], [0.0]]), np.array([True, False]))
        >>> local_models.clients.tolist(), local_models.answered.tolist()
        ([0], [[1.0]])
    """

    rows: Tensor
    replied: NDArray[np.bool_]

    @property
    def clients(self) -> Clients:
        """The clients that replied: ``[c]``."""
        return np.flatnonzero(self.replied)

    @property
    def answered(self) -> Tensor:
        """The models of the clients that replied: ``[c, P]``."""
        return self.rows if self.replied.all() else self.rows[torch.as_tensor(self.replied)]


def train_locally(run: Run, local: LocalTraining, key: Key, private: bool = False) -> LocalModels:
    """Train every client alone from the initial model through all steps.

    The models are on disk if they are too many for the memory.

    Args:
        run: The run.
        local: How clients train.
        key: The training.
        private: The models need not be sent (``Train.private``).

    Returns:
        The models of all clients.

    Raises:
        InputError: If a model diverges.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import Run
        >>> run = Run(Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3)))
        >>> train_locally(run, LocalTraining(steps=5), run.key("demo")).rows.shape
        torch.Size([4, 4])
    """
    w0, alone = run.initial_model(), replace(local, local_steps=local.steps)
    everyone, fits = run.everyone, row_store.fits(run.num_clients, w0)
    length = run.num_clients if fits else row_store.block_length(w0)
    rows = w0.new_empty(0) if fits else row_store.on_disk(run.num_clients, w0)
    replied = np.zeros(run.num_clients, dtype=bool)
    for clients in np.split(everyone, range(length, run.num_clients, length)):
        starts = w0.expand(len(clients), -1)
        replies = run.train(Train(clients, starts, alone, key, private=private))
        replied[clients] = replies.answered
        block = replies.fill(starts)
        if fits:
            rows = block
        else:
            rows[clients[0] : clients[-1] + 1] = block.to(rows.device)
    return LocalModels(rows, replied)


def num_rounds(local: LocalTraining, server_lr: float | None) -> int:
    """Return the rounds of a whole training; gradients are exchanged at every step."""
    return local.rounds if server_lr is None else local.steps


def resolve_server_lr(
    exchange: Exchange, server_lr: float | None, local: LocalTraining
) -> float | None:
    """Return the server's learning rate if clients send gradients, None if they send models."""
    return (server_lr or local.lr) if exchange == "gradients" else None


def federated_training(
    run: Run,
    stage: str,
    models: Tensor,
    partition: Partition,
    local: LocalTraining,
    aggregation: Aggregation,
    *,
    purpose: str,
    participation: float = 1.0,
    server_lr: float | None = None,
    project: Callable[[Tensor], Tensor] = lambda rows: rows,
    rounds: range | None = None,
    max_change: float | None = None,
) -> Tensor:
    """Train one model for each cluster.

    Args:
        run: The run.
        stage: Its name, for progress.
        models: ``[k, P]`` to start from.
        partition: The clusters.
        local: How clients train.
        aggregation: How the rows of a cluster become one row.
        purpose: Purpose of the random draws.
        participation: The fraction of each cluster's clients that take part in a round.
        server_lr: If given, clients send gradients at every step.
        project: Applied to the models after every round.
        rounds: The rounds to do now, None for all of them.
        max_change: Bound on the changes of a cluster's model (``Round.max_change``).

    Returns:
        The trained models, ``[k, P]``.

    Examples:
        >>> from srfca import LocalTraining, Partition, Simulation, data, models
        >>> from srfca.aggregation import Mean
        >>> from srfca.methods import Run
        >>> run = Run(Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3)))
        >>> w0, local = run.initial_model().repeat(2, 1), LocalTraining(steps=10)
        >>> partition = Partition([0, 1, 0, 1])
        >>> federated_training(run, "DEMO", w0, partition, local, Mean(), purpose="demo").shape
        torch.Size([2, 4])
    """
    count = num_rounds(local, server_lr)
    rounds = range(count) if rounds is None else rounds
    steps = local.steps * len(rounds) // count
    with run.stage(stage, sum(num_participants(partition, participation)) * steps):
        training = f"{stage}, {purpose}, {rounds}"
        server = ServerUpdate(run, local, count)
        state = {"models": models, "done": torch.tensor(0), **server.state(models)}
        if not local.stateful:
            state = run.latest(training, **state)
        models = state["models"]
        server.restore(state)
        for number in rounds[int(state["done"]) :]:
            key = run.key(purpose, number)
            clients = participants(run.federation, partition, participation, key)
            labels = partition.labels[clients]
            request = Round(
                clients, models, labels, local, key, aggregation, server_lr, max_change=max_change
            )
            models = project(server.step(models, run.round(request)))
            server.add(number, models)
            run.end_round(stage, number, count, models, partition.labels)
            if not local.stateful:
                done = torch.tensor(number - rounds.start + 1)
                run.checkpoint(training, models=models, done=done, **server.state(models))
    return server.result(rounds.stop - 1, models)


def participants(
    federation: Federation, partition: Partition, participation: float, key: Key
) -> Clients:
    """Draw the clients of a round: the given fraction of each cluster, rounded up.

    Args:
        federation: The clients.
        partition: The clusters.
        participation: The fraction.
        key: Key of the random draw.

    Returns:
        Clients in ascending order, ``[c]``.

    Examples:
        >>> from srfca import Partition, Simulation, data, models
        >>> from srfca.random import Key
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> partition = Partition([0, 1, 0, 1])
        >>> drawn = participants(fed, partition, 0.5, Key(0, "demo"))
        >>> sorted(client % 2 for client in drawn.tolist())  # one of each cluster
        [0, 1]
    """
    clustered = np.flatnonzero(partition.labels >= 0)
    if participation >= 1:
        return clustered
    draws = streams(key, client_words(federation.client_ids)).numpy()
    chosen = [
        members[np.argsort(draws[members], kind="stable")[:count]]
        for members, count in zip(
            partition, num_participants(partition, participation), strict=True
        )
    ]
    return np.sort(np.concatenate(chosen))


def num_participants(partition: Partition, participation: float) -> list[int]:
    """Return how many clients of each cluster take part in a round.

    Args:
        partition: The clusters.
        participation: The fraction of a cluster's clients, rounded up.

    Returns:
        One number for each cluster.

    Examples:
        >>> from srfca import Partition
        >>> num_participants(Partition([0, 0, 0, 1]), 0.5)
        [2, 1]
    """
    return [int(np.ceil(participation * size - 1e-9)) for size in partition.sizes]


def one_cluster(run: Run) -> Partition:
    """Return all clients in one cluster.

    Args:
        run: The run.

    Returns:
        The partition.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.methods import Run
        >>> run = Run(Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3)))
        >>> one_cluster(run)
        Partition(4 in cluster 0)
    """
    return Partition(np.zeros(run.num_clients, dtype=np.int64))


def best_models(run: Run, models: Tensor, clients: Clients) -> tuple[Clients, Clients]:
    """Find the model of least training loss for each client.

    Args:
        run: The run.
        models: ``[k, P]``
        clients: ``[c]``

    Returns:
        The clients that replied, and the model of each: two arrays ``[c]``.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.methods import Run
        >>> run = Run(Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3)))
        >>> models = torch.tensor([[99.0] * 4, [0.0] * 4])
        >>> best_models(run, models, run.everyone)[1].tolist()
        [1, 1, 1, 1]
    """
    replies = run.ask(Losses(clients, models))
    return replies.clients, argmin_loss(replies.values)


def argmin_loss(losses: Tensor) -> NDArray[np.int64]:
    """Return the position of the least of each client's losses ``[c, k]``, first on a tie: ``[c]``.

    A loss that is NaN (the model is that bad) counts as infinite.

    Args:
        losses: ``[c, k]``

    Returns:
        ``[c]``

    >>> argmin_loss(torch.tensor([[3.0, 2.0], [1.0, torch.nan]])).tolist()
    [1, 0]
    """
    return np.asarray(losses.masked_fill(losses.isnan(), torch.inf).argmin(1).cpu().numpy())


def trained_part(run: Run, rows: Tensor) -> Tensor:
    """Return the trained coordinates of rows ``[c, P]``, without buffers such as BatchNorm's.

    Args:
        run: The run.
        rows: ``[c, P]``

    Returns:
        ``[c, n]``

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.methods import Run
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> trained_part(Run(fed), torch.zeros(2, 650)).shape  # this model has no buffers
        torch.Size([2, 650])
    """
    return Coordinates.trained(run.layers).take(rows)


def split_layers(run: Run, head_layers: int) -> tuple[Coordinates, Coordinates]:
    """Return the coordinates of the body, buffers included, and of the head: the last layers.

    Raises:
        InputError: If no layer remains for the body.
    """
    layers = list(run.layers)
    require(
        1 <= head_layers < len(layers),
        f"head_layers must be from 1 to {len(layers) - 1} for a model of {len(layers)} layers, "
        f"not {head_layers}",
    )
    head = Coordinates.of_layers(run.layers, layers[-head_layers:])
    return head.complement(len(run.initial_model())), head


def require_clients(num_clients: int, k: int | None) -> None:
    """Raise an error if there are more clusters than clients."""
    require(k is None or k <= num_clients, f"k={k} is more than the {num_clients} clients")


def require_replies(clients: Clients, k: int | None = None) -> None:
    """Raise an error if fewer clients replied than there are to be clusters."""
    minimum = 1 if k is None else k
    require(
        len(clients) >= minimum,
        f"only {len(clients)} clients replied, but {minimum} or more are needed",
    )
