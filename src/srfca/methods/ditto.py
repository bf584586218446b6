"""Ditto: one model for everybody by FedAvg, and beside it a model of its own for every client.

Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through Personalization.
ICML 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation import trim_count
from srfca.errors import require
from srfca.federation.base import Tick, Work
from srfca.federation.counted import Counted
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.rounds import (
    aggregate_named,
    check_finite,
    cluster_round,
    counts,
    everybody,
    heard,
    participants,
    trained_models,
)
from srfca.methods.run import Run
from srfca.random import Key


@dataclass(frozen=True, kw_only=True)
class Ditto(Method):
    """FedAvg trains w; client k keeps a v_k that minimises ``F_k(v) + lambda/2 |v - w|^2``.

    Args:
        pull: lambda, how strongly a client's own model is pulled to w. With 0 clients train alone,
            and the more, the nearer they stay to the common model.
        aggregate: How w is made of the clients' models: ``mean``, ``trimmed_mean`` or ``median``.
        trim: beta of the trimmed mean, in [0, 1/2): at least the fraction of wrong clients.
        participation: The fraction of the clients that take part in a round. A client's own model
            begins with the w it first receives; one that is never drawn has the last w.
        personal_steps: As of every method (``Method``).
        personal_lr: Rate of the clients' own models; None is that of ``work``.
        work: How clients train, both w and their own models.
    """

    name: ClassVar[str] = "Ditto"
    clustered: ClassVar[bool] = False

    pull: float = 0.1
    aggregate: str = "mean"
    trim: float = 0.1
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.pull >= 0, f"pull must not be negative, but is {self.pull}")
        aggregate_named(self.aggregate, self.trim)
        trim_count(1, self.trim)
        require_share(self.participation)

    @property
    def trainings(self) -> float:
        """That of w, and that of the clients' own models."""
        return 2 * self.participation

    def solve(self, run: Run) -> Answer:
        """Train w and every client's own model side by side."""
        federation, partition = run.federation, everybody(run.federation)
        w0 = federation.initial(run.seed)
        w, v = w0.unsqueeze(0), w0.repeat(len(partition), 1)
        drawn = torch.zeros(len(partition), 1, dtype=torch.bool, device=w0.device)
        send = trained_models(federation, self.work)
        personal = replace(self.personal, prox=self.pull)
        aggregate = aggregate_named(self.aggregate, self.trim)
        steps = 2 * sum(counts(partition, self.participation)) * self.work.steps
        with run.stage("DITTO", steps) as tick:
            for number in range(self.work.rounds):
                key = Key(run.seed, "ditto", number)
                who = participants(federation, partition, self.participation, key)
                received, labels = w[0], partition.labels[who]
                w = cluster_round(federation, w, who, labels, send, aggregate, key, tick)
                own = Key(run.seed, "ditto personal", number)
                v = torch.where(drawn, v, received)
                v, sent = personal_round(federation, v, received, who, personal, own, tick)
                drawn[who[sent]] = True
            v = torch.where(drawn, v, w)
        run.record("DITTO", partition, v)
        return Answer(partition.labels, w, own=v)


def personal_round(
    federation: Counted,
    v: Tensor,
    w: Tensor,
    who: NDArray[np.int64],
    work: Work,
    key: Key,
    tick: Tick,
) -> tuple[Tensor, NDArray[np.bool_]]:
    """The clients ``who`` train their own models of ``v`` ``[m, P]``, pulled to w ``[P]``.

    Also which of them answered: ``[c]``.
    """
    at = torch.tensor(who, device=v.device)
    with federation.private():
        rows = federation.fit(v[at], who.tolist(), work, key, tick, w.expand(len(who), -1))
    sent = heard(federation, rows, who)
    what = "training of the clients' own models"
    rows = check_finite(federation, rows, who, what, otherwise=v[at])
    return v.index_copy(0, at, rows), sent
