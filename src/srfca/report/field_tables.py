"""The table of a benchmark, as text and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from statistics import fmean

from srfca.report.field import SUBJECT, FieldLine, Variant, spread
from srfca.report.summary import Metrics, Spread, Table, needs_truth

Column = tuple[str, list[str]]
"""The title of a column and its cells."""


def score_text(value: Spread | None, line: FieldLine, mark: str = "") -> str:
    """Format a score and its deviation over the seeds."""
    if value is None:
        return "-"
    text = f"{value.mean:{line.pattern}}{mark}"
    return text if value.deviation is None else f"{text} ±{value.deviation:{line.pattern}}"


def short_cell(line: FieldLine, method: str) -> str:
    """Return the better score of a method, with an asterisk if it is that after fine-tuning."""
    variant = line.better(method)
    return score_text(line.spread(variant), line, "*" if variant.fine_tuned else "")


def full_cell(line: FieldLine, method: str) -> str:
    """Return the score of a method and, after an arrow, that after fine-tuning."""
    plain, tuned = line.spread(Variant(method)), line.spread(Variant(method, fine_tuned=True))
    text = score_text(plain, line)
    return text if tuned is None else f"{text} → {score_text(tuned, line)}"


def difference_text(line: FieldLine) -> str:
    """Format the difference to the best reference, marked if SR-FCA is worse."""
    if line.difference is None:
        return "-"
    value = line.difference.spread
    mark = "!" if line.difference.worse else ""
    text = f"{value.mean:+{line.pattern}}{mark}"
    return text if value.deviation is None else f"{text} ±{value.deviation:{line.pattern}}"


def clusters_text(line: FieldLine) -> str:
    """Return the numbers of clusters that SR-FCA found, by seed, and the true number.

    Of several federations it is the mean of each.
    """
    numbers = list(line.by_seed(SUBJECT, itemgetter("num_clusters")).values())
    truth = list(line.by_seed(SUBJECT, itemgetter("true_clusters")).values())
    if not numbers:
        return "-"
    if line.num_federations > 1:
        return f"{fmean(numbers):.1f}" + (f" of {fmean(truth):.1f}" if truth else "")
    return _list_numbers(numbers) + (f" of {_list_numbers(truth)}" if truth else "")


def doubtful_text(line: FieldLine) -> str:
    """Return how many of SR-FCA's runs warn that another answer may do as well."""
    warned, runs = line.doubtful
    return f"{warned} of {runs}" if runs else "-"


def outliers_text(line: FieldLine) -> str:
    """Return how many outliers keep their own model, and the worst that others gain over it."""
    outliers = line.outliers
    if outliers is None:
        return "-"
    text = f"{outliers.alone} of {outliers.count}"
    return text if outliers.worst is None else f"{text}, {outliers.worst:+{line.pattern}}"


def _list_numbers(values: Sequence[float]) -> str:
    """List whole numbers, only once if they are all the same."""
    numbers = values[:1] if len(set(values)) == 1 else values
    return ", ".join(f"{number:.0f}" for number in numbers)


def mean_text(line: FieldLine, value: Callable[[Metrics], float | None], pattern: str) -> str:
    """Format the mean of a number of SR-FCA's runs over the seeds."""
    values = line.by_seed(SUBJECT, value)
    return format(fmean(values.values()), pattern) if values else "-"


def steps_per_client(run: Metrics) -> float:
    """Return the local steps of a client."""
    return float(run["local_steps"] / run["clients"])


def score_columns(
    shown: Sequence[FieldLine], methods: Mapping[str, str], full: bool
) -> list[Column]:
    """Return the columns of scores: title and cells, ready for ``make_table``.

    Args:
        shown: The lines.
        methods: Names of the methods by key.
        full: Show baselines before and after fine-tuning, else the better of both.
    """
    cell = full_cell if full else short_cell
    columns = [(name, [cell(line, key) for line in shown]) for key, name in methods.items()]
    if any(line.difference for line in shown):
        name = methods[SUBJECT]
        columns.append((f"{name}\n- best", [difference_text(line) for line in shown]))
    return columns


def cluster_columns(shown: Sequence[FieldLine]) -> list[Column]:
    """Return the columns on SR-FCA's clusters and costs; none if it was not run."""
    if not any(run["method"] == SUBJECT for line in shown for run in line.runs):
        return []
    columns = [
        ("clusters", [clusters_text(line) for line in shown]),
        ("ARI", [mean_text(line, itemgetter("ari"), ".2f") for line in shown]),
        ("doubtful", [doubtful_text(line) for line in shown]),
        ("local\nsteps", [mean_text(line, steps_per_client, ",.0f") for line in shown]),
    ]
    if any(line.outliers for line in shown):
        columns.insert(3, ("outliers\nalone", [outliers_text(line) for line in shown]))
    return columns


def method_names(runs: Sequence[Metrics]) -> dict[str, str]:
    """Return the names of the methods by key, in the order of the runs."""
    return {run["method"]: run["name"] for run in runs}


def make_table(
    title: str,
    shown: Sequence[FieldLine],
    columns: Sequence[Column],
    methods: Mapping[str, str],
) -> Table:
    """Make a table; the best method of each line that is not given the clusters is marked."""
    keys = {name: key for key, name in methods.items()}
    cells: list[list[str]] = []
    best: list[list[bool]] = []
    for number, line in enumerate(shown):
        cells.append([column[number] for _, column in columns])
        leaders = _leaders(line, [key for key in methods if not needs_truth(key)])
        best.append([keys.get(name) in leaders for name, _ in columns])
    names = [line.title for line in shown]
    return Table(title, [name for name, _ in columns], names, cells, best, head="federation")


def _leaders(line: FieldLine, keys: Sequence[str]) -> list[str]:
    """Return the methods whose better score reads as the best, unless all of them do."""
    spreads = {key: line.spread(line.better(key)) for key in keys}
    means = {key: value.mean for key, value in spreads.items() if value is not None}
    if not means:
        return []
    best = max(means.values()) if line.is_accuracy else min(means.values())
    text = format(best, line.pattern)
    leaders = [key for key, mean in means.items() if format(mean, line.pattern) == text]
    return leaders if len(leaders) < len(means) else []


def as_csv(shown: Sequence[FieldLine]) -> str:
    """Return a line for each federation, with all numbers; accuracies are in percent."""
    methods = method_names([run for line in shown for run in line.runs])
    variants = [Variant(key, tuned) for key in methods for tuned in (False, True)]
    heads = ["federation", "federations", "score"]
    for variant in variants:
        name = variant.method + "_fine_tuned" * variant.fine_tuned
        heads += [f"{name}_mean", f"{name}_std"]
    heads += ["clusters", "true_clusters", "ari", "local_steps", "doubtful"]
    heads += ["outliers", "outliers_alone", "outliers_worst"]
    heads += ["best_reference", "difference_mean", "difference_std", "worse"]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(heads)
    for line in shown:
        cells: list[object] = [
            line.title,
            line.num_federations,
            "accuracy" if line.is_accuracy else "loss",
        ]
        for variant in variants:
            cells += _parts(line.spread(variant))
        for name in ("num_clusters", "true_clusters"):
            numbers = line.by_seed(SUBJECT, itemgetter(name)).values()
            cells.append(" ".join(f"{number:g}" for number in numbers))
        for value in (itemgetter("ari"), steps_per_client):
            cells.append(_parts(spread(line.by_seed(SUBJECT, value).values()))[0])
        cells.append(line.doubtful[0] if line.doubtful[1] else "")
        outliers = line.outliers
        cells += (
            ["", "", ""] if outliers is None else [outliers.count, outliers.alone, outliers.worst]
        )
        difference = line.difference
        if difference is None:
            cells += ["", "", "", ""]
        else:
            cells += [difference.best.title, *_parts(difference.spread), difference.worse]
        writer.writerow(cells)
    return file.getvalue()


def _parts(value: Spread | None) -> list[object]:
    return ["", ""] if value is None else [value.mean, value.deviation]
