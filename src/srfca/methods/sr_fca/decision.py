"""Evidence from held-out data: which of several answers serves the clients best, and how sure.

An answer gives every client a model. Two answers are compared client by client, on the same
held-out samples: by accuracy if the targets are classes, else by loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.aggregation.outliers import winsorize
from srfca.federation.replies import ClientScores

CLEARLY = 2.0
"""Standard errors from which one answer is clearly better than another."""
HELPS = 2.25
"""Standard errors of accuracy and loss together by which fine-tuning helps."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """How an answer does on held-out data.

    Args:
        name: Name of the answer, for a person.
        scores: ``[m]``, NaN if unknown.
        variant: How the models were changed after training, if they were: fine-tuning.
    """

    name: str
    scores: ClientScores
    variant: str = ""

    @property
    def by_accuracy(self) -> bool:
        """Whether accuracy is known; else losses are compared."""
        return self.scores.accuracy is not None

    @property
    def score(self) -> float:
        """Mean accuracy over the clients, or mean loss."""
        values = self.scores.loss if self.scores.accuracy is None else self.scores.accuracy
        return float(values.nanmean())

    def describe(self) -> str:
        """Return the name with its score."""
        text = f"accuracy {self.score:.1%}" if self.by_accuracy else f"loss {self.score:.4g}"
        name = f"{self.name}, {self.variant}" if self.variant else self.name
        return f"{name} ({text})"


@dataclass(frozen=True)
class Comparison:
    """What one answer gains over another.

    Args:
        gain: Winsorized mean over the clients: of accuracy, or of the logarithm of the typical
            loss plus the loss.
        error: Its standard error.
    """

    gain: float
    error: float

    @property
    def t(self) -> float:
        """The gain in standard errors; 0 if it is unknown."""
        if not np.isfinite(self.gain) or self.gain == 0:
            return 0.0
        return float(self.gain / self.error) if self.error > 0 else float(np.sign(self.gain)) * 99


def compare(first: ClientScores, second: ClientScores) -> Comparison:
    """Return what the first answer gains over the second, paired by clients.

    Losses of few samples are often close to 0 with a long tail, so they are compared by the
    logarithm of the typical loss plus the loss.

    >>> import torch
    >>> def scores(*accuracy: float) -> ClientScores:
    ...     return ClientScores(torch.zeros(3), torch.tensor(accuracy), torch.ones(3))
    >>> comparison = compare(scores(0.9, 0.8, 0.9), scores(0.7, 0.7, 0.6))
    >>> round(comparison.gain, 2), round(comparison.t, 1)
    (0.2, 3.5)
    """
    if first.accuracy is None or second.accuracy is None:
        return compare_losses(first, second)
    return _mean_gain((first.accuracy - second.accuracy).double().numpy())


def compare_losses(first: ClientScores, second: ClientScores) -> Comparison:
    """Return what the first answer gains over the second by losses, paired by clients."""
    losses = np.stack([first.loss.double().numpy(), second.loss.double().numpy()])
    with np.errstate(invalid="ignore"):  # infinite with both: unknown
        return _mean_gain(np.subtract(*log_losses(losses)[::-1]))


def helps(tuned: ClientScores, before: ClientScores) -> bool:
    """Return whether fine-tuning helps: by some two standard errors of accuracy and loss together.

    Accuracy on few samples is coarse, so that losses count too. But they are swayed by calibration:
    where labels are noisy, any fine-tuning improves them. So they count at most as much as
    accuracy. A single client that does better is one standard error of accuracy, which is too
    little. Without accuracy, one standard error of the loss is enough.
    """
    by_loss = compare_losses(tuned, before)
    if tuned.accuracy is None or before.accuracy is None:
        return by_loss.t >= 1
    by_accuracy = compare(tuned, before).t
    return by_accuracy + min(by_loss.t, by_accuracy) >= HELPS


def out_of_reach(leader: ClientScores, rival: ClientScores, errors: float) -> bool:
    """Return whether a rival need not train to the end.

    It is behind by this many standard errors. A loss that falls slowly may still fall far, so
    without accuracy it must also be ten times that of the leader.
    """
    lead = compare(leader, rival)
    by_accuracy = leader.accuracy is not None and rival.accuracy is not None
    return lead.t >= errors and (by_accuracy or lead.gain >= np.log(10))


def within_noise(other: str, lead: float) -> str | None:
    """Say that another answer may do as well if it is not two standard errors behind.

    >>> within_noise("one model for all", 0.5)
    'one model for all may do as well: 0.5 standard errors behind on held-out data'
    """
    if lead >= CLEARLY:
        return None
    place = "behind" if lead > 0 else "ahead"
    return f"{other} may do as well: {abs(lead):.1f} standard errors {place} on held-out data"


def _mean_gain(gains: NDArray[np.float64]) -> Comparison:
    """Return the mean of gains ``[m]`` and its standard error; outliers are winsorized."""
    gains = winsorize(gains[np.isfinite(gains)])
    if not len(gains):
        return Comparison(float("nan"), float("nan"))
    deviation = gains.std(ddof=1) if len(gains) > 1 else np.inf
    return Comparison(float(gains.mean()), float(deviation / np.sqrt(len(gains))))


def log_losses(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(typical loss + loss) ``[n, m]``; the typical loss is the least median of a row."""
    medians = [np.median(row[np.isfinite(row)]) for row in losses if np.isfinite(row).any()]
    typical = min(medians, default=1.0)
    tiny = np.finfo(np.float64).tiny
    return np.asarray(np.log(losses + np.abs(typical) + tiny))


@dataclass(frozen=True)
class Decision:
    """What was considered, what was chosen, and how sure that is.

    Args:
        chosen: The answer.
        considered: All answers that were compared, with their scores.
        runner_up: The best of the others with other clusters, None if there is none.
        comparison: Comparison of the chosen answer with the runner-up.
        outliers: Clients that keep a model of their own beside the clusters.
        doubt: Why the choice between the clusters and one model for all is doubtful, if it is.
    """

    chosen: Evidence
    considered: tuple[Evidence, ...]
    runner_up: Evidence | None
    comparison: Comparison | None
    outliers: tuple[str, ...] = field(default=())
    doubt: str | None = None

    @classmethod
    def among(
        cls, chosen: Evidence, considered: tuple[Evidence, ...], outliers: tuple[str, ...] = ()
    ) -> Decision:
        """Return a decision, with the best other answer as the runner-up."""
        others = [evidence for evidence in considered if evidence.name != chosen.name]
        if not others:
            return cls(chosen, considered, None, None, outliers)
        comparisons = [compare(chosen.scores, other.scores) for other in others]
        gains = [c.gain if np.isfinite(c.gain) else np.inf for c in comparisons]
        closest = int(np.argmin(gains))
        return cls(chosen, considered, others[closest], comparisons[closest], outliers)

    @property
    def warning(self) -> str | None:
        """Say that the runner-up is within noise, or what else makes the choice doubtful."""
        if self.runner_up is None or self.comparison is None:
            return self.doubt
        return within_noise(self.runner_up.name, self.comparison.t) or self.doubt

    @property
    def sentence(self) -> str:
        """Say what was considered, what won, by how much, and how sure that is."""
        text = f"Chose {self.chosen.describe()} on held-out data"
        if self.runner_up is not None and self.comparison is not None:
            text += f"; next was {self.runner_up.describe()}, {self._by_how_much()}"
        others = [e.describe() for e in self.considered if e not in (self.chosen, self.runner_up)]
        if others:
            text += f"; also considered: {', '.join(others)}"
        if self.outliers:
            count = len(self.outliers)
            text += f". {count} client{'s keep their' * (count != 1)}"
            text += f"{' keeps its' * (count == 1)} own model beside them"
        return f"{text}."

    def _by_how_much(self) -> str:
        assert self.comparison is not None
        t = self.comparison.t
        if abs(t) < 1:
            return "a difference within noise"
        return f"{abs(t):.1f} standard errors {'behind' if t > 0 else 'ahead'}"

    def notes(self) -> dict[str, Any]:
        """Return the decision for the history."""
        comparison = self.comparison
        return {
            "chosen": self.chosen.name,
            "variant": self.chosen.variant,
            "considered": [
                {
                    "name": evidence.name,
                    "variant": evidence.variant,
                    "accuracy": _mean(evidence.scores.accuracy),
                    "loss": _mean(evidence.scores.loss),
                }
                for evidence in self.considered
            ],
            "runner_up": None if self.runner_up is None else self.runner_up.name,
            "gain": None if comparison is None else comparison.gain,
            "standard_errors": None if comparison is None else comparison.t,
            "outliers": list(self.outliers),
            "decision": self.sentence,
            "warning": self.warning,
        }


def _mean(values: Any) -> float | None:
    return None if values is None else float(values.nanmean())
