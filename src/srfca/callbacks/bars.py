"""Progress bars: in a terminal on standard error, in a notebook as HTML, elsewhere none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from srfca import progress
from srfca.methods import Monitor

SECONDS = 0.2
"""Minimum time between two updates in a notebook."""


class ProgressBars(Monitor):
    """A callback that draws a bar for each stage of a run.

    Attributes:
        prefix: Text before the name of each stage.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import FedAvg
        >>> federation = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> method = FedAvg(local=LocalTraining(steps=5))
        >>> result = method.fit(federation, callbacks=ProgressBars())
    """

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.prefix = ""
        self._notebook: Any = None

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[progress.Callback]:
        """Show a stage while it lasts."""
        draw = self._in_notebook if self.console.is_jupyter else self._in_terminal
        with draw(f"{self.prefix}{name}", steps) as advance:
            yield advance

    @contextmanager
    def _in_terminal(self, name: str, steps: int) -> Iterator[progress.Callback]:
        with Progress(
            TextColumn("{task.description:<32}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        ) as bars:
            task = bars.add_task(name, total=steps or None)
            yield lambda steps: bars.advance(task, steps)

    @contextmanager
    def _in_notebook(self, name: str, steps: int) -> Iterator[progress.Callback]:
        """Show the stage in one output of the cell, which is replaced; no widgets are needed."""
        from IPython.display import HTML, display

        start, done, due = monotonic(), 0, 0.0

        def show(is_done: bool = False) -> None:
            html = HTML(bar_html(name, done, steps, monotonic() - start, is_done))
            if self._notebook is None:
                self._notebook = display(html, display_id=True)
            else:
                self._notebook.update(html)

        def advance(steps: int) -> None:
            nonlocal done, due
            done += steps
            if monotonic() >= due:
                due = monotonic() + SECONDS
                show()

        show()
        yield advance
        show(is_done=True)


def bar_html(name: str, done: int, steps: int, seconds: float, is_done: bool = False) -> str:
    """Return a bar as HTML.

    Args:
        name: Name of the stage.
        done: Local steps so far.
        steps: In all, 0 if unknown.
        seconds: Since the stage began.
        is_done: Whether it has ended.
    """
    value = f'value="{min(done, steps)}" max="{steps}"' if steps else ""
    value = 'value="1" max="1"' if is_done else value
    share = f"{min(done / steps, 1):.0%}, " if steps and not is_done else ""
    return (
        f'<div><label>{escape(name)} <progress {value} style="width:16em;vertical-align:middle">'
        f"</progress></label> {share}{seconds:.0f} s{', done' if is_done else ''}</div>"
    )
