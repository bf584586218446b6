"""What an answer gains over another one, which clients lose, and how even the clients' scores are.

Gains are in accuracy if the targets are classes, else in loss; more is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from srfca.analysis.names import signed
from srfca.federation.replies import ClientScores

Array = NDArray[np.float64]

WORST_FRACTION = 0.1
"""Part of the clients whose mean score is reported in addition to the mean over all."""


@dataclass(frozen=True)
class Gain:
    """What an answer gains over another one, over some clients.

    Args:
        mean: Mean over the clients: of accuracy, or of loss that is less.
        standard_error: Standard error of the mean; infinite for a single client.
        relative: The mean, relative to the other answer's mean loss; None for accuracies.
        clients: How many clients it is over.
        losing: How many of them do worse than with the other answer.
    """

    mean: float
    standard_error: float
    relative: float | None
    clients: int
    losing: int

    @property
    def is_clear(self) -> bool:
        """Whether it is more than two standard errors from 0."""
        return abs(self.mean) > 2 * self.standard_error

    def text(self) -> str:
        """Return the gain with its sign, in points of accuracy or in percent of the loss.

        >>> Gain(0.0321, 0.01, None, 10, 2).text(), Gain(0.1, 0.01, 0.25, 10, 2).text()
        ('+3.2', '-25%')
        """
        if self.relative is None:
            return signed(100 * self.mean, ".1f")
        return f"{signed(-100 * self.relative, '.0f')}%"


def client_gains(answer: ClientScores, other: ClientScores) -> Array:
    """Return what each client gains: ``[m]``, NaN if unknown."""
    if answer.accuracy is not None and other.accuracy is not None:
        return np.asarray((answer.accuracy - other.accuracy).double().numpy())
    return np.asarray((other.loss - answer.loss).double().numpy())


def mean_gain(
    answer: ClientScores, other: ClientScores, clients: NDArray[np.int64] | None = None
) -> Gain | None:
    """Return what clients gain on average.

    Args:
        answer: ``[m]``
        other: ``[m]``
        clients: Which of them; None is all.

    Returns:
        None if the gain of no client is known.

    >>> import torch
    >>> def scores(*accuracy: float) -> ClientScores:
    ...     return ClientScores(torch.zeros(3), torch.tensor(accuracy), torch.ones(3))
    >>> gain = mean_gain(scores(0.9, 0.8, 0.6), scores(0.7, 0.7, 0.7))
    >>> gain.text(), gain.losing
    ('+6.7', 1)
    """
    gains = client_gains(answer, other)
    chosen = np.arange(len(gains)) if clients is None else clients
    chosen = chosen[np.isfinite(gains[chosen])]
    values = gains[chosen]
    if not len(values):
        return None
    relative = None
    if answer.accuracy is None or other.accuracy is None:
        before = float(other.loss.double().numpy()[chosen].mean())
        relative = float(values.mean()) / before if before > 0 else 0.0
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    losing = int((values < 0).sum())
    return Gain(float(values.mean()), float(error), relative, len(values), losing)


def losing_clients(answer: ClientScores, other: ClientScores) -> NDArray[np.int64]:
    """Return the clients that do worse than with the other answer, the worst first."""
    gains = client_gains(answer, other)
    losing = np.flatnonzero(gains < 0)
    return np.asarray(losing[np.argsort(gains[losing], kind="stable")])


@dataclass(frozen=True)
class Fairness:
    """How even the scores of clients are: accuracies, or losses if there are none.

    Args:
        mean: Over the clients.
        standard_deviation: Over the clients, as in q-FFL and Ditto.
        worst_tenth: Mean over the worst tenth of the clients.
        jain: Jain's index, from 1/m (one client has all) to 1 (all are equal); None for losses.
    """

    mean: float
    standard_deviation: float
    worst_tenth: float
    jain: float | None


def fairness(scores: ClientScores) -> Fairness | None:
    """Return how even scores are, None if none is known.

    >>> import torch
    >>> accuracy = torch.tensor([1.0, 0.5])
    >>> fairness(ClientScores(torch.zeros(2), accuracy, torch.ones(2)))
    Fairness(mean=0.75, standard_deviation=0.25, worst_tenth=0.5, jain=0.9)
    """
    classes = scores.accuracy is not None
    values = (scores.loss if scores.accuracy is None else scores.accuracy).double().numpy()
    values = np.sort(values[np.isfinite(values)])
    if not len(values):
        return None
    count = ceil(WORST_FRACTION * len(values))
    worst = values[:count] if classes else values[-count:]
    squares = float((values**2).sum())
    jain = float(values.sum() ** 2 / (len(values) * squares)) if squares > 0 else 1.0
    return Fairness(
        float(values.mean()), float(values.std()), float(worst.mean()), jain if classes else None
    )
