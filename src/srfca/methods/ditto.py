"""Ditto: a global model by FedAvg, and beside it an individual model for every client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from srfca.aggregation.rules import Aggregation, Mean, Median, TrimmedMean
from srfca.federation.algorithms import Descent
from srfca.federation.requests import Round, Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class Ditto(Method):
    """Train w by FedAvg; client k has a v_k that minimizes ``F_k(v) + mu/2 |v - w|^2``.

    Args:
        mu: lambda in the paper: how strongly an individual model is pulled to w. With 0 clients
            train alone; the larger it is, the closer they stay to the global model.
        aggregation: How w is made of the clients' models: ``mean``, ``trimmed_mean`` or ``median``.
        trim: beta of the trimmed mean, in [0, 1/2): at least the fraction of corrupt clients.
        participation: The fraction of the clients that take part in a round. An individual model
            starts from the w that its client receives first; a client that is never drawn has the
            last w.
        fine_tune_lr: Learning rate of the individual models, and of fine-tuning; None is that of
            ``local``, and a quarter of it for fine-tuning.
    """

    key: ClassVar[str] = "ditto"
    name: ClassVar[str] = "Ditto"
    paper: ClassVar[str] = (
        "Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through "
        "Personalization. ICML 2021."
    )
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False

    mu: float = constrained(0.1, at_least=0)
    aggregation: Literal["mean", "trimmed_mean", "median"] = "mean"
    trim: float = constrained(0.1, at_least=0, less_than=0.5)
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """That of w, and that of the individual models."""
        return 2 * self.participation

    @property
    def rule(self) -> Aggregation:
        """The aggregation rule."""
        if self.aggregation == "mean":
            return Mean()
        return TrimmedMean(self.trim) if self.aggregation == "trimmed_mean" else Median()

    def solve(self, run: Run) -> Answer:
        """Train w and the individual models side by side."""
        everyone, w0 = one_cluster(run), run.initial_model()
        w, v = w0.unsqueeze(0), w0.repeat(run.num_clients, 1)
        trained = torch.zeros(run.num_clients, 1, dtype=torch.bool, device=w0.device)
        lr = self.local.lr if self.fine_tune_lr is None else self.fine_tune_lr
        local = replace(self.local, lr=lr, mu=self.mu)
        steps = 2 * sum(num_participants(everyone, self.participation)) * self.local.steps
        with run.stage("DITTO", steps):
            for number in range(self.local.rounds):
                key = run.key("ditto", number)
                clients = participants(run.federation, everyone, self.participation, key)
                received, labels = w[0], everyone.labels[clients]
                w = run.round(Round(clients, w, labels, self.local, key, self.rule))
                v = torch.where(trained, v, received)
                index = torch.tensor(clients, device=v.device)
                pull = Descent(anchors=received.expand(len(clients), -1))
                key = run.key("ditto personal", number)
                request = Train(clients, v[index], local, key, pull, private=True)
                replies = run.train(request, "training of the individual models")
                replied = torch.tensor(replies.clients, device=v.device)
                v = v.index_copy(0, replied, replies.values)
                trained[replied] = True
                run.end_round("DITTO", number, self.local.rounds, v)
            v = torch.where(trained, v, w)
        run.record("DITTO", everyone, v)
        return Answer(everyone.labels, w, individual_models=v)
