"""HypCluster: hypothesis-based clustering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from srfca.aggregation.rules import Mean
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.init import Centers, check_start_steps, distant_models
from srfca.methods._common.rounds import Exchange, resolve_server_lr
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.ifca import alternate
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class HypCluster(Method):
    """Train k models that start from distant clients; clients choose one every few rounds.

    Args:
        k: Number of clusters.
        rounds_between: Rounds of training between two choices of the clients.
        centers: Whose model is the next start: that of the client with the largest loss (``worst``)
            under the best of the models so far, or of one ``drawn`` in proportion to that loss.
        start_steps: How long such a client trains alone from w0; None is a quarter of the steps of
            ``local``.
        exchange: What clients send: ``models`` after some local steps, or full ``gradients``, along
            which the server steps with the learning rate and schedule of ``local``.
        server_lr: The server's learning rate for gradients; None is that of ``local``.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that choose, and train until the next choice.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> HypCluster(k=2, local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "hypcluster"
    name: ClassVar[str] = "HypCluster"
    paper: ClassVar[str] = (
        "Mansour, Mohri, Ro, Suresh: Three Approaches for Personalization with Applications to "
        "Federated Learning. 2020."
    )
    needs_k: ClassVar[bool] = True
    searched: ClassVar[Mapping[str, SearchSpace]] = {"rounds_between": Range(1, 10, integer=True)}

    k: int = constrained(2, at_least=1)
    rounds_between: int = constrained(5, at_least=1)
    centers: Centers = "worst"
    start_steps: int | None = None
    exchange: Exchange = "models"
    server_lr: float | None = constrained(None, more_than=0)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_start_steps(self.start_steps, self.local)

    def solve(self, run: Run) -> Answer:
        """Find the starts, then train them."""
        steps = self.start_steps or -(-self.local.steps // 4)
        models, clients = distant_models(
            run, self.k, self.local, steps, "hypcluster start", self.centers
        )
        outcome = alternate(
            run, "HYPCLUSTER", models, self.local, Mean(self.weighted),
            purpose="hypcluster", participation=self.participation,
            rounds_between=self.rounds_between,
            server_lr=resolve_server_lr(self.exchange, self.server_lr, self.local),
        )  # fmt: skip
        notes = {"starts": [run.client_ids[client] for client in clients]} | outcome.notes
        run.record("HYPCLUSTER", outcome.partition, outcome.client_models, notes=notes)
        return outcome.answer
