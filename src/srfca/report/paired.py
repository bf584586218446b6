"""Differences of two methods over the seeds that both have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.stats import t as student

CONFIDENCE = 0.95


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference over seeds, with a confidence interval.

    Args:
        mean: The mean.
        half_width: Half-width of the interval of Student's t at 95 %; None for a single seed.
        seeds: How many seeds both have.
    """

    mean: float
    half_width: float | None
    seeds: int

    @property
    def significant(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.half_width is not None and abs(self.mean) > self.half_width

    def text(self, pattern: str = "+.2f") -> str:
        """Format it: the mean and half of the interval's width."""
        mean = format(self.mean, pattern)
        if self.half_width is None:
            return mean
        return f"{mean} ± {format(self.half_width, pattern.removeprefix('+'))}"


def paired_difference(
    values: Mapping[int, float], reference: Mapping[int, float]
) -> PairedDifference | None:
    """Return values minus reference over the seeds that both have, None if there are none.

    Args:
        values: By seed.
        reference: By seed.

    Examples:
        >>> paired_difference({0: 2.0, 1: 4.0, 2: 3.0}, {0: 1.0, 1: 2.0, 3: 9.0}).text()
        '+1.50 ± 6.35'
    """
    differences = [values[seed] - reference[seed] for seed in values if seed in reference]
    count = len(differences)
    if not count:
        return None
    half_width = None
    if count > 1:
        quantile = float(student.ppf((1 + CONFIDENCE) / 2, count - 1))
        half_width = quantile * stdev(differences) / count**0.5
    return PairedDifference(fmean(differences), half_width, count)
