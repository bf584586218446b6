"""The view of a comparison on a page: methods side by side, and its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from srfca.report import words
from srfca.report.charts.comparison import COMPARISON_CHARTS
from srfca.report.page.page import Section, View, chart_data, macros
from srfca.report.page.tables import TableLines
from srfca.report.summary import Metrics, costs, results
from srfca.report.tables import notes
from srfca.report.view import RunView


@dataclass(frozen=True)
class RunLine:
    """A run in the list of runs.

    Args:
        title: What it is.
        link: The id of its view, none if it is not on the page.
        cells: Its numbers.
    """

    title: str
    link: str
    cells: list[str]


def comparison_view(
    runs: Sequence[RunView], links: Sequence[str], id: str = "comparison", title: str = "Comparison"
) -> View:
    """Return the view of a comparison.

    Args:
        runs: With their metrics.
        links: The ids of their views, empty for runs that are not on the page.
        id: Id of the view's element.
        title: In the list of views.
    """
    metrics = [run.metrics for run in runs]
    prefix, parts = f"{id}-", macros("comparison.html")
    drawn = {name: figure for name, draw in COMPARISON_CHARTS.items() if (figure := draw(metrics))}
    left_out = links.count("")
    shown = {
        "results": TableLines.of(results(metrics)),
        "costs": TableLines.of(costs(metrics)),
        "notes": notes(metrics),
        "sentences": _sentences(metrics),
        "left": [drawn["scores"]] if "scores" in drawn else [],
        "right": [drawn[name] for name in ("clusters", "traffic") if name in drawn],
        "runs": [_run_line(run, link) for run, link in zip(runs, links, strict=True)],
        "run_columns": ["seed", "clusters", "ARI", "score", "seconds"],
        "left_out": f"{left_out} runs have no page of their own here." if left_out else "",
    }
    sections = [
        Section(f"{prefix}results", "Methods side by side", parts.results(prefix, shown)),
        Section(f"{prefix}costs", "Cost", parts.costs(prefix, shown)),
        Section(f"{prefix}runs", "Runs", parts.runs(prefix, shown)),
    ]
    charts = {f"{prefix}{name}": chart_data(figure) for name, figure in drawn.items()}
    return View(id, title, sections, charts)


def _sentences(metrics: Sequence[Metrics]) -> list[str]:
    """Return what methods that were not given K found, if there is one run of each."""
    if len({run["seed"] for run in metrics}) > 1:
        return []
    clustered = (run for run in metrics if run["num_clusters"] is not None and run["k"] is None)
    return [words.clusters_sentence(run) for run in clustered]


def _run_line(run: RunView, link: str) -> RunLine:
    metrics = run.metrics
    score = metrics["accuracy"]
    return RunLine(
        run.name,
        link,
        [
            str(run.seed),
            "-" if metrics["num_clusters"] is None else f"{metrics['num_clusters']:,}",
            "-" if metrics["ari"] is None else f"{metrics['ari']:.2f}",
            f"{metrics['loss']:.4g}" if score is None else f"{score:.2%}",
            "-" if metrics["seconds"] is None else f"{metrics['seconds']:,.1f}",
        ],
    )
