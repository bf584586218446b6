"""FedAvg with any local algorithm, and models that clients make of the average in the end."""

from __future__ import annotations

import torch
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.federation.algorithms import LocalAlgorithm
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.federation.requests import Train
from srfca.methods._common.base import Answer
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.server_update import ServerUpdate


def average_rounds(
    run: Run,
    stage: str,
    purpose: str,
    local: LocalTraining,
    algorithm: LocalAlgorithm,
    aggregation: Mean,
    participation: float = 1.0,
    server_lr: float = 1.0,
    start: Tensor | None = None,
    rounds: int | None = None,
    server: ServerAdam | None = None,
) -> Tensor:
    """Train one model by rounds.

    Args:
        run: The run.
        stage: Its name, for progress.
        purpose: Purpose of the random draws.
        local: How clients train.
        algorithm: What clients do in their steps; it has no tensors.
        aggregation: The mean, weighted or not.
        participation: The fraction of the clients that take part in a round.
        server_lr: How far the server goes to the mean of the clients' models.
        start: ``[P]`` the model to start from; None is the initial model.
        rounds: The number of rounds; None is that of ``local``.
        server: The server's optimizer, instead of steps of ``server_lr``.

    Returns:
        The model, ``[P]``.
    """
    everyone, w = one_cluster(run), run.initial_model() if start is None else start
    rounds = local.rounds if rounds is None else rounds
    updates = ServerUpdate(run, local, rounds)
    steps = min(local.steps, rounds * local.local_steps)
    with run.stage(stage, sum(num_participants(everyone, participation)) * steps):
        for number in range(rounds):
            key = run.key(purpose, number)
            clients = participants(run.federation, everyone, participation, key)
            replies = run.train(Train(clients, w.expand(len(clients), -1), local, key, algorithm))
            if len(replies.clients):
                sizes = run.sizes[torch.as_tensor(replies.clients, device=run.sizes.device)]
                mean = aggregation(replies.values, sizes.to(replies.values.device))
                change = mean.to(w) - w
                stepped = w + (server_lr * change if server is None else server.step(change))
                w = updates.update(number, w.unsqueeze(0), stepped.unsqueeze(0))[0]
            run.end_round(stage, number, rounds, w.unsqueeze(0), everyone.labels)
    return updates.result(rounds - 1, w.unsqueeze(0))[0]


class ServerAdam:
    """Adam on the changes of one model, as if they were negative gradients.

    Buffers such as BatchNorm's take the mean.

    Args:
        lr: The learning rate.
        trained: The coordinates that it is for.

    >>> adam = ServerAdam(0.1, Coordinates.trained({"layer": slice(0, 2)}))
    >>> adam.step(torch.tensor([4.0, -0.5, 7.0]))
    tensor([ 0.1000, -0.1000,  7.0000])
    """

    def __init__(self, lr: float, trained: Coordinates) -> None:
        self._lr, self._trained, self._count = lr, trained, 0
        self._first: Tensor | None = None
        self._second: Tensor | None = None

    def step(self, change: Tensor) -> Tensor:
        """Return what is added to the model ``[P]``, given a change ``[P]``."""
        rows = change.unsqueeze(0)
        gradient = self._trained.take(rows)
        first = torch.zeros_like(gradient) if self._first is None else self._first
        second = torch.zeros_like(gradient) if self._second is None else self._second
        self._first = torch.lerp(first, gradient, 0.1)
        self._second = torch.lerp(second, gradient.square(), 0.001)
        self._count += 1
        mean = self._first / (1 - 0.9**self._count)
        scale = (self._second / (1 - 0.999**self._count)).sqrt() + 1e-8
        return self._trained.put(rows, self._lr * mean / scale)[0]


def personalize(
    run: Run, stage: str, purpose: str, w: Tensor, local: LocalTraining, algorithm: LocalAlgorithm
) -> Answer:
    """Let every client train its own model from w ``[P]`` in one round, and record the stage.

    The models stay with the clients; a client that does not reply has w.
    """
    everyone, starts = one_cluster(run), w.expand(run.num_clients, -1)
    one_round = Train(run.everyone, starts, local, run.key(purpose), algorithm, private=True)
    with run.stage(stage, run.num_clients * one_round.steps):
        replies = run.train(one_round, "training of the individual models")
    individual_models = replies.fill(starts).to(w)
    run.record(stage, everyone, individual_models)
    return Answer(everyone.labels, w.unsqueeze(0), individual_models=individual_models)
