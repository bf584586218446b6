"""The view of one run on a page."""

from __future__ import annotations

from typing import Any

from srfca.report import words
from srfca.report.answer import difference_lines
from srfca.report.charts.names import figures
from srfca.report.page.facts import facts
from srfca.report.page.images import gallery
from srfca.report.page.page import Section, View, chart_data, macros
from srfca.report.page.tables import (
    STAGE_COLUMNS,
    client_table,
    cluster_table,
    fairness_lines,
    setting_lines,
    stage_lines,
)
from srfca.report.view import RunView

_CHARTS = {
    "gains": ("Gains", [["gains"], ["gains_alone"]]),
    "confidence": ("Confidence", [["confidence"]]),
    "distances": ("Distances", [["distances", "recluster"], ["histogram", "profiles", "merge"]]),
    "moves": ("Moves", [["moves"]]),
    "curves": ("Learning curves", [["accuracy"], ["loss"]]),
}
"""Sections that have nothing but charts: their titles, and the charts in columns."""


def run_view(
    view: RunView, id: str = "run", title: str | None = None, heading: str = "What was found"
) -> View:
    """Return the view of a run.

    Args:
        view: The run.
        id: Id of the view's element; those inside begin with it.
        title: In the list of views; None is what the run is.
        heading: Heading of the first section.
    """
    prefix, drawn = f"{id}-", figures(view)
    parts = macros("run.html")
    shown: dict[str, Any] = {
        "heading": heading,
        "facts": facts(view),
        "warnings": words.warnings(view),
        "findings": words.findings(view),
        "figures": drawn,
        "clusters": cluster_table(view),
        "stages": stage_lines(view),
        "stage_columns": STAGE_COLUMNS,
        "settings": setting_lines(view),
        "differences": [] if view.analysis is None else difference_lines(view.analysis),
        "gallery": gallery(view),
        "seed": view.seed,
        "clustered": view.clustered,
        "versions": view.versions,
    }
    sections = [Section(f"{prefix}found", heading, parts.outcome(prefix, shown))]
    if view.clustered:
        sections.append(Section(f"{prefix}clusters", "Clusters", parts.clusters(prefix, shown)))
    sections.append(Section(f"{prefix}clients", "Clients", parts.clients(prefix, shown)))

    for name, (heading, columns) in _CHARTS.items():
        if name == "distances" and shown["differences"]:
            body = parts.differences(prefix, shown)
            sections.append(Section(f"{prefix}differences", "What differs", body))
        present = [[drawn[chart] for chart in column if chart in drawn] for column in columns]
        present = [column for column in present if column]
        if present:
            even = fairness_lines(view) if name == "gains" else None
            body = parts.charts(prefix, name, heading, present, even)
            sections.append(Section(f"{prefix}{name}", heading, body))
    sections.append(Section(f"{prefix}cost", "Cost", parts.cost(prefix, shown)))
    sections.append(Section(f"{prefix}settings", "Settings", parts.settings(prefix, shown)))
    return View(
        id,
        title or view.title,
        sections,
        {f"{prefix}{name}": chart_data(figure) for name, figure in drawn.items()},
        {f"{prefix}clients": client_table(view)},
    )
