"""Evidence from held-out data: which of several answers serves the clients best, and how sure.

An answer gives every client a model. Two answers are compared client by client, on the same
held-out samples: by accuracy if the targets are classes, else by loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.aggregation.outliers import num_kept, winsorize_groups
from srfca.clustering.partition import Labels
from srfca.federation.replies import ClientScores

CLEARLY = 2.0
"""Standard errors from which one answer is clearly better than another."""
FAR = 2.0
"""Times the mean loss from which an answer is far worse for some clients."""
_DOUBT = " may do as well"
HELPS = 2.25
"""Standard errors of accuracy and loss together by which fine-tuning helps."""


@dataclass(frozen=True, eq=False)
class Tolerance:
    """How many clients may lie without deciding a comparison.

    Args:
        labels: ``[m]`` groups of clients that should gain about as much as each other.
        corrupt: The number of clients that may lie, less than half of each group.
    """

    labels: Labels
    corrupt: int


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


def compare(
    first: ClientScores, second: ClientScores, tolerance: Tolerance | None = None
) -> Comparison:
    """Return what the first answer gains over the second, paired by clients.

    Losses of few samples are often close to 0 with a long tail, so they are compared by the
    logarithm of the typical loss plus the loss. Gains that are implausible among the other clients
    of the group are winsorized.

    Args:
        first: ``[m]``
        second: ``[m]``
        tolerance: How many clients may lie; None is a twentieth of all, and at least one.

    >>> import torch
    >>> def scores(*accuracy: float) -> ClientScores:
    ...     return ClientScores(torch.zeros(3), torch.tensor(accuracy), torch.ones(3))
    >>> comparison = compare(scores(0.9, 0.8, 0.9), scores(0.7, 0.7, 0.6))
    >>> round(comparison.gain, 2), round(comparison.t, 1)
    (0.2, 3.5)
    """
    if first.accuracy is None or second.accuracy is None:
        return compare_losses(first, second, tolerance)
    return _mean_gain((first.accuracy - second.accuracy).double().numpy(), tolerance)


def compare_losses(
    first: ClientScores, second: ClientScores, tolerance: Tolerance | None = None
) -> Comparison:
    """Return what the first answer gains over the second by losses, paired by clients."""
    losses = np.stack([first.loss.double().numpy(), second.loss.double().numpy()])
    with np.errstate(invalid="ignore"):  # infinite with both: unknown
        return _mean_gain(np.subtract(*log_losses(losses)[::-1]), tolerance)


def helps(tuned: ClientScores, before: ClientScores, tolerance: Tolerance | None = None) -> bool:
    """Tell whether fine-tuning helps: by some two standard errors of accuracy and loss together.

    Accuracy on few samples is coarse, so that losses count too. But they are swayed by calibration:
    where labels are noisy, any fine-tuning improves them. So they count at most as much as
    accuracy. A single client that does better is one standard error of accuracy, which is too
    little. Without accuracy, one standard error of the loss is enough.
    """
    by_loss = compare_losses(tuned, before, tolerance)
    if tuned.accuracy is None or before.accuracy is None:
        return by_loss.t >= 1
    by_accuracy = compare(tuned, before, tolerance).t
    return by_accuracy + min(by_loss.t, by_accuracy) >= HELPS


def out_of_reach(
    leader: ClientScores, rival: ClientScores, errors: float, tolerance: Tolerance | None = None
) -> bool:
    """Tell whether a rival need not train to the end.

    It is behind by this many standard errors. A loss that falls slowly may still fall far, so
    without accuracy it must also be ten times that of the leader.
    """
    lead = compare(leader, rival, tolerance)
    by_accuracy = leader.accuracy is not None and rival.accuracy is not None
    return lead.t >= errors and (by_accuracy or lead.gain >= np.log(10))


def within_noise(other: str, lead: float, times: float = 1.0) -> str | None:
    """Say that another answer may do as well if it is not two standard errors behind.

    Gains are winsorized: an answer that is far worse for a few clients may be as good for the
    others.

    Args:
        other: The name of the other answer.
        lead: By how many standard errors it is behind.
        times: Its mean loss, relative to that of the better answer.

    >>> within_noise("one model for all", 0.5)
    'one model for all may do as well: 0.5 standard errors behind on held-out data'
    >>> within_noise("2 clusters", 1.7, 18.6)
    '2 clusters may do as well for most clients: 1.7 standard errors behind on held-out data, \
but with 18.6 times the mean loss'
    """
    if lead >= CLEARLY:
        return None
    place = "behind" if lead > 0 else "ahead"
    errors = f"{abs(lead):.1f} standard errors {place} on held-out data"
    if times < FAR:
        return f"{other}{_DOUBT}: {errors}"
    return f"{other}{_DOUBT} for most clients: {errors}, but with {times:.3g} times the mean loss"


def _mean_gain(gains: NDArray[np.float64], tolerance: Tolerance | None) -> Comparison:
    """Return the mean of gains ``[m]`` and its standard error; outliers are winsorized."""
    tolerance = tolerance or Tolerance(np.zeros(len(gains), dtype=np.int64), 0)
    finite = np.isfinite(gains)
    gains = winsorize_groups(gains[finite], tolerance.labels[finite], tolerance.corrupt)
    if not len(gains):
        return Comparison(float("nan"), float("nan"))
    deviation = gains.std(ddof=1) if len(gains) > 1 else np.inf
    kept = num_kept(len(gains), tolerance.corrupt)
    lost = (len(gains) - 1) / (kept - 1) if kept < len(gains) else 1.0
    return Comparison(float(gains.mean()), float(lost * deviation / np.sqrt(len(gains))))


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
        rivals: The others with other clusters, each with the comparison of the chosen answer.
    """

    chosen: Evidence
    considered: tuple[Evidence, ...]
    runner_up: Evidence | None
    comparison: Comparison | None
    outliers: tuple[str, ...] = field(default=())
    doubt: str | None = None
    rivals: tuple[tuple[Evidence, Comparison], ...] = ()

    @classmethod
    def among(
        cls,
        chosen: Evidence,
        considered: tuple[Evidence, ...],
        outliers: tuple[str, ...] = (),
        tolerance: Tolerance | None = None,
    ) -> Decision:
        """Return a decision, with the best other answer as the runner-up."""
        others = [evidence for evidence in considered if evidence.name != chosen.name]
        if not others:
            return cls(chosen, considered, None, None, outliers)
        comparisons = [compare(chosen.scores, other.scores, tolerance) for other in others]
        gains = [c.gain if np.isfinite(c.gain) else np.inf for c in comparisons]
        closest = int(np.argmin(gains))
        rivals = tuple(zip(others, comparisons, strict=True))
        return cls(chosen, considered, *rivals[closest], outliers, rivals=rivals)

    @property
    def rival(self) -> tuple[Evidence, Comparison] | None:
        """The answer that is shown beside the chosen one: the runner-up, or the one in doubt."""
        if self.runner_up is None or self.comparison is None:
            return None
        doubt = self.doubt or ""
        in_doubt = [rival for rival in self.rivals if doubt.startswith(rival[0].name + _DOUBT)]
        if not in_doubt or self.comparison.t < CLEARLY:
            return self.runner_up, self.comparison
        return in_doubt[-1]

    @property
    def warning(self) -> str | None:
        """Say that the runner-up is within noise, or what else makes the choice doubtful."""
        if self.rival is None:
            return self.doubt
        other, comparison = self.rival
        by_loss = not other.by_accuracy and self.chosen.score > 0
        times = other.score / self.chosen.score if by_loss else 1.0
        if text := within_noise(other.name, comparison.t, times):
            return text
        was_tuned = self.chosen.variant and (self.doubt or "").startswith(other.name + _DOUBT)
        return f"{self.doubt}, before fine-tuning" if was_tuned else self.doubt

    @property
    def sentence(self) -> str:
        """Say what was considered, what won, by how much, and how sure that is."""
        text = f"Chose {self.chosen.describe()} on held-out data"
        rival = None
        if self.rival is not None:
            rival, comparison = self.rival
            text += f"; next was {rival.describe()}, {_by_how_much(comparison)}"
        others = [e.describe() for e in self.considered if e not in (self.chosen, rival)]
        if others:
            text += f"; also considered: {', '.join(others)}"
        if self.outliers:
            count = len(self.outliers)
            text += f". {count} client{'s keep their' * (count != 1)}"
            text += f"{' keeps its' * (count == 1)} own model beside them"
        return f"{text}."

    def notes(self) -> dict[str, Any]:
        """Return the decision for the history."""
        rival, comparison = self.rival or (None, None)
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
            "runner_up": None if rival is None else rival.name,
            "gain": None if comparison is None else comparison.gain,
            "standard_errors": None if comparison is None else comparison.t,
            "outliers": list(self.outliers),
            "decision": self.sentence,
            "warning": self.warning,
        }


def _by_how_much(comparison: Comparison) -> str:
    t = comparison.t
    if abs(t) < 1:
        return "a difference within noise"
    return f"{abs(t):.1f} standard errors {'behind' if t > 0 else 'ahead'}"


def _mean(values: Any) -> float | None:
    return None if values is None else float(values.nanmean())
