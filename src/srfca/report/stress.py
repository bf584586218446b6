"""Tables of methods under attack."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from srfca.errors import InputError
from srfca.files import replace_file
from srfca.report.summary import Metrics, Table
from srfca.report.tables import latex_tables, markdown_tables

CLEAN = "none"


@dataclass(frozen=True)
class AttackLine:
    """One method under one attack, over all seeds.

    Args:
        attack: Its name; ``none`` is the clean run.
        name: Name of the method, as tables show it.
        score: Mean accuracy of the honest clients over the seeds, or mean loss.
        difference: Mean difference to the clean run of the same seed; None if there is none.
        worst: The largest loss of score of any seed, as a difference.
        misplaced: The most honest clients that a seed misplaces; None if that is unknown.
        runs: Number of seeds.
    """

    attack: str
    name: str
    score: float
    difference: float | None
    worst: float | None
    misplaced: int | None
    runs: int


@dataclass(frozen=True)
class StressReport:
    """Runs under attack, to be shown and written to a file.

    Args:
        runs: Their metrics.
        title: Title of the table.
        notes: Shown below the table.
    """

    runs: Sequence[Metrics]
    title: str
    notes: Sequence[str] = ()

    @property
    def by_accuracy(self) -> bool:
        """Whether honest clients are scored by accuracy; otherwise it is the loss."""
        return all(run["honest_accuracy"] is not None for run in self.runs)

    @property
    def lines(self) -> list[AttackLine]:
        """A line for each attack and method, the clean runs first."""
        key = "honest_accuracy" if self.by_accuracy else "honest_loss"
        attacks = dict.fromkeys(run["attack"] for run in self.runs)
        methods = {run["method"]: run["name"] for run in self.runs}
        clean = {
            (run["method"], run["seed"]): run[key] for run in self.runs if run["attack"] == CLEAN
        }
        return [
            _line(attack, name, runs, key, clean)
            for attack in attacks
            for method, name in methods.items()
            if (runs := [r for r in self.runs if (r["attack"], r["method"]) == (attack, method)])
        ]

    @property
    def table(self) -> Table:
        """A line for each attack, three columns for each method.

        The difference is the mean over the seeds, with that of the worst seed in parentheses.
        """
        lines = self.lines
        names = list(dict.fromkeys(line.name for line in lines))
        attacks = list(dict.fromkeys(line.attack for line in lines))
        by_attack = {(line.attack, line.name): line for line in lines}
        unit = "accuracy %" if self.by_accuracy else "loss"
        columns = [f"{name}\n{part}" for name in names for part in (unit, "change", "misplaced")]
        cells = [
            [cell for name in names for cell in self._cells(by_attack.get((attack, name)))]
            for attack in attacks
        ]
        best = [[False] * len(columns) for _ in attacks]
        return Table(self.title, columns, attacks, cells, best, head="attack")

    def _cells(self, line: AttackLine | None) -> list[str]:
        if line is None:
            return ["failed", "-", "-"]
        scale, pattern = (100, "{:.1f}") if self.by_accuracy else (1, "{:.3g}")
        signed = pattern.replace(":", ":+")
        change = "-" if line.difference is None else signed.format(scale * line.difference)
        if line.worst is not None and line.runs > 1:
            change += f" ({signed.format(scale * line.worst)})"
        misplaced = "-" if line.misplaced is None else str(line.misplaced)
        return [pattern.format(scale * line.score), change, misplaced]


def write(report: StressReport, path: Path) -> None:
    """Write the table in the format of the file's name.

    Raises:
        InputError: If its name ends with no known format.
    """
    if path.suffix not in FORMATS:
        raise InputError(f"--table {path}: the name must end with {', '.join(FORMATS)}")
    replace_file(path, FORMATS[path.suffix](report).encode())


def as_csv(report: StressReport) -> str:
    """Return a line for each attack and method; scores are fractions."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["attack", "method", "score", "difference", "worst", "misplaced", "runs"])
    for line in report.lines:
        cells = [line.score, line.difference, line.worst, line.misplaced, line.runs]
        writer.writerow([line.attack, line.name, *("" if c is None else c for c in cells)])
    return file.getvalue()


def as_markdown(report: StressReport) -> str:
    """Return the table in Markdown."""
    return markdown_tables([report.table], report.notes)


def as_latex(report: StressReport) -> str:
    """Return the table in LaTeX."""
    return latex_tables([report.table], report.notes)


FORMATS: dict[str, Callable[[StressReport], str]] = {
    ".csv": as_csv,
    ".md": as_markdown,
    ".tex": as_latex,
}
"""Functions that format a report, by the ending of a file's name."""


def _line(
    attack: str,
    name: str,
    runs: Sequence[Metrics],
    key: str,
    clean: dict[tuple[str, int], float],
) -> AttackLine:
    """Return the line of an attack and a method."""
    pairs = [(run[key], clean.get((run["method"], run["seed"]))) for run in runs]
    differences = [score - before for score, before in pairs if before is not None]
    worst = (min if key == "honest_accuracy" else max)(differences, default=None)
    misplaced = [run["misplaced"] for run in runs if run["misplaced"] is not None]
    is_clean = attack == CLEAN
    return AttackLine(
        attack=attack,
        name=name,
        score=fmean(run[key] for run in runs),
        difference=fmean(differences) if differences and not is_clean else None,
        worst=None if is_clean else worst,
        misplaced=max(misplaced, default=None),
        runs=len(runs),
    )
