"""Runs on several federations, summarized: a line for each federation, or for a group of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev

from srfca.methods.registry import method_name
from srfca.report.summary import Metrics, Spread

SUBJECT = "sr-fca"
"""The method that is compared with the references."""
REFERENCES = ("global", "local", "oracle")
"""Methods that SR-FCA should be as good as, before or after fine-tuning."""


@dataclass(frozen=True)
class Variant:
    """A method, before or after fine-tuning."""

    method: str
    fine_tuned: bool = False

    @property
    def title(self) -> str:
        """Its name in tables."""
        return method_name(self.method) + ", fine-tuned" * self.fine_tuned


@dataclass(frozen=True)
class Difference:
    """How much better or worse SR-FCA is than the best reference, over the seeds of both.

    Args:
        best: The reference with the best mean.
        spread: SR-FCA minus the reference, paired by seed.
        worse: Whether SR-FCA is worse by more than one paired standard deviation; None with a
            single seed.
    """

    best: Variant
    spread: Spread
    worse: bool | None


@dataclass(frozen=True)
class Outliers:
    """What became of the clients that are like no other, over all seeds.

    Args:
        count: How many there are.
        alone: How many of them keep a model of their own.
        worst: The least that one of the others gains over training alone, in the unit of the
            scores; None if there is none.
    """

    count: int
    alone: int
    worst: float | None


@dataclass(frozen=True)
class FieldLine:
    """A line of the table: one federation, or the means over several.

    Args:
        title: Title of the line.
        runs: The metrics of all runs on its federations.
        num_federations: How many federations it is the mean of.
    """

    title: str
    runs: Sequence[Metrics]
    num_federations: int = 1

    @cached_property
    def is_accuracy(self) -> bool:
        """Whether scores are accuracies in percent, else they are losses."""
        return all(run["accuracy"] is not None for run in self.runs)

    @property
    def scale(self) -> float:
        """Factor of scores."""
        return 100.0 if self.is_accuracy else 1.0

    def by_seed(self, method: str, value: Callable[[Metrics], float | None]) -> dict[int, float]:
        """Return means over the federations for each seed that has the value on all of them."""
        values: dict[int, list[float]] = {}
        for run in self.runs:
            if run["method"] == method and (number := value(run)) is not None:
                values.setdefault(run["seed"], []).append(number)
        return {
            seed: fmean(numbers)
            for seed, numbers in sorted(values.items())
            if len(numbers) == self.num_federations
        }

    @property
    def pattern(self) -> str:
        """Format of scores."""
        return ".1f" if self.is_accuracy else ".3g"

    def scores(self, variant: Variant) -> dict[int, float]:
        """Return the mean score of the clients, for each seed."""
        metric = "accuracy" if self.is_accuracy else "loss"
        name = f"tuned_{metric}" if variant.fine_tuned else metric
        return {
            seed: score * self.scale
            for seed, score in self.by_seed(variant.method, lambda run: run[name]).items()
        }

    def spread(self, variant: Variant) -> Spread | None:
        """Return mean and deviation of the score over the seeds."""
        return spread(self.scores(variant).values())

    def better(self, method: str) -> Variant:
        """Return a method before or after fine-tuning, whichever has the better mean."""
        variants = (Variant(method), Variant(method, fine_tuned=True))
        return self._best(variants) or variants[0]

    @cached_property
    def difference(self) -> Difference | None:
        """SR-FCA against the best reference; None if one of them was not run."""
        best = self._best([Variant(m, tuned) for m in REFERENCES for tuned in (False, True)])
        if best is None:
            return None
        subject, reference = self.scores(Variant(SUBJECT)), self.scores(best)
        paired = spread(subject[seed] - reference[seed] for seed in subject if seed in reference)
        if paired is None:
            return None
        deficit = -paired.mean if self.is_accuracy else paired.mean
        worse = None if paired.deviation is None else deficit > paired.deviation
        return Difference(best, paired, worse)

    @cached_property
    def doubtful(self) -> tuple[int, int]:
        """How many of SR-FCA's runs warn that another answer may do as well, and of how many."""
        warned = [run.get("warning") is not None for run in self.runs if run["method"] == SUBJECT]
        return sum(warned), len(warned)

    @cached_property
    def outliers(self) -> Outliers | None:
        """The true clusters of one client; None if there are none, or if it is unknown."""
        scores = "client_accuracies" if self.is_accuracy else "client_losses"
        sign = self.scale if self.is_accuracy else -1.0
        local = {
            (run["experiment"], run["seed"]): run for run in self.runs if run["method"] == "local"
        }
        count, alone, gains = 0, 0, []
        for run in self.runs:
            if run["method"] != SUBJECT or (truth := run.get("true_labels")) is None:
                continue
            labels = run["labels"]
            by_itself = local.get((run["experiment"], run["seed"]))
            for client in (c for c, label in enumerate(truth) if truth.count(label) == 1):
                count += 1
                if labels.count(labels[client]) == 1:
                    alone += 1
                elif by_itself is not None:
                    gains.append(sign * (run[scores][client] - by_itself[scores][client]))
        return Outliers(count, alone, min(gains, default=None)) if count else None

    def _best(self, variants: Sequence[Variant]) -> Variant | None:
        """Return the variant of the best mean, among those with the most seeds."""
        scores = {variant: self.scores(variant) for variant in variants}
        complete = max(map(len, scores.values()))
        means = {v: fmean(s.values()) for v, s in scores.items() if s and len(s) == complete}
        if not means:
            return None
        return max(means, key=lambda v: means[v] if self.is_accuracy else -means[v])


def spread(values: Iterable[float]) -> Spread | None:
    """Return mean and deviation, None of no values.

    >>> spread([1.0, 3.0]), spread([])
    (Spread(mean=2.0, deviation=1.4142135623730951), None)
    """
    numbers = list(values)
    if not numbers:
        return None
    return Spread(fmean(numbers), stdev(numbers) if len(numbers) > 1 else None)


def lines(runs: Sequence[Metrics], federations: Sequence[str]) -> list[FieldLine]:
    """Return a line for each federation, or for each group of them.

    The federations ``a/x/1`` and ``a/x/2`` are one line, ``a/x``. If there are several such lines,
    the line ``a, mean`` follows.

    Args:
        runs: The metrics of all runs.
        federations: Names of the federations. A mean is over all of them, or there is none.
    """
    shown = []
    for first, members in _grouped(federations, lambda name: name.partition("/")[0]).items():
        groups = _grouped(members, lambda name: name.rpartition("/")[0] or name)
        shown += [_line(group, names, runs) for group, names in groups.items()]
        if len(groups) > 1:
            shown.append(_line(f"{first}, mean", members, runs))
    return shown


def _grouped(names: Sequence[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    """Group names by a part of them, in their order."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(key(name), []).append(name)
    return groups


def _line(title: str, names: Sequence[str], runs: Sequence[Metrics]) -> FieldLine:
    return FieldLine(title, [run for run in runs if run["experiment"] in names], len(names))
