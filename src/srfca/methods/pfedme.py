"""pFedMe: individual models that are pulled to a model, which is trained through them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from srfca.aggregation.rules import Mean
from srfca.errors import require
from srfca.federation.algorithms import Descent
from srfca.federation.algorithms.moreau import MoreauDescent
from srfca.federation.local_training import LocalTraining
from srfca.methods._common.averaging import average_rounds, personalize
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class PFedMe(Method):
    """Train w; client i has the theta_i that minimizes ``F_i(theta) + mu/2 |theta - w|^2``.

    Each of the ``local.local_steps`` of a round is a step of w, with ``inner_steps`` steps of
    theta_i on one batch before it.

    Args:
        mu: lambda in the paper: how strongly theta_i is pulled to w.
        inner_steps: K, the steps of theta_i in one step of w.
        outer_lr: eta, the learning rate of w; ``outer_lr * mu`` is at most 1.
        inner_lr: Learning rate of theta_i; None is that of ``local``, and at most ``1 / mu`` with
            SGD, above which the pull alone may diverge.
        server_lr: beta: how far the server goes to the mean of the clients' models.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> PFedMe(local=local).fit(federation).individual_models.shape
        torch.Size([8, 6])
    """

    key: ClassVar[str] = "pfedme"
    name: ClassVar[str] = "pFedMe"
    paper: ClassVar[str] = (
        "Dinh, Tran, Nguyen: Personalized Federated Learning with Moreau Envelopes. NeurIPS 2020."
    )
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "mu": Range(0.03, 30.0, log=True),
        "outer_lr": Range(0.01, 0.99, log=True, divided_by="mu"),
    }

    mu: float = constrained(15.0, more_than=0)
    inner_steps: int = constrained(5, at_least=1)
    outer_lr: float = constrained(0.005, more_than=0)
    inner_lr: float | None = constrained(None, more_than=0)
    server_lr: float = constrained(1.0, more_than=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.outer_lr * self.mu <= 1,
            f"outer_lr * mu must be at most 1, not {self.outer_lr:g} * {self.mu:g}: w would go "
            "beyond theta_i; lower outer_lr",
        )

    @property
    def trainings(self) -> float:
        """``inner_steps`` for w, and one round for the individual models."""
        one_round = len(self._inner.span(0)) / self.local.steps
        return self.participation * self.inner_steps + one_round

    @property
    def _inner(self) -> LocalTraining:
        """The steps of theta_i."""
        lr = self.inner_lr
        if lr is None:
            sgd = self.local.optimizer == "sgd"
            lr = min(self.local.lr, 1 / self.mu) if sgd else self.local.lr
        k, steps = self.inner_steps, self.local
        return replace(steps, steps=k * steps.steps, local_steps=k * steps.local_steps, lr=lr)

    def solve(self, run: Run) -> Answer:
        """Train w, then the individual models."""
        inner = self._inner
        algorithm = MoreauDescent(inner_steps=self.inner_steps, mu=self.mu, outer_lr=self.outer_lr)
        w = average_rounds(
            run, "PFEDME", "pfedme", inner, algorithm, Mean(self.weighted), self.participation,
            self.server_lr,
        )  # fmt: skip
        pull = replace(inner, mu=self.mu, schedule="constant")
        return personalize(run, "PERSONALIZE", "pfedme personal", w, pull, Descent())
