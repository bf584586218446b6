"""Global: one model for everybody by FedAvg.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data. AISTATS 2017.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import numpy as np
from torch import Tensor

from srfca.aggregation import mean
from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.base import Federation, Work
from srfca.methods.result import Result
from srfca.methods.rounds import counts, federated_training, trained_models, weighted_mean
from srfca.methods.run import Monitor, Recorder


@dataclass(frozen=True, kw_only=True)
class Global:
    """FedAvg over all clients.

    Args:
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of the clients that take part in a round.
        work: How clients train.
    """

    weighted: bool = True
    participation: float = 1.0
    work: Work = field(default_factory=Work)

    def __post_init__(self) -> None:
        require(
            0 < self.participation <= 1,
            f"participation must be in (0, 1], not {self.participation}",
        )

    def fit(self, federation: Federation, seed: int = 0, monitor: Monitor | None = None) -> Result:
        """Train the one model."""
        m = len(federation.clients)
        everybody = Partition(np.zeros(m, dtype=np.int64))
        run = Recorder(federation, monitor)

        def plain_mean(rows: Tensor, sizes: Tensor) -> Tensor:
            return mean(rows)

        taking_part = sum(counts(everybody, self.participation))
        with run.stage("FEDAVG", taking_part * self.work.steps) as tick:
            models = federated_training(
                federation, federation.initial(seed).unsqueeze(0), everybody, self.work.rounds,
                trained_models(federation, self.work, tick),
                weighted_mean if self.weighted else plain_mean,
                seed=seed, purpose="fedavg", participation=self.participation,
            )  # fmt: skip
        run.record("FEDAVG", everybody, models.expand(m, -1))
        return Result(
            method="Global",
            parameters=asdict(self),
            seed=seed,
            clients=tuple(federation.clients),
            labels=everybody.labels,
            models=models,
            history=tuple(run.history),
            clustered=False,
        )
