"""Tables and sentences that the commands print."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from srfca.analysis.names import percent
from srfca.report.methods import needs, short_citation, summary_line
from srfca.report.summary import Table as Summary

if TYPE_CHECKING:
    from srfca.data.loaders.check import Status
    from srfca.data.registry import DatasetFunction
    from srfca.experiments.executor import RunOutcome
    from srfca.experiments.experiment import Experiment
    from srfca.experiments.tune import Trial
    from srfca.methods import Method, Result
    from srfca.report.placements import Placement

_WIDE = 150
"""Columns of a terminal in which the table of methods also says what each method does."""
_NUMBERS = {
    "clusters", "unclustered", "validation loss", "validation accuracy", "accuracy", "seconds",
    "confidence", "margin",
}  # fmt: skip
"""Columns that are aligned to the right."""


def experiments_table(experiments: Sequence[Experiment]) -> Table:
    """Return a table of experiments."""
    table = _table("experiment", "clusters", "needs data", "what it is")
    for experiment in experiments:
        needed = experiment.needs or "-"
        table.add_row(experiment.name, experiment.clusters, needed, experiment.description)
    return table


def methods_table(methods: Sequence[type[Method]]) -> Table:
    """Return a table of methods."""
    wide = not sys.stdout.isatty() or get_terminal_size().columns >= _WIDE
    table = _table("method", "name", "needs", "family", "paper", *["what it does"] * wide)
    for method in methods:
        cells = [method.key, method.name, needs(method) or "-", method.family]
        table.add_row(*cells, short_citation(method.paper), *[summary_line(method)] * wide)
    return table


def datasets_table(datasets: Mapping[str, DatasetFunction]) -> Table:
    """Return a table of data sets."""
    table = _table("data set", "what it is")
    for key, dataset in sorted(datasets.items()):
        text = summary_line(dataset).removeprefix("Return ")
        table.add_row(key, text[:1].upper() + text[1:])
    return table


def files_table(statuses: Sequence[Status]) -> Table:
    """Return a table of the files of data sets, or of the reasons why there are none."""
    table = _table("data set", "state", "file", "what it is")
    for status in statuses:
        for file in status.files:
            table.add_row(status.name, file.state, file.path.name, file.detail)
        if status.problem and not status.files:
            table.add_row(status.name, "missing", "", status.problem)
    return table


def stages_table(result: Result) -> Table:
    """Return a table of the stages of a run."""
    table = _table("stage", "clusters", "unclustered", "validation loss", "accuracy", "seconds")
    for stage in result.history:
        partition = stage.partition
        table.add_row(
            stage.name,
            str(partition.num_clusters),
            str(len(partition.unclustered)),
            _number(stage.loss, "{:.4g}"),
            _number(stage.accuracy, "{:.1%}"),
            f"{stage.seconds:.1f}",
        )
    return table


def summary_table(summary: Summary) -> Table:
    """Return a table of methods or federations, the best cells in bold."""
    line_break = "\n" if sys.stdout.isatty() else " "
    columns = [column.replace("\n", line_break) for column in summary.columns]
    numbers = [column for column in columns if column not in summary.texts]
    table = _table(summary.head, *columns, numbers=numbers)
    for name, cells, best in zip(summary.names, summary.cells, summary.best, strict=True):
        table.add_row(
            name, *(Text(c, style="bold" if b else "") for c, b in zip(cells, best, strict=True))
        )
    return table


def compact_table(summary: Summary, narrow: bool) -> Table:
    """Return a table without edges in a terminal.

    Args:
        summary: What to show.
        narrow: Put deviations, and true numbers of clusters, into a second line of their cells.
    """
    if narrow:
        cells = [
            [cell.replace(" ±", "\n±").replace(" of ", "\nof ") for cell in line]
            for line in summary.cells
        ]
        summary = replace(summary, cells=cells)
    table = summary_table(summary)
    table.show_edge = not sys.stdout.isatty()
    return table


def trials_table(trials: Sequence[Trial]) -> Table:
    """Return a table of the trials of a search."""
    accuracy = any(trial.accuracy is not None for trial in trials)
    score = ["validation accuracy"] if accuracy else []
    table = _table("trial", "settings", *score, "validation loss", "seconds")
    for trial in trials:
        numbers = [_number(trial.accuracy, "{:.2%}")] if accuracy else []
        numbers += [_number(trial.loss, "{:.4g}"), f"{trial.seconds:.1f}"]
        table.add_row(str(trial.number), " ".join(trial.settings), *numbers)
    return table


def placements_table(placements: Sequence[Placement]) -> Table:
    """Return a table of newcomers."""
    table = _table("client", "cluster", "confidence", "next cluster", "margin", "note")
    for placement in placements:
        table.add_row(
            placement.client,
            "none" if placement.cluster is None else str(placement.cluster),
            "-" if placement.confidence is None else percent(placement.confidence),
            "-" if placement.next is None else str(placement.next),
            _number(placement.margin, "{:.2f}"),
            placement.note,
        )
    return table


def trial_line(trial: Trial) -> str:
    """Return a line about a trial that has finished."""
    text = f"trial {trial.number}: {' '.join(trial.settings)}: "
    if trial.error is not None:
        return text + f"failed: {trial.error}"
    text += f"accuracy {trial.accuracy:.2%}, " if trial.accuracy is not None else ""
    return text + f"loss {trial.loss:.4g}"


def outcome_line(outcome: RunOutcome) -> str:
    """Return a line about a run that has finished; under attack, the score of honest clients."""
    metrics = outcome.metrics
    if metrics is None:
        return f"{outcome.spec}: failed: {outcome.error}"
    accuracy = metrics.get("honest_accuracy", metrics["accuracy"])
    loss = metrics.get("honest_loss", metrics["loss"])
    score = f"loss {loss:.4g}" if accuracy is None else f"{100 * accuracy:.2f} %"
    return f"{outcome.spec}: {score}, {metrics['seconds']:.0f} s"


def failure_lines(failures: Sequence[RunOutcome]) -> list[str]:
    """Return a line for each reason why runs failed."""
    runs_by_error: dict[str, list[str]] = {}
    for outcome in failures:
        error = " ".join(str(outcome.error).split())
        runs_by_error.setdefault(error, []).append(str(outcome.spec))
    return [f"Failed: {', '.join(runs)}: {error}" for error, runs in runs_by_error.items()]


def _table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    """Return an empty table."""
    style: dict[str, Any] = {"box": box.MARKDOWN}
    if sys.stdout.isatty():
        style = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}
    table = Table(**style)
    for place, column in enumerate(columns):
        right = place > 0 and (column in _NUMBERS or column in numbers)
        table.add_column(column, justify="right" if right else "left", no_wrap=place == 0)
    return table


def _number(value: float | None, pattern: str) -> str:
    return "-" if value is None else pattern.format(value)
