"""Averages of the models of a training's last rounds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from srfca.federation.local_training import LocalTraining


class TailAverage:
    """The mean of the models of the last rounds, as ``LocalTraining.average_last`` says.

    Averaging is on the server alone: clients always go on from the latest models. It starts again
    when the number of models changes.

    Args:
        local: How clients train.
        rounds: The number of rounds of the whole training.
    """

    def __init__(self, local: LocalTraining, rounds: int) -> None:
        self._active = local.average_last > 0
        self._rounds = rounds
        self._first = rounds - max(1, round(local.average_last * rounds))
        self._mean: Tensor | None = None
        self._count = 0

    def add(self, number: int, models: Tensor) -> None:
        """Add the models ``[k, P]`` after a round, whose number is from 0."""
        if not self._active or number < self._first:
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
        if not self._active:
            return {}
        mean = models.new_empty(0) if self._mean is None else self._mean
        return {"average": mean, "averaged": torch.tensor(self._count)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state."""
        if self._active and int(state["averaged"]):
            self._mean, self._count = state["average"], int(state["averaged"])
