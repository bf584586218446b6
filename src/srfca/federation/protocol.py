"""The seam between methods and clients: a federation is whoever holds the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi
from typing import Literal, Protocol

import torch
from torch import Tensor

from srfca.errors import require, unknown
from srfca.random import Key

Split = Literal["train", "validation", "test"]
Tick = Callable[[int], None]
"""Called with the number of local steps that have been done since the last call."""


def silent(steps: int) -> None:
    """A tick that tells nobody."""


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: (1.0 + cos(pi * done)) / 2,
    "step": lambda done: 0.1 ** ((done >= 0.5) + (done >= 0.75)),
}
"""What the rate is multiplied by when this part of the training is done."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """How a client trains.

    Args:
        steps: T, the steps of a whole training.
        local_steps: Steps of a client between two aggregations.
        batch_size: Samples of a step, or None for all of them.
        optimizer: ``sgd`` or ``adam``.
        lr: The rate.
        momentum: Of SGD.
        weight_decay: L2 penalty, added to the gradient.
        schedule: ``constant``, ``linear`` or ``cosine`` to zero, ``step`` (a tenth at 1/2, at 3/4).
        prox: mu of the proximal term ``mu/2 |w - anchor|^2``; the anchor is where the client starts
            (FedProx), unless the method gives another.
        clip: Largest norm of a step's gradient, or None.
        keep_state: Keep each client's optimiser state from round to round of one training.
        resample: Train on a bootstrap sample of the client's data, another one for each purpose.
    """

    steps: int = 250
    local_steps: int = 5
    batch_size: int | None = 50
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = "constant"
    prox: float = 0.0
    clip: float | None = None
    keep_state: bool = False
    resample: bool = False

    def __post_init__(self) -> None:
        require(self.steps >= 1, f"steps must be at least 1, not {self.steps}")
        require(self.local_steps >= 1, f"local_steps must be at least 1, not {self.local_steps}")
        require(
            self.batch_size is None or self.batch_size >= 1,
            f"batch_size must be at least 1, or None for all samples, not {self.batch_size}",
        )
        if self.optimizer not in ("sgd", "adam"):
            raise unknown("optimizer", self.optimizer, ["sgd", "adam"])
        if self.schedule not in SCHEDULES:
            raise unknown("schedule", self.schedule, SCHEDULES)
        require(self.lr > 0, f"lr must be positive, not {self.lr}")
        require(0 <= self.momentum < 1, f"momentum must be in [0, 1), not {self.momentum}")
        require(
            self.momentum == 0 or self.optimizer == "sgd",
            f"momentum={self.momentum} is for sgd, but the optimizer is {self.optimizer}",
        )
        for name in ("weight_decay", "prox"):
            value = getattr(self, name)
            require(value >= 0, f"{name} must not be negative, but is {value}")
        require(self.clip is None or self.clip > 0, f"clip must be positive, not {self.clip}")

    @property
    def rounds(self) -> int:
        """Aggregations of a whole training."""
        return -(-self.steps // self.local_steps)

    def span(self, round: int) -> range:
        """The steps that are done in a round; the last round may be shorter."""
        start = round * self.local_steps
        return range(start, min(start + self.local_steps, self.steps))

    def rate(self, step: int) -> float:
        """The rate at a step of the whole training."""
        return self.lr * SCHEDULES[self.schedule](step / self.steps)


@dataclass(frozen=True)
class Mixture:
    """Models that clients share, and how much of each is in a client's data.

    What a client's mixture puts out is the weighted mean of the models' probabilities where the
    loss is cross entropy, and of their outputs elsewhere. The posterior of a model, given a sample,
    is proportional to ``weight * exp(-loss)``.
    """

    models: Tensor
    """``[k, P]``"""
    weights: Tensor
    """``[c, k]`` of each client: not negative, their sum is 1."""

    def __len__(self) -> int:
        return len(self.weights)


@dataclass(frozen=True)
class Focus:
    """Which model of its mixture each client trains: its samples count by that model's posterior.

    A sample's weight in a batch of b is its posterior divided by b. The same client may be asked
    for several models at once; it takes the same batches for each.
    """

    mixture: Mixture
    component: Tensor
    """``[c]`` numbers of models."""


@dataclass(frozen=True)
class Sample:
    """At most ``size`` of each client's samples, drawn by the seed: the same whenever asked for."""

    size: int
    seed: int

    def __post_init__(self) -> None:
        require(self.size >= 1, f"a sample needs at least one of the samples, not {self.size}")


@dataclass(frozen=True)
class Scores:
    """How each client's own model does on its own data."""

    loss: Tensor
    """``[c]``"""
    accuracy: Tensor | None
    """``[c]``, a fraction; None where the targets are not classes."""
    n: Tensor
    """``[c]`` number of samples"""

    def where(self, these: Tensor, others: Scores) -> Scores:
        """These scores where ``these`` ``[c]`` says so, else the others, of the same clients."""
        accuracy = None
        if self.accuracy is not None and others.accuracy is not None:
            accuracy = torch.where(these, self.accuracy, others.accuracy)
        return Scores(torch.where(these, self.loss, others.loss), accuracy, self.n)


@dataclass(frozen=True)
class Absence:
    """A client that was asked and gave no answer that can be used."""

    client: str
    asked: str
    """What for: ``fit``, ``losses``, ..."""
    why: str


@dataclass(frozen=True)
class Wire:
    """What has gone between the server and clients that are apart from it, so far."""

    messages: int = 0
    """Messages to clients; each has an answer, or an absence."""
    bytes_down: int = 0
    bytes_up: int = 0
    absences: tuple[Absence, ...] = ()


class Federation(Protocol):
    """Whoever holds the clients' data. Methods see nothing else of the clients.

    Clients are named by their place in ``clients``; ``c`` below is the number of those asked for,
    P the length of a row. What a client was asked for and did not answer is NaN, and an absence.
    """

    @property
    def clients(self) -> Sequence[str]:
        """Stable ids, in order: m of them."""
        ...

    @property
    def sizes(self) -> Tensor:
        """``[m]`` training samples of each client."""
        ...

    @property
    def splits(self) -> Sequence[Split]:
        """What the clients hold: ``train``, and perhaps ``validation`` and ``test``."""
        ...

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each layer lies in a row: trained ones alone, from the inputs to the outputs."""
        ...

    @property
    def wire(self) -> Wire:
        """What has gone over the wire, and who did not answer; nothing in a simulation."""
        ...

    def fingerprint(self) -> str:
        """Tells what the clients hold from other data, as far as that is known here."""
        ...

    def initial(self, seed: int) -> Tensor:
        """``[P]`` w0, the common start."""
        ...

    def fit(
        self,
        starts: Tensor,
        clients: Sequence[int],
        work: Work,
        key: Key,
        tick: Tick = silent,
        anchors: Tensor | None = None,
        focus: Focus | None = None,
    ) -> Tensor:
        """``[c, P]`` each client trains from its row, through ``work.span(key.round)``.

        The proximal term of ``work`` pulls it to its row of ``anchors``, or to its start. With a
        ``focus`` its samples have weights.
        """
        ...

    def gradients(self, at: Tensor, clients: Sequence[int]) -> Tensor:
        """``[c, P]`` each client's gradient at its row, over all of its training samples."""
        ...

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Split = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        """``[k, c]`` mean loss of every model on every client's samples, or on some of them."""
        ...

    def shares(self, models: Tensor | Mixture, clients: Sequence[int]) -> Tensor:
        """``[c, k]`` the share of each client's training samples that each model accounts for.

        Of models ``[k, P]``: the samples for which a model has the least loss, the first on a tie.
        Of a mixture: the mean of the model's posterior over the samples.
        """
        ...

    def scores(
        self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
    ) -> Scores:
        """Loss and accuracy of each client's own row ``[c, P]``, or mixture, on its own data."""
        ...

    def subspaces(self, clients: Sequence[int], rank: int) -> Tensor:
        """``[c, features, rank]`` the leading left singular vectors of each client's inputs.

        Of the matrix ``[features, samples]`` of its training inputs, each as one column.
        """
        ...
