"""FedAvg with any local algorithm, and models that clients make of the average in the end."""

from __future__ import annotations

import torch
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.federation.algorithms import LocalAlgorithm
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
) -> Tensor:
    """Train one model by rounds from the initial model.

    Args:
        run: The run.
        stage: Its name, for progress.
        purpose: Of the random draws.
        local: How clients train.
        algorithm: What clients do in their steps; it has no tensors.
        aggregation: The mean, weighted or not.
        participation: The fraction of the clients that take part in a round.
        server_lr: How far the server goes to the mean of the clients' models.

    Returns:
        The model, ``[P]``.
    """
    everyone, w = one_cluster(run), run.initial_model()
    server = ServerUpdate(run, local, local.rounds)
    with run.stage(stage, sum(num_participants(everyone, participation)) * local.steps):
        for number in range(local.rounds):
            key = run.key(purpose, number)
            clients = participants(run.federation, everyone, participation, key)
            replies = run.train(Train(clients, w.expand(len(clients), -1), local, key, algorithm))
            if len(replies.clients):
                sizes = run.sizes[torch.as_tensor(replies.clients, device=run.sizes.device)]
                mean = aggregation(replies.values, sizes.to(replies.values.device))
                stepped = w + server_lr * (mean.to(w) - w)
                w = server.update(number, w.unsqueeze(0), stepped.unsqueeze(0))[0]
            run.end_round(stage, number, local.rounds, w.unsqueeze(0), everyone.labels)
    return server.result(local.rounds - 1, w.unsqueeze(0))[0]


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
