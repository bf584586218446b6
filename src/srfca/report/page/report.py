"""Reports: pages of one run, or of a comparison with all of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from srfca.errors import InputError, require
from srfca.files import replace_file, writable_folder
from srfca.methods._common.base import FAMILIES
from srfca.methods.registry import method_of
from srfca.report.page.comparison_view import comparison_view
from srfca.report.page.page import View, page
from srfca.report.page.run_view import run_view
from srfca.report.view import RunView

MAX_RUNS = 30
"""Most runs of a comparison that are on the page with everything that is known of them."""


def report(runs: Sequence[RunView], title: str | None = None) -> str:
    """Return a page of HTML about runs.

    Args:
        runs: One run, or those of a comparison: methods, seeds, experiments.
        title: Title of the page; None is what the runs are.

    Returns:
        A complete page, which loads nothing.

    Raises:
        InputError: If there are no runs, or several without metrics.
    """
    require(bool(runs), "a report needs at least one run")
    views, default = report_views(runs)
    return page(views, title or default)


def report_views(runs: Sequence[RunView]) -> tuple[list[View], str]:
    """Return the views of a page about runs, and its title; as ``report``."""
    if len(runs) == 1:
        return [run_view(runs[0])], runs[0].title
    bare = [run.title for run in runs if not run.metrics]
    require(
        not bare,
        f"runs can be compared only with their metrics, which {len(bare)} of them lack, such as "
        f"{bare[0] if bare else ''!r}: make a report of each",
    )
    return _views(sorted(runs, key=_order)), _title(runs)


def write_report(runs: Sequence[RunView], path: Path, title: str | None = None) -> Path:
    """Write a page of HTML about runs; arguments are those of ``report``."""
    check_path(path)
    replace_file(path, report(runs, title).encode())
    return path


def check_path(path: Path) -> None:
    """Check that a report can be written to this file.

    Raises:
        InputError: If it is a folder, its name does not end with .html, or it cannot be written.
    """
    require(path.suffix in (".html", ".htm"), f"a report is HTML: {path} must end with .html")
    require(not path.is_dir(), f"{path} is a folder")
    writable_folder(path.parent)


def _views(runs: Sequence[RunView]) -> list[View]:
    """Return a comparison for each experiment, and the runs."""
    links = [f"run{number}" if number < MAX_RUNS else "" for number in range(len(runs))]
    experiments = list(dict.fromkeys(run.experiment for run in runs))
    views = []
    for number, experiment in enumerate(experiments):
        chosen = [place for place, run in enumerate(runs) if run.experiment == experiment]
        views.append(
            comparison_view(
                [runs[place] for place in chosen],
                [links[place] for place in chosen],
                f"comparison{number}",
                f"Comparison: {experiment}" if len(experiments) > 1 else "Comparison",
            )
        )
    several = len(experiments) > 1
    views += [
        run_view(run, link, run.title if several else f"{run.name}, seed {run.seed}")
        for run, link in zip(runs, links, strict=True)
        if link
    ]
    return views


def _title(runs: Sequence[RunView]) -> str:
    experiments = list(dict.fromkeys(run.experiment for run in runs))
    seeds = {run.seed for run in runs}
    parts = [", ".join(experiments[:3]), f"{len({run.method for run in runs})} methods"]
    parts.append(f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {runs[0].seed}")
    return ", ".join(parts)


def _order(run: RunView) -> tuple[str, int, str, int, int]:
    """Order runs by experiment, then SR-FCA, baselines and others, then by K and seed."""
    try:
        family = FAMILIES.index(method_of(run.key).family)
    except InputError:  # read from disk, and not installed
        family = len(FAMILIES)
    k = run.parameters.get("k")
    return run.experiment, family, run.method, k if isinstance(k, int) else 0, run.seed
