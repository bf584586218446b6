"""What the command line shows: progress on standard error, tables on standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from srfca.data.loaders.check import Status
    from srfca.experiments.config import Experiment
    from srfca.experiments.runner import Outcome
    from srfca.experiments.tune import Trial
    from srfca.federation.base import Tick

NAMES = {
    "sr-fca": "SR-FCA",
    "oracle": "Oracle",
    "local": "Local",
    "global": "Global",
    "fedprox": "FedProx",
    "robust-global": "Robust Global",
    "cfl": "CFL",
    "hierarchical": "Hierarchical",
    "one-shot-kmeans": "One-shot k-means",
    "pacfl": "PACFL",
}

Row = Mapping[str, Any]


def show(content: Table | str, style: str | None = None) -> None:
    """Print to standard output: styled in a terminal, plain and unwrapped when piped."""
    if sys.stdout.isatty():
        Console(highlight=False).print(content, style=style)
    elif isinstance(content, str):
        print(content)
    else:
        plain = Console(width=200, color_system=None)
        with plain.capture() as captured:
            plain.print(content)
        lines = (line.rstrip() for line in captured.get().splitlines())
        print("\n".join(line for line in lines if line), end="\n\n")


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
            str(len(partition.left_out)),
            _figure(stage.loss, "{:.4g}"),
            _figure(stage.accuracy, "{:.1%}"),
            f"{stage.seconds:.1f}",
        )
    return table


def results_table(rows: Sequence[Row]) -> Table:
    """Methods side by side: mean, and standard deviation over the seeds if there are several."""
    split = rows[0]["scored_on"]
    columns = {
        "num_clusters": ("clusters", "{:.3g}"),
        "misclustering": ("misclustered", "{:.1%}"),
        "ari": ("ARI", "{:.3f}"),
        "accuracy": (f"{split} accuracy", "{:.2%}"),
        "loss": (f"{split} loss", "{:.4g}"),
        "distance_to_optimum": ("to optimum", "{:.3g}"),
        "seconds": ("seconds", "{:.1f}"),
    }
    shown = [key for key in columns if any(row[key] is not None for row in rows)]
    table = _table("method", *(columns[key][0] for key in shown))
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        cells = [_spread([row[key] for row in mine], columns[key][1]) for key in shown]
        table.add_row(NAMES[method], *cells)
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


def verdict(outcome: Outcome) -> str:
    """One sentence on what was found."""
    partition = outcome.result.partition
    sizes = ", ".join(str(size) for size in partition.sizes)
    text = f"Found {partition.num_clusters} cluster{'s' * (partition.num_clusters != 1)} of {sizes}"
    text += " clients without being told how many there are"
    truth = outcome.federation.data.truth
    if truth is None:
        return text + "."
    if partition == truth:
        return text + ": exactly the true ones."
    wrong = partition.misclustering(truth)
    return text + f": the truth is {truth.num_clusters}, {wrong:.1%} of the clients are misplaced."


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else box.MARKDOWN)
    for place, column in enumerate(columns):
        text = column in ("what it is", "settings", "data", "state", "file") or place == 0
        table.add_column(column, justify="left" if text else "right", no_wrap=not text)
    return table


def _figure(value: float | None, pattern: str) -> str:
    return "-" if value is None else pattern.format(value)


def _spread(values: Sequence[float | None], pattern: str) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "-"
    centre = pattern.format(mean(numbers))
    return centre if len(numbers) < 2 else f"{centre} ± {pattern.format(stdev(numbers))}"
