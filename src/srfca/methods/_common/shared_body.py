"""A body that all clients share, and a head for each client that stays with it."""

from __future__ import annotations

import numpy as np

from srfca.aggregation.rules import Mean
from srfca.federation.algorithms import Descent
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.federation.requests import Personal, Train
from srfca.federation.rounds import aggregate_clusters
from srfca.methods._common.base import Answer, record_personal
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.server_update import ServerUpdate


def train_body(
    run: Run,
    stage: str,
    purpose: str,
    local: LocalTraining,
    head: Coordinates,
    descent: Descent,
    aggregation: Mean,
    participation: float,
) -> Answer:
    """Train a shared body by rounds, and a head for each client that stays with it.

    Args:
        run: The run.
        stage: Its name.
        purpose: Purpose of the random draws.
        local: How clients train.
        head: The coordinates that stay with the clients.
        descent: What clients do in their steps.
        aggregation: The mean, weighted or not.
        participation: The fraction of the clients that take part in a round.
    """
    everyone, w = one_cluster(run), run.initial_model().unsqueeze(0)
    body = head.complement(w.shape[1])
    has_head = np.zeros(run.num_clients, dtype=bool)
    personal, server = Personal(head, run.seed, purpose), ServerUpdate(run, local, local.rounds)
    with run.stage(stage, sum(num_participants(everyone, participation)) * local.steps):
        for number in range(local.rounds):
            key = run.key(purpose, number)
            clients = participants(run.federation, everyone, participation, key)
            starts = w.expand(len(clients), -1)
            replies = run.train(Train(clients, starts, local, key, descent, head))
            has_head[replies.clients] = True
            means = aggregate_clusters(
                replies.values, replies.clients, 0 * replies.clients, body.take(w), run.sizes,
                aggregation,
            )  # fmt: skip
            w = server.update(number, w, body.put(w, means))
            labels = np.where(has_head, 0, -1)
            run.end_round(stage, number, local.rounds, w, labels, personal)
    w = server.result(local.rounds - 1, w)
    return record_personal(run, stage, w, personal, has_head)
