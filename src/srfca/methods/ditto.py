"""Ditto: a global model by FedAvg, and beside it an individual model for every client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.rules import Aggregation, Mean, Median, TrimmedMean
from srfca.errors import require
from srfca.federation.algorithms import Descent
from srfca.federation.replies import Clients, Replies
from srfca.federation.requests import Round, Scores, Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained

MU_FACTORS = (1.0, 0.1, 10.0)
"""What a client's candidates for mu are, as multiples of mu."""


@register
@dataclass(frozen=True, kw_only=True)
class Ditto(Method):
    """Train w by FedAvg; client k has a v_k that minimizes ``F_k(v) + mu/2 |v - w|^2``.

    The optimizer of an individual model keeps its state from round to round, because it is one
    training of one model.

    Args:
        mu: lambda in the paper: how strongly an individual model is pulled to w. With 0 clients
            train alone; the larger it is, the closer they stay to the global model.
        mu_per_client: Each client trains an individual model with a tenth of mu, with mu, and with
            ten times mu, and keeps the one of least loss on its held-out data.
        aggregation: How w is made of the clients' models: ``mean``, ``trimmed_mean`` or ``median``.
        trim: beta of the trimmed mean, in [0, 1/2): at least the fraction of corrupt clients.
        participation: The fraction of the clients that take part in a round. An individual model
            starts from the w that its client receives first; a client that is never drawn has the
            last w.
        fine_tune_lr: Learning rate of the individual models, and of fine-tuning; None is that of
            ``local``, and a quarter of it for fine-tuning.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> Ditto(mu=0.1, local=local).fit(federation).individual_models.shape
        torch.Size([8, 6])
    """

    key: ClassVar[str] = "ditto"
    name: ClassVar[str] = "Ditto"
    paper: ClassVar[str] = (
        "Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through "
        "Personalization. ICML 2021."
    )
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "mu": Range(0.01, 10.0, log=True),
        "fine_tune_lr": Range(0.001, 1.0, log=True),
    }

    mu: float = constrained(0.1, at_least=0)
    mu_per_client: bool = False
    aggregation: Literal["mean", "trimmed_mean", "median"] = "mean"
    trim: float = constrained(0.1, at_least=0, less_than=0.5)
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """That of w, and those of the individual models."""
        return (1 + len(self.candidates)) * self.participation

    @property
    def resolved(self) -> Mapping[str, float]:
        """The individual models have the learning rate of ``local`` by default."""
        return {"fine_tune_lr": self.local.lr}

    @property
    def candidates(self) -> tuple[float, ...]:
        """The values of mu that individual models are trained with, mu itself first."""
        return tuple(factor * self.mu for factor in (MU_FACTORS if self.mu_per_client else (1.0,)))

    @property
    def rule(self) -> Aggregation:
        """The aggregation rule."""
        if self.aggregation == "mean":
            return Mean()
        return TrimmedMean(self.trim) if self.aggregation == "trimmed_mean" else Median()

    def solve(self, run: Run) -> Answer:
        """Train w and the individual models side by side."""
        everyone, w0 = one_cluster(run), run.initial_model()
        require(
            not self.mu_per_client or "validation" in run.federation.splits,
            "mu_per_client needs held-out data, but this federation has no validation split",
        )
        w, server = w0.unsqueeze(0), ServerUpdate(run, self.local, self.local.rounds)
        v = w0.repeat(len(self.candidates), run.num_clients, 1)
        trained = torch.zeros(run.num_clients, 1, dtype=torch.bool, device=w0.device)
        steps = sum(num_participants(everyone, self.participation)) * self.local.steps
        with run.stage("DITTO", steps * (1 + len(self.candidates))):
            for number in range(self.local.rounds):
                key = run.key("ditto", number)
                clients = participants(run.federation, everyone, self.participation, key)
                received, labels = w[0], everyone.labels[clients]
                request = Round(clients, w, labels, self.local, key, self.rule)
                w = server.update(number, w, run.round(request))
                v = torch.where(trained, v, received)
                for place in range(len(self.candidates)):
                    replies = self._train_individual(
                        run, v[place], received, clients, place, number
                    )
                    replied = torch.tensor(replies.clients, device=w.device)
                    v[place, replied] = replies.values
                    trained[replied] = True
                run.end_round("DITTO", number, self.local.rounds, v[0])
            w = server.result(self.local.rounds - 1, w)
            v = torch.where(trained, v, w)
            best = self._best_candidates(run, v)
        individual_models = v[best, run.everyone]
        notes = {"mu": [self.candidates[place] for place in best]} if self.mu_per_client else None
        run.record("DITTO", everyone, individual_models, notes=notes)
        return Answer(everyone.labels, w, individual_models=individual_models)

    def _train_individual(
        self, run: Run, v: Tensor, received: Tensor, clients: Clients, place: int, number: int
    ) -> Replies[Tensor]:
        """Train the individual models ``[m, P]`` of some clients with one of the candidates."""
        lr = self.local.lr if self.fine_tune_lr is None else self.fine_tune_lr
        local = replace(
            self.local, lr=lr, mu=self.candidates[place], keep_state=self.local.has_state
        )
        pull = Descent(anchors=received.expand(len(clients), -1))
        key = run.key("ditto personal" if place == 0 else f"ditto personal {place}", number)
        starts = v[torch.tensor(clients, device=v.device)]
        request = Train(clients, starts, local, key, pull, private=True)
        return run.train(request, "training of the individual models")

    def _best_candidates(self, run: Run, v: Tensor) -> NDArray[np.int64]:
        """Return the place of each client's best candidate by its held-out data: ``[m]``."""
        losses = torch.full(v.shape[:2], torch.inf, dtype=torch.float64)
        losses[0] = torch.finfo(torch.float64).max  # of clients that do not reply
        for place, models in enumerate(v if len(v) > 1 else ()):
            replies = run.ask(Scores(run.everyone, models, "validation"))
            losses[place, replies.clients] = replies.values.loss.cpu().double()
        return np.asarray(losses.nan_to_num(nan=torch.inf).argmin(0).numpy())
