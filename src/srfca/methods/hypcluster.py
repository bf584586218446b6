"""HypCluster: hypothesis-based clustering.

Mansour, Mohri, Ro, Suresh: Three Approaches for Personalization with Applications to Federated
Learning. 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from srfca.errors import require_positive, unknown
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.ifca import alternate, check_average, server_rate
from srfca.methods.rounds import plain_mean, weighted_mean
from srfca.methods.run import Run
from srfca.methods.starts import check_start_steps, distant_models

CENTRES = ("worst", "drawn")


@dataclass(frozen=True, kw_only=True)
class HypCluster(Method):
    """k models from clients that are far apart; clients choose one, and train it for some rounds.

    Args:
        k: Number of clusters.
        rounds_between: Rounds of training between two choices of the clients.
        centres: Whose model is the next start: that of the client that does ``worst`` under the
            best of those there are, or of a client ``drawn`` with a chance in proportion to that
            loss.
        start_steps: How long such a client trains alone from w0; None is a quarter of the
            steps of ``work``.
        average: What clients send: ``models`` after some local steps, or whole ``gradients``, of
            which the server takes plain steps by the rate and the schedule of ``work``.
        server_lr: The server's rate when gradients are sent; None is the rate of ``work``.
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of the clients that choose, and train until the next choice.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "HypCluster"

    k: int = 2
    rounds_between: int = 5
    centres: str = "worst"
    start_steps: int | None = None
    average: str = "models"
    server_lr: float | None = None
    weighted: bool = True
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(k=self.k, rounds_between=self.rounds_between)
        if self.centres not in CENTRES:
            raise unknown("centres", self.centres, CENTRES)
        check_average(self.average, self.server_lr)
        check_start_steps(self.start_steps, self.work)
        require_share(self.participation)

    @property
    def _alone(self) -> int:
        """How many steps a client trains alone, if its model is to be a start."""
        return self.start_steps or -(-self.work.steps // 4)

    def solve(self, run: Run) -> Answer:
        """Find the starts, then train them."""
        models, centres = distant_models(
            run, self.k, self.work, self._alone, "hypcluster start", self.centres
        )
        found = alternate(
            run, "HYPCLUSTER", models, self.work, weighted_mean if self.weighted else plain_mean,
            purpose="hypcluster", participation=self.participation,
            rounds_between=self.rounds_between,
            server_lr=server_rate(self.average, self.server_lr, self.work),
        )  # fmt: skip
        names = [run.federation.clients[c] for c in centres]
        run.record(
            "HYPCLUSTER",
            found.partition,
            found.client_models,
            notes={"starts": names} | found.notes,
        )
        return found.answer
