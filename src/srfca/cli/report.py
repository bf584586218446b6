"""``srfca report`` and ``srfca figure``: runs for people to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from srfca.cli.options import interruptible, needs_extra, whole_number
from srfca.errors import require, unknown

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="The --out of 'srfca run' or 'srfca compare'.")
]


def check_report(path: Path | None) -> None:
    """Check that a report can be written, before anything runs.

    Raises:
        InputError: If it cannot, or packages are missing.
    """
    if path is not None:
        with needs_extra("report"):
            from srfca.report.page.report import check_path
        check_path(path)


def write_report(path: Path, folders: Sequence[Path | None]) -> None:
    """Write a report of the runs in these folders, without those that failed."""
    from srfca.experiments.views import read_view
    from srfca.report.page import report as pages

    done = [folder for folder in folders if folder and (folder / "run.json").exists()]
    pages.write_report([read_view(folder) for folder in done], path)


@contextmanager
def kept_runs(out: Path | None, report: Path | None) -> Iterator[Path | None]:
    """Return where runs are saved: a report needs them, also if the user does not keep them."""
    if out is not None or report is None:
        yield out
        return
    with TemporaryDirectory() as folder:
        yield Path(folder)


def report(
    folder: Run,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="HTML file; default: report.html in the folder."
        ),
    ] = None,
) -> None:
    """Write a page about a run or a comparison: one HTML file."""
    from srfca.cli.console import show
    from srfca.experiments.views import read_views

    with interruptible(), needs_extra("report"):
        from srfca.report.page import report as pages

        path = pages.write_report(read_views(folder), out or folder / "report.html")
    show(f"Report: {path}")


def figure(
    folder: Run,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Chart name; see --list.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Output file: .png, .svg or .pdf."),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(
            metavar="PIXELS",
            parser=whole_number(100, 4000),
            help="Width of the chart without its axes.",
        ),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the charts that can be drawn.")
    ] = False,
) -> None:
    """Write one chart of a run, or of a comparison, for a paper."""
    from srfca.cli.console import show
    from srfca.experiments.views import read_views

    with interruptible(), needs_extra("report"):
        from srfca.report.charts.export import write_figure
        from srfca.report.charts.names import all_figures

        figures = all_figures(read_views(folder))
        if show_list:
            for made in figures.values():
                show(f"{made.name:<12} {made.title}")
            return
        require(name is not None, "name a chart: 'srfca figure RUN --list' shows them")
        if name not in figures:
            raise unknown(f"chart of {folder}", name, figures)
        path = write_figure(figures[name], out or Path(f"{name}.pdf"), width)
    show(f"Figure: {path}")
