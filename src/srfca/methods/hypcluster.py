"""HypCluster: hypothesis-based clustering.

Mansour, Mohri, Ro, Suresh: Three Approaches for Personalization with Applications to Federated
Learning. 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import require_positive, unknown
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.ifca import (
    alternate,
    check_average,
    check_start_steps,
    drawn_clients,
    server_rate,
    solo_models,
)
from srfca.methods.rounds import plain_mean, weighted_mean
from srfca.methods.run import Run
from srfca.random import Key, bits

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
        average: What clients send: ``models`` after some local steps, or whole ``gradients``.
        server_lr: The server's rate when gradients are sent; None is the rate of ``work``.
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of the clients that choose, and train until the next choice.
        personal_steps: As of every method (``Method``).
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
    def trainings(self) -> float:
        """Of a client whose model is a start; of the others, 1."""
        return 1 + self._alone / self.work.steps

    @property
    def _alone(self) -> int:
        """How many steps a client trains alone, if its model is to be a start."""
        return self.start_steps or -(-self.work.steps // 4)

    def solve(self, run: Run) -> Answer:
        """Find the starts, then train them."""
        models, centres = self.kmeans_start(run)
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

    def kmeans_start(self, run: Run) -> tuple[Tensor, list[int]]:
        """The models ``[k, P]`` of k clients, the first at random, and who they are."""
        federation, m = run.federation, len(run.federation.clients)
        [first] = drawn_clients(federation, self.k, Key(run.seed, "hypcluster start"))[:1]
        centres, models = [int(first)], []
        best = np.full(m, np.inf)
        with run.stage("START", self.k * self._alone) as tick:
            while True:
                who = np.array(centres[-1:])
                models.append(
                    solo_models(run, who, self.work, self._alone, "hypcluster start", tick)
                )
                if len(centres) == self.k:
                    return torch.cat(models), centres
                losses = federation.losses(models[-1], range(m))[0].cpu().double().numpy()
                best = np.minimum(best, losses)
                key = Key(run.seed, "hypcluster centre", len(centres))
                centres.append(next_centre(best, centres, self.centres, key))


def next_centre(best: NDArray[np.float64], taken: list[int], how: str, key: Key) -> int:
    """A client that is not taken yet, by its loss ``[m]`` under the best centre there is."""
    weights = best.copy()
    weights[taken] = -1.0
    if how == "worst":
        return int(weights.argmax())
    sums = np.cumsum(weights.clip(min=0.0))
    chance = (int(bits(torch.tensor(key.word()), 1)) & (2**53 - 1)) / 2**53
    return int(np.searchsorted(sums, chance * sums[-1], side="right"))
