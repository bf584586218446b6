"""Runs summed up: a line for each method, and for each K, with mean and deviation over the seeds.

Everything comes from rows, the figures of runs, whether these were done now or read from disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

Row = Mapping[str, Any]
TOLD_THE_TRUTH = ("oracle",)
"""Methods that are not in the race: what they are told, others must find out."""
_NOT_FIGURES = ("seed", "k", "clients", "true_clusters")


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of some runs."""

    mean: float
    deviation: float | None
    """None of a single run."""


@dataclass(frozen=True)
class Line:
    """The runs of one method with one K, or their means over K."""

    method: str
    name: str
    k: int | str | None
    rows: Sequence[Row]

    @property
    def title(self) -> str:
        """Name and K, for people to read."""
        if self.k is None:
            return self.name
        return f"{self.name}, {'mean over K' if self.k == 'mean' else f'K={self.k}'}"

    def spread(self, value: Callable[[Row], float | None]) -> Spread | None:
        """Of a figure over the runs that have it."""
        values = [found for found in map(value, self.rows) if found is not None]
        if not values:
            return None
        return Spread(fmean(values), stdev(values) if len(values) > 1 else None)


def lines(rows: Sequence[Row]) -> list[Line]:
    """A line for each method and K, in the order of the rows, and one for the mean over K."""
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        name, numbers = mine[0]["name"], list(dict.fromkeys(row["k"] for row in mine))
        found += [Line(method, name, k, [row for row in mine if row["k"] == k]) for k in numbers]
        means = _means_over_k(mine)
        if len(numbers) > 1 and means:
            found.append(Line(method, name, "mean", means))
    return found


def figures(rows: Sequence[Row]) -> list[str]:
    """The names of the rows' figures, whether they apply or not."""
    return [name for name in rows[0] if all(_is_figure(name, row[name]) for row in rows)]


def _is_figure(name: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return name not in _NOT_FIGURES and (number or value is None)


def _means_over_k(rows: Sequence[Row]) -> list[Row]:
    """For each seed that has runs for every K, their means over K."""
    means: list[Row] = []
    every = {row["k"] for row in rows}
    for seed in dict.fromkeys(row["seed"] for row in rows):
        mine = [row for row in rows if row["seed"] == seed]
        if {row["k"] for row in mine} != every:
            continue
        values = {name: [row[name] for row in mine] for name in figures(rows)}
        means.append(dict(mine[0]) | {name: _mean(found) for name, found in values.items()})
    return means


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


COUNT = ",.1f"


@dataclass(frozen=True)
class Column:
    """A figure as a table shows it."""

    figure: str
    title: str
    """May have a line break where it may be broken."""
    pattern: str
    """How a number is written."""
    best: Callable[[Sequence[float]], float] | None = None
    """``min`` or ``max``, if either is better."""
    scale: float = 1
    per_client: bool = False

    def value(self, row: Row) -> float | None:
        """What is shown of a row."""
        number: float | None = row[self.figure]
        if number is None:
            return None
        return number * self.scale / (row["clients"] if self.per_client else 1)

    def text(self, spread: Spread | None) -> str:
        """A spread as people read it; a deviation of 0 is not written."""
        if spread is None:
            return "-"
        centre = self.number(spread.mean)
        if not spread.deviation:
            return centre
        return f"{centre} ± {self.number(spread.deviation)}"

    def number(self, value: float) -> str:
        """A number as people read it; counts are written without ``.0``."""
        text = format(value, self.pattern)
        return text.removesuffix(".0") if self.pattern == COUNT else text


@dataclass(frozen=True)
class Table:
    """A table for people to read."""

    title: str
    columns: Sequence[str]
    names: Sequence[str]
    """Of its lines."""
    cells: Sequence[Sequence[str]]
    best: Sequence[Sequence[bool]]
    """Which cells are the best of their column."""


def table(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    """Those columns that apply to some row."""
    found = lines(rows)
    shown = [column for column in columns if any(column.value(row) is not None for row in rows)]
    spreads = [[line.spread(column.value) for column in shown] for line in found]
    cells = [[c.text(s) for c, s in zip(shown, line, strict=True)] for line in spreads]
    best = [[False] * len(shown) for _ in found]
    whole = max(len(line.rows) for line in found)
    racing = [
        number
        for number, line in enumerate(found)
        if line.method not in TOLD_THE_TRUTH and len(line.rows) == whole
    ]
    for place, column in enumerate(shown):
        race = {
            number: spread.mean
            for number in racing
            if (spread := spreads[number][place]) is not None
        }
        for number in _winners(race, column):
            best[number][place] = True
    return Table(title, [c.title for c in shown], [line.title for line in found], cells, best)


def _winners(race: Mapping[int, float], column: Column) -> list[int]:
    """Who has what reads as the best value, unless all have it."""
    if column.best is None or not race:
        return []
    best = column.number(column.best(list(race.values())))
    winners = [number for number, value in race.items() if column.number(value) == best]
    return winners if len(winners) < len(race) else []


def results(rows: Sequence[Row], title: str = "") -> Table:
    """What the methods found, and how well their models do."""
    split = rows[0]["scored_on"]
    columns = [
        Column("num_clusters", "clusters", COUNT),
        Column("misclustering", "misclustered\n%", ".1f", min, 100),
        Column("ari", "ARI", ".2f", max),
    ]
    if any(row["accuracy"] is not None for row in rows):
        columns += [
            Column("accuracy", f"{split}\naccuracy %", ".2f", max, 100),
            Column("tuned_accuracy", "fine-tuned\n%", ".2f", max, 100),
            Column("worst_accuracy", "worst\nclient %", ".1f", max, 100),
            Column("worst_tenth_accuracy", "worst\ntenth %", ".1f", max, 100),
        ]
    else:
        columns += [
            Column("loss", f"{split}\nloss", ".3g", min),
            Column("tuned_loss", "fine-tuned", ".3g", min),
            Column("worst_loss", "worst\nclient", ".3g", min),
            Column("worst_tenth_loss", "worst\ntenth", ".3g", min),
        ]
    columns.append(Column("distance_to_optimum", "to\noptimum", ".3g", min))
    return table(title, columns, rows)


def costs(rows: Sequence[Row], title: str = "") -> Table:
    """What that cost a client on average, and how long it took."""
    return table(
        title,
        [
            Column("local_steps", "local\nsteps", COUNT, per_client=True),
            Column("models_down", "models\ndown", COUNT, per_client=True),
            Column("models_up", "models\nup", COUNT, per_client=True),
            Column("bytes_down", "MB\ndown", ".2f", scale=1e-6, per_client=True),
            Column("bytes_up", "MB\nup", ".2f", scale=1e-6, per_client=True),
            Column("evaluations", "evaluations", COUNT, per_client=True),
            Column("seconds", "seconds", ".1f"),
        ],
        rows,
    )
