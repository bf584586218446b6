"""Attacks by numbers: clients lie about their losses or their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from srfca.federation.middleware.attacks.base import Attack, Updates
from srfca.federation.replies import ClientScores
from srfca.federation.requests import Split
from srfca.parameters import check_parameters, constrained


@dataclass(frozen=True)
class LyingLosses(Attack):
    """Report the same loss for all models, or that one model fits and the others do not.

    Scores on held-out data are lies of the same kind; ``targeted`` and ``opposite`` turn them
    around: the better a model is, the worse it is said to be.

    Args:
        lie: ``low``, ``high``, ``targeted`` or ``opposite``: the best model is said not to fit, and
            all others to fit.
        high: The loss of a model that is said not to fit.
        target: The model that is said to fit in a targeted lie, modulo their number.

    Examples:
        >>> import torch
        >>> LyingLosses("targeted", high=9.0, target=1).losses(torch.ones(1, 3))
        tensor([[9., 0., 9.]])
    """

    lie: Literal["low", "high", "targeted", "opposite"] = "high"
    high: float = constrained(1e6, more_than=0)
    target: int = constrained(0, at_least=0)

    def __post_init__(self) -> None:
        check_parameters(self)

    def losses(self, losses: Tensor) -> Tensor:
        """Return the losses that attackers report: ``[a, k]``."""
        if self.lie == "opposite" and losses.shape[1]:
            best = losses.nan_to_num(torch.inf).argmin(1, keepdim=True)
            return torch.zeros_like(losses).scatter(1, best, self.high)
        lies = torch.full_like(losses, 0.0 if self.lie == "low" else self.high)
        if self.lie == "targeted" and losses.shape[1]:
            lies[:, self.target % losses.shape[1]] = 0.0
        return lies

    def scores(self, scores: ClientScores) -> ClientScores:
        """Return the scores that attackers report: ``[a]``."""
        if self.lie in ("targeted", "opposite"):
            accuracy = None if scores.accuracy is None else 1 - scores.accuracy
            return replace(scores, loss=1 / (scores.loss + 1 / self.high), accuracy=accuracy)
        low = self.lie == "low"
        accuracy = None
        if scores.accuracy is not None:
            accuracy = torch.full_like(scores.accuracy, float(low))
        return replace(
            scores, loss=torch.full_like(scores.loss, 0.0 if low else self.high), accuracy=accuracy
        )


@dataclass(frozen=True)
class HeldOutLies(LyingLosses):
    """Lie about held-out data alone: about training data attackers are honest.

    Args:
        lie: Same as in ``LyingLosses``.
        high: Same as in ``LyingLosses``.
        target: Same as in ``LyingLosses``.

    Examples:
        >>> import torch
        >>> HeldOutLies(high=9.0).losses(torch.tensor([[0.1, 0.8, 0.7]]))
        tensor([[9., 0., 0.]])
    """

    lie: Literal["low", "high", "targeted", "opposite"] = "opposite"

    def lies_about(self, splits: Sequence[Split]) -> bool:
        """Return whether this is held-out data."""
        return "validation" in splits


@dataclass(frozen=True)
class Combined(Attack):
    """Send the changes of one attack, and report the losses, scores and sizes of another.

    Args:
        update: The attack by models.
        report: The attack by numbers.

    Examples:
        >>> import torch
        >>> from srfca.federation.middleware.attacks import SignFlip
        >>> Combined(SignFlip(), LyingLosses("low")).losses(torch.ones(1, 3))
        tensor([[0., 0., 0.]])
    """

    update: Attack
    report: Attack

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes that attackers send: ``[a, P]``."""
        return self.update.changes(updates)

    def losses(self, losses: Tensor) -> Tensor:
        """Return the losses that attackers report: ``[a, k]``."""
        return self.report.losses(losses)

    def scores(self, scores: ClientScores) -> ClientScores:
        """Return the scores that attackers report: ``[a]``."""
        return self.report.scores(scores)

    def lies_about(self, splits: Sequence[Split]) -> bool:
        """Return whether attackers lie about losses and scores on this data."""
        return self.report.lies_about(splits)

    def sizes(self, sizes: Tensor) -> Tensor:
        """Return the numbers of samples that attackers report: ``[a]``."""
        return self.report.sizes(sizes)


@dataclass(frozen=True)
class LyingSizes(Attack):
    """Send the opposite of the change, and claim to have a huge number of samples.

    Args:
        size: The number.
        factor: How many times the change, in the opposite direction.

    Examples:
        >>> import torch
        >>> LyingSizes(size=1000).sizes(torch.tensor([5, 6]))
        tensor([1000, 1000])
    """

    size: int = constrained(2**62, at_least=0)
    factor: float = constrained(1.0, more_than=0)

    def __post_init__(self) -> None:
        check_parameters(self)

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes that attackers send: ``[a, P]``."""
        return -self.factor * updates.changes

    def sizes(self, sizes: Tensor) -> Tensor:
        """Return the numbers of samples that attackers report: ``[a]``."""
        return torch.full_like(sizes, self.size)
