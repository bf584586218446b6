"""What the server makes of the aggregated models of a round: momentum, and a mean of rounds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.methods._common.run import Run


class ServerUpdate:
    """Server momentum, and the mean of the models of the last rounds.

    ``LocalTraining.server_momentum`` is that of FedAvgM (Hsu, Qi, Brown: Measuring the Effects of
    Non-Identical Data Distribution for Federated Visual Classification, 2019). Buffers such as
    BatchNorm's have no momentum. ``LocalTraining.average_last`` does not change what clients
    continue from. Both start again when the number of models changes.

    Args:
        run: The run.
        local: How clients train.
        rounds: The number of rounds of the whole training.
    """

    def __init__(self, run: Run, local: LocalTraining, rounds: int) -> None:
        self._momentum, self._trained = local.server_momentum, Coordinates.trained(run.layers)
        self._velocity: Tensor | None = None
        self._averages = local.average_last > 0
        self._rounds = rounds
        self._first = rounds - max(1, round(local.average_last * rounds))
        self._mean: Tensor | None = None
        self._count = 0

    def step(self, before: Tensor, aggregated: Tensor) -> Tensor:
        """Return the models that the next round starts from: ``[k, P]``.

        Args:
            before: ``[k, P]`` that this round started from.
            aggregated: ``[k, P]`` that it ended with.
        """
        if self._momentum == 0:
            return aggregated
        change = self._trained.take(aggregated - before)
        if self._velocity is not None and self._velocity.shape == change.shape:
            change = change + self._momentum * self._velocity
        self._velocity = change
        return self._trained.put(aggregated, self._trained.take(before) + change)

    def update(self, number: int, before: Tensor, aggregated: Tensor) -> Tensor:
        """Do ``step`` and ``add`` for a round, whose number is from 0."""
        models = self.step(before, aggregated)
        self.add(number, models)
        return models

    def add(self, number: int, models: Tensor) -> None:
        """Add the models ``[k, P]`` after a round, whose number is from 0, to the mean."""
        if not self._averages or number < self._first:
            return
        if self._mean is None or self._mean.shape != models.shape:
            self._mean, self._count = models.clone(), 1
            return
        self._count += 1
        self._mean = torch.lerp(self._mean, models, 1 / self._count)

    def result(self, number: int, models: Tensor) -> Tensor:
        """Return the mean if this round, from 0, was the last one, else the models as they are."""
        return models if self._mean is None or number != self._rounds - 1 else self._mean

    def state(self, models: Tensor) -> dict[str, Tensor]:
        """Return the state for a checkpoint, on the device of the models ``[k, P]``."""
        state, empty = {}, models.new_empty(0)
        if self._momentum > 0:
            state["velocity"] = empty if self._velocity is None else self._velocity
        if self._averages:
            state["average"] = empty if self._mean is None else self._mean
            state["averaged"] = torch.tensor(self._count)
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state."""
        if self._momentum > 0 and state["velocity"].numel():
            self._velocity = state["velocity"]
        if self._averages and int(state["averaged"]):
            self._mean, self._count = state["average"], int(state["averaged"])
