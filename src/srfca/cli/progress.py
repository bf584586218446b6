"""Progress bars on standard error; nothing if it is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from srfca.callbacks.bars import ProgressBars
from srfca.cli.tables import outcome_line

if TYPE_CHECKING:
    from srfca.experiments.executor import RunOutcome


class RunsProgress:
    """Shows how many runs have finished: a bar in a terminal, otherwise a line for each run.

    A single process shows the stages of each run instead (``stage_bars``).

    Args:
        total: Number of runs.
        parallel: Whether there are several processes.
        lines: Print a line for each run if standard error is not a terminal.
        kind: Kind of the runs, before the word "runs" and the numbers of lines.
    """

    def __init__(self, total: int, parallel: bool, lines: bool, kind: str = "") -> None:
        self.total, self.finished, self.kind = total, 0, kind
        self.stage_bars = ProgressBars()
        terminal = self.stage_bars.console.is_terminal
        self._lines = lines and not terminal
        self.bar = Progress(
            TextColumn(f"{{task.completed}} of {{task.total}} {kind}runs"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=self.stage_bars.console,
            transient=True,
            disable=not (terminal and parallel),
        )
        self._task = self.bar.add_task("", total=total)
        self.stage_bars.prefix = f"{kind}1/{total} "

    def on_finish(self, outcome: RunOutcome) -> None:
        """Show that a run has finished."""
        self.finished += 1
        self.stage_bars.prefix = f"{self.kind}{self.finished + 1}/{self.total} "
        self.bar.update(self._task, completed=self.finished, description=f"last: {outcome.spec}")
        if self._lines and not outcome.reused and not outcome.postponed:
            line = f"{self.kind}{self.finished}/{self.total} {outcome_line(outcome)}"
            print(line, file=sys.stderr, flush=True)


@contextmanager
def download_bars() -> Iterator[Callable[[str, int, int | None], None]]:
    """Return a function that draws a bar for each file, given bytes received and in all."""
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

        def show_bytes(file: str, received: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(file)
            progress.update(tasks[file], completed=received, total=total)

        yield show_bytes
