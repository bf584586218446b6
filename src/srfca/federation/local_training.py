"""How a client trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi, sqrt
from typing import Literal

from srfca.errors import require
from srfca.parameters import check_parameters, constrained

OptimizerName = Literal["sgd", "adam"]
Schedule = Literal["constant", "linear", "cosine", "step", "inverse_sqrt"]

KEPT_TRAININGS = 4
"""Trainings whose optimizer states clients keep: Ditto has a common one and three of a client."""

_SCHEDULES: dict[Schedule, Callable[[int, int], float]] = {
    "constant": lambda step, steps: 1.0,
    "linear": lambda step, steps: 1.0 - step / steps,
    "cosine": lambda step, steps: (1.0 + cos(pi * (step / steps))) / 2,
    "step": lambda step, steps: 0.1 ** ((step / steps >= 0.5) + (step / steps >= 0.75)),
    "inverse_sqrt": lambda step, steps: 1.0 / sqrt(step + 1),
}
"""Factor of the learning rate by the step, from 0, and the number of steps."""


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """How a client trains.

    Args:
        steps: T, the steps of a whole training.
        local_steps: Steps of a client between two aggregations.
        batch_size: Samples per step, or None for all of them.
        optimizer: ``sgd`` or ``adam``.
        lr: The learning rate.
        momentum: Momentum of SGD.
        weight_decay: L2 penalty, added to the gradient.
        schedule: Learning-rate schedule: ``constant``, ``linear`` or ``cosine`` to zero, ``step``
            (a tenth after 1/2 of the steps, and again after 3/4), or ``inverse_sqrt`` (``lr``
            divided by the square root of the step, from 1).
        mu: Weight of the proximal term ``mu/2 |w - anchor|^2``; the anchor is the model that the
            client starts from (FedProx), unless the method sends another one.
        label_smoothing: The share of each label that is spread over all classes in training; the
            loss must be cross entropy, and evaluations do not smooth.
        clip: Largest norm of a step's gradient, or None.
        keep_state: Keep each client's optimizer state between the rounds of one training.
        server_momentum: Momentum of the server: each round adds this much of the change of the one
            before (FedAvgM).
        average_last: The server returns the mean of the models of this fraction of the rounds, the
            last ones; 0 returns those of the last round. Clients continue from the latest models.
        compress: Clients send only this fraction of the coordinates of an update, the largest ones,
            as signs and one magnitude, and add the rest to their next update (sparse ternary
            compression, docs/compression.md); None sends all.
        resample: Train on a bootstrap sample of the client's data, a new one for each training.

    Raises:
        InputError: If a value is not allowed.

    >>> local = LocalTraining(steps=12, local_steps=5, lr=0.1, schedule="linear")
    >>> local.rounds, list(local.span(2)), round(local.rate(6), 3)
    (3, [10, 11], 0.05)
    """

    steps: int = constrained(250, at_least=1)
    local_steps: int = constrained(5, at_least=1)
    batch_size: int | None = constrained(50, at_least=1)
    optimizer: OptimizerName = "sgd"
    lr: float = constrained(0.1, more_than=0)
    momentum: float = constrained(0.0, at_least=0, less_than=1)
    weight_decay: float = constrained(0.0, at_least=0)
    schedule: Schedule = "constant"
    mu: float = constrained(0.0, at_least=0)
    label_smoothing: float = constrained(0.0, at_least=0, less_than=1)
    clip: float | None = constrained(None, more_than=0)
    keep_state: bool = False
    server_momentum: float = constrained(0.0, at_least=0, less_than=1)
    average_last: float = constrained(0.0, at_least=0, at_most=1)
    compress: float | None = constrained(None, more_than=0, at_most=1)
    resample: bool = False

    def __post_init__(self) -> None:
        check_parameters(self)
        require(
            self.momentum == 0 or self.optimizer == "sgd",
            f"momentum={self.momentum} is for sgd, but the optimizer is {self.optimizer}",
        )

    @property
    def has_state(self) -> bool:
        """Whether the optimizer has a state that ``keep_state`` would keep."""
        return self.optimizer == "adam" or self.momentum > 0

    @property
    def stateful(self) -> bool:
        """Whether clients keep something between the rounds of a training."""
        return self.keep_state or self.compress is not None

    @property
    def rounds(self) -> int:
        """Number of aggregations of a whole training."""
        return -(-self.steps // self.local_steps)

    def span(self, round: int) -> range:
        """Return the steps of a round; the last round may be shorter.

        Args:
            round: From 0.
        """
        start = round * self.local_steps
        return range(start, min(start + self.local_steps, self.steps))

    def rate(self, step: int) -> float:
        """Return the learning rate at a step of the whole training.

        Args:
            step: From 0.
        """
        return self.lr * _SCHEDULES[self.schedule](step, self.steps)
