"""Local: every client trains alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from srfca.clustering.partition import Partition
from srfca.federation.base import Federation, Work
from srfca.methods.result import Result
from srfca.methods.rounds import local_training
from srfca.methods.run import Monitor, Recorder
from srfca.random import Key


@dataclass(frozen=True, kw_only=True)
class Local:
    """Every client trains alone from the common start.

    Args:
        work: How clients train.
    """

    work: Work = field(default_factory=Work)

    def fit(self, federation: Federation, seed: int = 0, monitor: Monitor | None = None) -> Result:
        """Train a model for each client."""
        m = len(federation.clients)
        run = Recorder(federation, monitor)
        with run.stage("LOCAL", m * self.work.steps) as tick:
            start, key = federation.initial(seed), Key(seed, "local")
            models = local_training(federation, start, self.work, key, tick)
        alone = Partition(range(m))
        run.record("LOCAL", alone, models)
        return Result(
            method="Local",
            parameters=asdict(self),
            seed=seed,
            clients=tuple(federation.clients),
            labels=alone.labels,
            models=models,
            history=tuple(run.history),
            clustered=False,
        )
