"""Runs summarized in tables: mean and standard deviation over the seeds, by method and K.

Everything is computed from the runs' metrics, whether they were just run or read from disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from srfca.errors import InputError
from srfca.methods.registry import method_of

Metrics = Mapping[str, Any]
"""The metrics of a run (``srfca.experiments.metrics``)."""
_IDENTIFYING = ("seed", "k", "clients", "true_clusters")
"""Numbers that say what was run, and are not averaged."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over runs; the deviation of a single run is None."""

    mean: float
    deviation: float | None


@dataclass(frozen=True)
class RunGroup:
    """The runs of one method with one K, or for each seed the means over K.

    Args:
        method: Key of the method.
        name: Its name in tables.
        k: The number of clusters, "mean" for the means over K, None if the method needs no K.
        runs: The metrics.
    """

    method: str
    name: str
    k: int | str | None
    runs: Sequence[Metrics]

    @property
    def title(self) -> str:
        """Name and K, as tables show them."""
        if self.k is None:
            return self.name
        return f"{self.name}, {'mean over K' if self.k == 'mean' else f'K={self.k}'}"

    def spread(self, value: Callable[[Metrics], float | None]) -> Spread | None:
        """Return the spread of a value over the runs that have it, None if none has."""
        values = [number for number in map(value, self.runs) if number is not None]
        if not values:
            return None
        return Spread(fmean(values), stdev(values) if len(values) > 1 else None)


def group_runs(runs: Sequence[Metrics]) -> list[RunGroup]:
    """Group runs by method and K, in the order of the runs, with the mean over K after each."""
    groups = []
    for method in dict.fromkeys(run["method"] for run in runs):
        of_method = [run for run in runs if run["method"] == method]
        name, numbers = of_method[0]["name"], list(dict.fromkeys(run["k"] for run in of_method))
        groups += [
            RunGroup(method, name, k, [run for run in of_method if run["k"] == k]) for k in numbers
        ]
        means = _means_over_k(of_method)
        if len(numbers) > 1 and means:
            groups.append(RunGroup(method, name, "mean", means))
    return groups


def metric_names(runs: Sequence[Metrics]) -> list[str]:
    """Return the names of the numbers that can be averaged over runs."""
    return [name for name in runs[0] if all(_is_number(name, run.get(name)) for run in runs)]


def _is_number(name: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return name not in _IDENTIFYING and (number or value is None)


def _means_over_k(runs: Sequence[Metrics]) -> list[Metrics]:
    """Return the means over K, for each seed that has runs for every K."""
    means: list[Metrics] = []
    numbers = {run["k"] for run in runs}
    for seed in dict.fromkeys(run["seed"] for run in runs):
        of_seed = [run for run in runs if run["seed"] == seed]
        if {run["k"] for run in of_seed} != numbers:
            continue
        means.append(means_of_metrics(of_seed, metric_names(runs)))
    return means


def means_of_metrics(runs: Sequence[Metrics], names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the metrics of the first run with the means of all numbers over the runs.

    Args:
        runs: Metrics of several runs.
        names: Names of the numbers; None is all that can be averaged.
    """
    values = {name: [run.get(name) for run in runs] for name in names or metric_names(runs)}
    return dict(runs[0]) | {name: _mean(numbers) for name, numbers in values.items()}


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


_COUNT = ",.1f"
"""Format of counts; a trailing ``.0`` is dropped."""


@dataclass(frozen=True)
class Column:
    """A metric as a table shows it.

    Args:
        metric: Its name.
        title: Title of the column, with a line break where it may be broken.
        pattern: The format of a number.
        best: ``min`` or ``max``, if one of them is better.
        scale: Factor for display.
        per_client: Divide by the number of clients.
    """

    metric: str
    title: str
    pattern: str
    best: Callable[[Sequence[float]], float] | None = None
    scale: float = 1
    per_client: bool = False

    def value(self, run: Metrics) -> float | None:
        """Return what is shown of a run."""
        number: float | None = run.get(self.metric)
        if number is None:
            return None
        return number * self.scale / (run["clients"] if self.per_client else 1)

    def text(self, spread: Spread | None) -> str:
        """Format a spread; a deviation of 0 is not shown."""
        if spread is None:
            return "-"
        mean = self.number(spread.mean)
        if not spread.deviation:
            return mean
        return f"{mean} ± {self.number(spread.deviation)}"

    def number(self, value: float) -> str:
        """Format a number."""
        text = format(value, self.pattern)
        return text.removesuffix(".0") if self.pattern == _COUNT else text


@dataclass(frozen=True)
class Table:
    """A table of methods or federations, as text.

    Args:
        title: Title of the table.
        columns: Titles of the columns after the first.
        names: The first column.
        cells: The other columns, line by line.
        best: Which cells are marked as the best.
        head: Title of the first column.
        texts: Titles of columns that are text and no numbers.
    """

    title: str
    columns: Sequence[str]
    names: Sequence[str]
    cells: Sequence[Sequence[str]]
    best: Sequence[Sequence[bool]]
    head: str = "method"
    texts: Sequence[str] = ()


def make_table(title: str, columns: Sequence[Column], runs: Sequence[Metrics]) -> Table:
    """Make a table of those columns that apply to any run."""
    groups = group_runs(runs)
    shown = [column for column in columns if any(column.value(run) is not None for run in runs)]
    spreads = [[group.spread(column.value) for column in shown] for group in groups]
    cells = [[c.text(s) for c, s in zip(shown, line, strict=True)] for line in spreads]
    best = [[False] * len(shown) for _ in groups]
    complete = max(len(group.runs) for group in groups)
    ranked = [
        number
        for number, group in enumerate(groups)
        if not needs_truth(group.method) and len(group.runs) == complete
    ]
    for place, column in enumerate(shown):
        means = {
            number: spread.mean
            for number in ranked
            if (spread := spreads[number][place]) is not None
        }
        for number in _best(means, column):
            best[number][place] = True
    return Table(title, [c.title for c in shown], [group.title for group in groups], cells, best)


def needs_truth(method: str) -> bool:
    """Tell whether a method is given the true clusters, and so is not ranked with the others."""
    try:
        return method_of(method).needs_truth
    except InputError:  # read from disk, and not installed
        return False


def _best(means: Mapping[int, float], column: Column) -> list[int]:
    """Return the lines whose text is that of the best mean, unless all of them have it."""
    if column.best is None or not means:
        return []
    best = column.number(column.best(list(means.values())))
    lines = [number for number, mean in means.items() if column.number(mean) == best]
    return lines if len(lines) < len(means) else []


def results(runs: Sequence[Metrics], title: str = "") -> Table:
    """Make a table of the clusters that methods found, and of their models' scores."""
    split = runs[0]["scored_on"]
    columns = [
        Column("num_clusters", "clusters", _COUNT),
        Column("misclustering", "misclustered\n%", ".1f", min, 100),
        Column("ari", "ARI", ".2f", max),
    ]
    if any(run["accuracy"] is not None for run in runs):
        columns += [
            Column("accuracy", f"{split}\naccuracy %", ".2f", max, 100),
            Column("cluster_accuracy", "cluster\nmodel %", ".2f", max, 100),
            Column("tuned_accuracy", "fine-tuned\n%", ".2f", max, 100),
            Column("worst_accuracy", "worst\nclient %", ".1f", max, 100),
            Column("worst_tenth_accuracy", "worst\ntenth %", ".1f", max, 100),
        ]
    else:
        columns += [
            Column("loss", f"{split}\nloss", ".3g", min),
            Column("cluster_loss", "cluster\nmodel", ".3g", min),
            Column("tuned_loss", "fine-tuned", ".3g", min),
            Column("worst_loss", "worst\nclient", ".3g", min),
            Column("worst_tenth_loss", "worst\ntenth", ".3g", min),
        ]
    columns.append(Column("distance_to_optimum", "to\noptimum", ".3g", min))
    return make_table(title, columns, runs)


def costs(runs: Sequence[Metrics], title: str = "") -> Table:
    """Make a table of what a run cost a client on average, and the time that it took."""
    return make_table(
        title,
        [
            Column("local_steps", "local\nsteps", _COUNT, per_client=True),
            Column("models_down", "models\ndown", _COUNT, per_client=True),
            Column("models_up", "models\nup", _COUNT, per_client=True),
            Column("bytes_down", "MB\ndown", ".2f", scale=1e-6, per_client=True),
            Column("bytes_up", "MB\nup", ".2f", scale=1e-6, per_client=True),
            Column("evaluations", "evaluations", _COUNT, per_client=True),
            Column("seconds", "seconds", ".1f"),
            Column("cpu_seconds", "CPU\nseconds", ".1f"),
            Column("gpu_seconds", "GPU\nseconds", ".1f"),
        ],
        runs,
    )
