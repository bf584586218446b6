"""Tables of the paper's experiments, from records of runs, beside the published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from srfca.report.paired import paired_difference
from srfca.report.summary import Table, means_of_metrics, needs_truth

Record = Mapping[str, Any]
"""The record of a run (``srfca.experiments.records``)."""
Published = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Figures by source, experiment and row."""
REFERENCE = "sr-fca"
"""The row that the others are compared with."""


@dataclass(frozen=True)
class Line:
    """The runs of one row and one number of clusters.

    Args:
        row: Key of the row.
        title: Title of the row, with K.
        k: The number of clusters that the method was given, "mean" for the means over K.
        records: By seed.
    """

    row: str
    title: str
    k: int | str | None
    records: Mapping[int, Record]

    @property
    def ranked(self) -> bool:
        """Whether the best of a column may be this: the method is not given the truth."""
        return not needs_truth(next(iter(self.records.values()))["run"]["method"])

    def values(self, value: Callable[[Record], float | None]) -> dict[int, float]:
        """Return a value of each run that has it, by seed."""
        present = {seed: value(record) for seed, record in self.records.items()}
        return {seed: number for seed, number in present.items() if number is not None}


def lines(records: Sequence[Record], titles: Mapping[str, str]) -> list[Line]:
    """Group the records of an experiment by row and K, in the order of the titles.

    Args:
        records: The runs.
        titles: Titles of the rows, by key.
    """
    grouped: dict[tuple[str, int | None], dict[int, Record]] = {}
    for record in records:
        run = record["run"]
        grouped.setdefault((run["row"], run["k"]), {})[run["seed"]] = record
    order = {key: place for place, key in enumerate(titles)}
    keys = sorted(
        (key for key in grouped if key[0] in order), key=lambda k: (order[k[0]], k[1] or 0)
    )
    made = [
        Line(row, titles[row] + ("" if k is None else f", K={k}"), k, grouped[row, k])
        for row, k in keys
    ]
    for row in titles:
        of_row = [line for line in made if line.row == row]
        if len(of_row) > 1 and (means := _means_over_k(of_row)):
            mean = Line(row, f"{titles[row]}, mean over K", "mean", means)
            made.insert(made.index(of_row[-1]) + 1, mean)
    return made


def _means_over_k(of_row: Sequence[Line]) -> dict[int, Record]:
    """Return the means of the metrics over K, for each seed that has a run for every K."""
    seeds = set.intersection(*(set(line.records) for line in of_row))
    means: dict[int, Record] = {}
    for seed in sorted(seeds):
        records = [line.records[seed] for line in of_row]
        metrics = means_of_metrics([record["metrics"] for record in records])
        means[seed] = {**records[0], "metrics": metrics | {"num_clusters": None}}
    return means


def score(record: Record) -> float:
    """Return the test accuracy of a run in %, or its loss where there are no classes."""
    metrics = record["metrics"]
    return float(metrics["loss"] if metrics["accuracy"] is None else 100 * metrics["accuracy"])


def has_accuracy(records: Sequence[Record]) -> bool:
    """Tell whether scores are accuracies."""
    return any(record["metrics"]["accuracy"] is not None for record in records)


def experiment_table(
    title: str,
    records: Sequence[Record],
    titles: Mapping[str, str],
    published: Mapping[str, Mapping[str, float]],
) -> Table:
    """Make the table of an experiment.

    Args:
        title: Title of the table.
        records: Its runs.
        titles: Titles of the rows, by key.
        published: Figures by source and row.
    """
    accuracy, shown = has_accuracy(records), lines(records, titles)
    reference = next((line.values(score) for line in shown if line.row == REFERENCE), {})
    pattern = ".2f" if accuracy else ".3g"
    sources = [source for source in published if published[source]]
    optima_known = any(record["metrics"]["distance_to_optimum"] is not None for record in records)
    columns = [
        "seeds", "clusters", "misclustered %", "test accuracy %" if accuracy else "test loss",
        "worst tenth" + (" %" if accuracy else ""), "minus SR-FCA",
        *(["distance to w*"] if optima_known else []), *sources, "local steps", "seconds",
    ]  # fmt: skip
    cells = []
    for line in shown:
        values = line.values(score)
        difference = paired_difference(values, reference) if line.row != REFERENCE else None
        to_optimum = mean_text(metric_values(line, "distance_to_optimum", 1), ".3g")
        worst = "worst_tenth_accuracy" if accuracy else "worst_tenth_loss"
        scale = 100 if accuracy else 1
        cells.append([
            str(len(line.records)),
            _clusters(line),
            mean_text(metric_values(line, "misclustering", 100), ".1f"),
            mean_text(values, pattern),
            mean_text(metric_values(line, worst, scale), ".1f" if accuracy else ".3g"),
            "" if difference is None else difference.text("+.2f" if accuracy else "+.2g"),
            *([to_optimum] if optima_known else []),
            *(_figure(published[source], line, shown) for source in sources),
            mean_text(line.values(local_steps), ",.0f", deviation=False),
            mean_text(metric_values(line, "seconds", 1), ",.1f", deviation=False),
        ])  # fmt: skip
    best = [[False] * len(columns) for _ in shown]
    if (winner := _best(shown, accuracy)) is not None:
        best[winner][columns.index("test accuracy %" if accuracy else "test loss")] = True
    return Table(title, columns, [line.title for line in shown], cells, best)


def shortfalls(
    records: Sequence[Record],
    titles: Mapping[str, str],
    published: Mapping[str, Mapping[str, float]],
) -> list[str]:
    """Say where SR-FCA is behind: a published figure, or another method beyond chance.

    A loss is not compared with published figures, which are of labels that are scaled by the noise.

    Args:
        records: Runs of an experiment.
        titles: Of the rows, by key.
        published: Figures by source and row.

    Returns:
        A phrase for each, such as ``0.95 below the published 84.93``.
    """
    accuracy, shown = has_accuracy(records), lines(records, titles)
    reference = next((line.values(score) for line in shown if line.row == REFERENCE), {})
    if not reference:
        return []
    said = []
    highest = max((figures.get(REFERENCE, 0.0) for figures in published.values()), default=0.0)
    if accuracy and (missing := highest - fmean(reference.values())) > 0:
        said.append(f"{missing:.2f} below the published {highest:g}")
    pattern, sign = (".2f", 1) if accuracy else (".2g", -1)
    for line in shown:
        difference = paired_difference(line.values(score), reference)
        if line.row == REFERENCE or difference is None or not difference.significant:
            continue
        if sign * difference.mean > 0:
            amount = format(abs(difference.mean), pattern)
            half_width = format(difference.half_width, pattern)
            side = "below" if accuracy else "above"
            said.append(f"{amount} ± {half_width} {side} {line.title}")
    return said


def stages_table(title: str, records: Sequence[Record], row: str = REFERENCE) -> Table | None:
    """Make a table of the stages of a row: clusters and scores after each, over the seeds."""
    runs = [record for record in records if record["run"]["row"] == row]
    names: dict[str, None] = {}
    for record in runs:
        names |= {stage["name"]: None for stage in record["stages"]}
    if not runs:
        return None
    accuracy = has_accuracy(runs)
    metric, scale = ("accuracy", 100) if accuracy else ("loss", 1)
    pattern = ".2f" if accuracy else ".3g"
    unit = " %" if accuracy else ""
    cells = []
    for name in names:
        stages = {
            record["run"]["seed"]: stage
            for record in runs
            for stage in record["stages"]
            if stage["name"] == name
        }
        numbers = [stage["clusters"] for stage in stages.values()]
        scores = {
            split: {
                seed: scale * stage[f"{split}_{metric}"]
                for seed, stage in stages.items()
                if stage[f"{split}_{metric}"] is not None
            }
            for split in ("validation", "test")
        }
        cells.append([
            str(len(stages)),
            numbers_text(numbers),
            numbers_text([stage["unclustered"] for stage in stages.values()]),
            mean_text(scores["validation"], pattern),
            mean_text(scores["test"], pattern),
        ])  # fmt: skip
    columns = [
        "seeds", "clusters", "unclustered", f"validation {metric}{unit}", f"test {metric}{unit}",
    ]  # fmt: skip
    return Table(title, columns, list(names), cells, [[False] * 5 for _ in names], head="stage")


def summary_table(
    title: str,
    records: Mapping[str, Sequence[Record]],
    titles: Mapping[str, str],
    published: Published,
) -> Table:
    """Make the paper's table: a line for each method, a column for each experiment.

    Args:
        title: Title of the table.
        records: Runs by experiment.
        titles: Titles of the rows, by key.
        published: Published figures, which follow ours.
    """
    by_experiment = {name: lines(runs, titles) for name, runs in records.items()}
    names = list(
        dict.fromkeys(line.title for row in titles for all_lines in by_experiment.values()
                      for line in all_lines if line.row == row)
    )  # fmt: skip
    cells = [["-"] * len(records) for _ in names]
    best = [[False] * len(records) for _ in names]
    for column, (experiment, shown) in enumerate(by_experiment.items()):
        accuracy = has_accuracy(records[experiment])
        for line in shown:
            text = mean_text(line.values(score), ".2f" if accuracy else ".3g")
            cells[names.index(line.title)][column] = text
        if (winner := _best(shown, accuracy)) is not None:
            best[names.index(shown[winner].title)][column] = True
    for source, figures in published.items():
        for row in titles:
            line_cells = [figures.get(name, {}).get(row) for name in records]
            if any(figure is not None for figure in line_cells):
                names.append(f"{titles[row]} ({source})")
                cells.append(["-" if figure is None else f"{figure:g}" for figure in line_cells])
                best.append([False] * len(records))
    return Table(title, list(records), names, cells, best)


def provenance(records: Sequence[Record]) -> str:
    """Return where, when and with what version runs were made, in one line."""
    runs = [record["run"] for record in records]
    seconds = sum(run["seconds"]["run"] + run["seconds"]["setup"] for run in runs)
    machines = dict.fromkeys(run["machine"] for run in runs)
    counts = {name: sum(run["machine"] == name for run in runs) for name in machines}
    where = "; ".join(
        f"{name}" if len(counts) == 1 else f"{name} ({count} runs)"
        for name, count in counts.items()
    )
    dates = sorted(run["date"][:10] for run in runs)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    versions = ", ".join(dict.fromkeys(run["srfca"] for run in runs))
    return f"{len(runs)} runs on {where}; {_duration(seconds)}; {when}; srfca {versions}."


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def metric_values(line: Line, name: str, scale: float) -> dict[int, float]:
    """Return a metric of each run that has it, by seed."""
    values = line.values(lambda record: record["metrics"][name])
    return {seed: scale * value for seed, value in values.items()}


def local_steps(record: Record) -> float:
    """Return the local steps of a client on average."""
    return float(record["metrics"]["local_steps"] / record["metrics"]["clients"])


def mean_text(values: Mapping[int, float], pattern: str, deviation: bool = True) -> str:
    """Format the mean and standard deviation over seeds."""
    numbers = list(values.values())
    if not numbers:
        return "-"
    mean = format(fmean(numbers), pattern)
    if len(numbers) < 2 or not deviation or not (spread := stdev(numbers)):
        return mean
    return f"{mean} ± {format(spread, pattern)}"


def _clusters(line: Line) -> str:
    """Return the numbers of clusters that were found; empty ones are left out."""
    numbers = [record["metrics"]["num_clusters"] for record in line.records.values()]
    return "-" if None in numbers else numbers_text(numbers)


def numbers_text(numbers: Sequence[int]) -> str:
    """Return a number if all are the same, else all of them."""
    return ", ".join(map(str, numbers if len(set(numbers)) > 1 else numbers[:1]))


def _figure(figures: Mapping[str, float], line: Line, shown: Sequence[Line]) -> str:
    """Return the published figure of a line; the paper has means over K."""
    averaged = any((other.row, other.k) == (line.row, "mean") for other in shown)
    figure = figures.get(line.row) if not averaged or line.k == "mean" else None
    return "" if figure is None else f"{figure:g}"


def _best(shown: Sequence[Line], accuracy: bool) -> int | None:
    """Return the line of the best mean among those with the most seeds."""
    complete = max((len(line.records) for line in shown), default=0)
    means = {
        number: fmean(line.values(score).values())
        for number, line in enumerate(shown)
        if line.ranked and line.k != "mean" and len(line.records) == complete
    }
    if len(means) < 2:
        return None
    return (max if accuracy else min)(means, key=lambda number: means[number])
