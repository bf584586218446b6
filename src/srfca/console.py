"""What the command line shows: progress on standard error, tables on standard output."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import getdoc
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from srfca.report.summary import Row
from srfca.report.summary import Table as Summary
from srfca.report.tables import Report

if TYPE_CHECKING:
    from srfca.data.loaders.check import Status
    from srfca.experiments.bench import Done
    from srfca.experiments.config import Experiment
    from srfca.experiments.runner import Outcome
    from srfca.experiments.tune import Trial
    from srfca.progress import Callback as Tick


def show(content: Table | str, style: str | None = None) -> None:
    """Print to standard output: styled in a terminal, plain and unwrapped when piped.

    No figure of a table is cut: one that needs more room than the terminal has is wider than it.
    """
    if sys.stdout.isatty():
        width = None if isinstance(content, str) else _room(Console(), content)
        Console(highlight=False, markup=False, width=width).print(content, style=style)
    elif isinstance(content, str):
        print(content)
    else:
        width = _room(Console(width=200), content)
        plain = Console(width=width, color_system=None, markup=False)
        with plain.capture() as captured:
            plain.print(content)
        lines = (line.rstrip() for line in captured.get().splitlines())
        print("\n".join(line for line in lines if line), end="\n\n")


def _room(console: Console, table: Table) -> int:
    """The width for a table whose columns are never narrower than their longest word."""
    wide = console.options.update(width=10_000)
    least = 1
    for column in table.columns:
        cells = (column.header, *column.cells)
        words = max(console.measure(cell, options=wide).minimum for cell in cells)
        text = max(console.measure(cell, options=wide).maximum for cell in cells)
        column.min_width = text if column.no_wrap else words
        least += column.min_width + 3  # with its frame
    return max(console.width, least)


class Bars:
    """A monitor that draws a bar for each stage; nothing unless standard error is a terminal."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.prefix = ""

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[Tick]:
        """Show a stage while it lasts."""
        with Progress(
            TextColumn("{task.description:<32}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        ) as progress:
            task = progress.add_task(f"{self.prefix}{name}", total=steps or None)
            yield lambda done: progress.advance(task, done)


def experiments_table(experiments: Sequence[Experiment]) -> Table:
    """What ``srfca list`` shows."""
    table = _table("experiment", "clusters", "data", "what it is")
    for experiment in experiments:
        needs = experiment.needs or "none"
        table.add_row(experiment.name, experiment.clusters, needs, experiment.description)
    return table


def data_table(statuses: Sequence[Status]) -> Table:
    """What ``srfca data check`` shows: a line for each file, or the reason why there is none."""
    table = _table("data set", "state", "file", "what it is")
    for status in statuses:
        for file in status.files:
            table.add_row(status.name, file.state, file.path.name, file.detail)
        if status.problem and not status.files:
            table.add_row(status.name, "missing", "", status.problem)
    return table


@contextmanager
def download_bars() -> Iterator[Callable[[str, int, int | None], None]]:
    """A function to call with a file, the bytes that are there and all there are: draws bars."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description:<32}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        tasks: dict[str, TaskID] = {}

        def show_bytes(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(file)
            progress.update(tasks[file], completed=done, total=total)

        yield show_bytes


def stages_table(outcome: Outcome) -> Table:
    """How each stage of a run left things."""
    table = _table("stage", "clusters", "left out", "validation loss", "accuracy", "seconds")
    for stage in outcome.result.history:
        partition = stage.partition
        table.add_row(
            stage.name,
            str(partition.num_clusters),
            str(len(partition.unclustered)),
            _figure(stage.loss, "{:.4g}"),
            _figure(stage.accuracy, "{:.1%}"),
            f"{stage.seconds:.1f}",
        )
    return table


def summary_table(summary: Summary) -> Table:
    """Methods side by side, the best of each column in bold."""
    breaks = "\n" if sys.stdout.isatty() else " "
    table = _table("method", *(column.replace("\n", breaks) for column in summary.columns))
    for name, cells, best in zip(summary.names, summary.cells, summary.best, strict=True):
        table.add_row(
            name, *(Text(c, style="bold" if b else "") for c, b in zip(cells, best, strict=True))
        )
    return table


def methods_table() -> Table:
    """The methods: ``srfca list`` shows them after the experiments."""
    from srfca.experiments.config import METHODS, method_class, takes_k

    table = _table("method", "name", "told K", "what it is")
    for command in METHODS.keys():
        found = method_class(command)
        about = (getdoc(found) or "").partition("\n")[0].replace("``", "")
        table.add_row(command, found.name, "yes" if takes_k(command) else "no", about)
    return table


def trials_table(trials: Sequence[Trial]) -> Table:
    """Trials of a search with what they scored."""
    accuracy = any(trial.accuracy is not None for trial in trials)
    score = ["validation accuracy"] if accuracy else []
    table = _table("trial", "settings", *score, "validation loss", "seconds")
    for trial in trials:
        figures = [_figure(trial.accuracy, "{:.2%}")] if accuracy else []
        figures += [_figure(trial.loss, "{:.4g}"), f"{trial.seconds:.1f}"]
        table.add_row(str(trial.number), " ".join(trial.settings), *figures)
    return table


def trial_line(trial: Trial) -> str:
    """One line on a trial that is done."""
    text = f"trial {trial.number}: {' '.join(trial.settings)}: "
    if trial.why is not None:
        return text + f"failed: {trial.why}"
    text += f"accuracy {trial.accuracy:.2%}, " if trial.accuracy is not None else ""
    return text + f"loss {trial.loss:.4g}"


def verdict(row: Row) -> str:
    """One sentence on the clusters that were found."""
    sizes = Counter(label for label in row["labels"] if label >= 0)
    listed = ", ".join(str(sizes[label]) for label in sorted(sizes))
    text = f"Found {len(sizes)} cluster{'s' * (len(sizes) != 1)} of {listed} clients"
    text += " without being told how many there are" if row["k"] is None else f", told K={row['k']}"
    if row["misclustering"] is None:
        return text + "."
    if row["misclustering"] == 0:
        return text + ": exactly the true ones."
    truth, wrong = row["true_clusters"], row["misclustering"]
    return text + f": the truth is {truth}, {wrong:.1%} of the clients are misplaced."


def show_report(report: Report) -> None:
    """Print a comparison: what was found, what it cost, and what is to be said of it."""
    for table in report.tables:
        show(table.title, style="bold")
        show(summary_table(table))
    for note in report.notes:
        show(note)
    if len({row["seed"] for row in report.rows}) == 1:
        for row in report.rows:
            if row["num_clusters"] is not None and row["k"] is None:
                show(f"{row['name']}: {verdict(row)}")


def failure_lines(failures: Sequence[Done]) -> list[str]:
    """What failed and why, those that failed for the same reason on one line."""
    reasons: dict[str, list[str]] = {}
    for done in failures:
        reasons.setdefault(" ".join(str(done.why).split()), []).append(str(done.task))
    return [f"Failed: {', '.join(tasks)}: {why}" for why, tasks in reasons.items()]


def done_line(done: Done) -> str:
    """One line on a run that is done."""
    if done.row is None:
        return f"{done.task}: failed: {done.why}"
    accuracy, loss = done.row["accuracy"], done.row["loss"]
    score = f"loss {loss:.4g}" if accuracy is None else f"{100 * accuracy:.2f} %"
    return f"{done.task}: {score}, {done.row['seconds']:.0f} s"


class Runs:
    """Shows how many runs are done: a bar in a terminal, else a line for each of them.

    One run at a time has bars of its own, for its stages (``bars``); a bar of the runs would only
    be in their way.
    """

    def __init__(self, total: int, parallel: bool, silent: bool) -> None:
        self.total, self.done = total, 0
        self.bars = Bars()
        terminal = self.bars.console.is_terminal
        self.lines = not terminal and not silent
        self.progress = Progress(
            TextColumn("{task.completed} of {task.total} runs"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=self.bars.console,
            transient=True,
            disable=not (terminal and parallel),
        )
        self.bar = self.progress.add_task("", total=total)
        self.bars.prefix = f"1/{total} "

    def finished(self, done: Done) -> None:
        """A run is done, now or by an earlier call."""
        self.done += 1
        self.bars.prefix = f"{self.done + 1}/{self.total} "
        self.progress.update(self.bar, completed=self.done, description=f"last: {done.task}")
        if self.lines and not done.reused:
            print(f"{self.done}/{self.total} {done_line(done)}", file=sys.stderr, flush=True)


_TEXT = ("what it is", "settings", "data", "state", "file", "name", "told K")


def _table(*columns: str) -> Table:
    if sys.stdout.isatty():
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    else:
        table = Table(box=box.MARKDOWN)
    for place, column in enumerate(columns):
        text = column in _TEXT or place == 0
        table.add_column(column, justify="left" if text else "right", no_wrap=place == 0)
    return table


def _figure(value: float | None, pattern: str) -> str:
    return "-" if value is None else pattern.format(value)
