"""Print the answer of a run: its clusters, what they gain, how sure they are, what differs."""

from __future__ import annotations

from pathlib import Path

from srfca.analysis import Analysis
from srfca.cli.console import show
from srfca.cli.tables import summary_table
from srfca.report import answer


def show_answer(
    analysis: Analysis, path: Path | None = None, title: str = "Clusters", truth: str = ""
) -> None:
    """Print the answer of a run.

    Args:
        analysis: The answer.
        path: Where the clients' clusters are saved, if they are.
        title: Title of the table of clusters.
        truth: A sentence about the true clusters, if they are known.
    """
    table = answer.clusters_table(analysis)
    if table is not None:
        show(title, style="bold")
        show(summary_table(table))
    even = answer.fairness_table(analysis)
    if even is not None:
        show(even.title, style="bold")
        show(summary_table(even))
    differences = answer.difference_lines(analysis)
    if differences:
        show("What differs", style="bold")
        for line in differences:
            show(f"- {line}")
        show("")
    show(f"{analysis.sentence()} {truth if analysis.clustered else ''}".rstrip())
    if path is not None:
        show(f"A line for each client: {path}")
