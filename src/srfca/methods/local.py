"""Local: every client trains alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from srfca.clustering.partition import Partition
from srfca.methods.base import Answer, Method
from srfca.methods.rounds import local_training
from srfca.methods.run import Run
from srfca.random import Key


@dataclass(frozen=True, kw_only=True)
class Local(Method):
    """Every client trains alone from the common start.

    Args:
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "Local"
    clustered: ClassVar[bool] = False

    def solve(self, run: Run) -> Answer:
        """Train a model for each client."""
        federation = run.federation
        m = len(federation.clients)
        with run.stage("LOCAL", m * self.work.steps) as tick, federation.private():
            start, key = federation.initial(run.seed), Key(run.seed, "local")
            models = local_training(federation, start, self.work, key, tick)
        alone = Partition(range(m))
        run.record("LOCAL", alone, models)
        return Answer(alone.labels, models)
