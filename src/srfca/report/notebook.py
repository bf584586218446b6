"""Results, comparisons and partitions in notebooks: small pieces of HTML without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from srfca.analysis import analyze
from srfca.analysis.analysis import Columns
from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation import Federation
from srfca.methods import Result
from srfca.report import words
from srfca.report.palette import cluster_colors, cluster_name
from srfca.report.summary import Metrics, Table, costs, results
from srfca.report.view import RunView

MAX_CLUSTERS = 20
"""Most clusters that are listed."""
_TABLE = "border-collapse:collapse;margin:.4em 0;font-variant-numeric:tabular-nums"
_CELL = "padding:.15em .8em .15em 0;text-align:{side};border-bottom:1px solid rgba(128,128,128,.3)"
_DOT = "display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.4em;background:"


def view_of(result: Result, federation: Federation | None, sample_inputs: int = 0) -> RunView:
    """Return the view of a result, with an analysis if its clients can be asked."""
    if federation is None:
        require(sample_inputs == 0, "sample_inputs needs the federation, which has the samples")
        return RunView.of(result)
    return RunView.asking(result, federation, sample_inputs)


def result_table(result: Result, federation: Federation) -> Columns:
    """Return a line for each client: its cluster, how sure that is, and its scores."""
    return analyze(result, federation, differences=False).table()


def partition_html(partition: Partition) -> str:
    """Return a partition: the clusters with their sizes and first clients."""
    return _div(f"<b>{escape(partition.describe() or 'no clients')}</b>", _clusters(partition))


def result_html(result: Result) -> str:
    """Return a result: what was found, the clusters, and the stages."""
    view = RunView.of(result)
    heading = f"<b>{escape(view.title)}</b>: {len(result.client_ids):,} clients"
    sentences = "".join(f"<div>{escape(text)}</div>" for text in words.findings(view))
    doubts = "".join(f"<div><b>Warning:</b> {escape(text)}</div>" for text in words.warnings(view))
    clusters = _clusters(result.partition) if result.clustered else ""
    columns = ["stage", "clusters", "held-out accuracy", "held-out loss", "seconds"]
    stages = [
        [
            escape(stage.name),
            f"{stage.partition.num_clusters:,}",
            "-" if stage.accuracy is None else f"{stage.accuracy:.1%}",
            "-" if stage.loss is None else f"{stage.loss:.4g}",
            f"{stage.seconds:.1f}",
        ]
        for stage in result.history
    ]
    details = f"<details><summary>Stages</summary>{_table(columns, stages)}</details>"
    return _div(heading, sentences, doubts, clusters, details if stages else "")


def comparison_html(runs: Sequence[Metrics], failures: int = 0) -> str:
    """Return a comparison: results and costs of the methods."""
    failed = f"<div>{failures} runs failed.</div>" if failures else ""
    if not runs:
        return _div("<b>No run succeeded.</b>", failed)
    title = f"<b>{escape(str(runs[0]['experiment']))}</b>: {len(runs)} runs"
    cost = f"<details><summary>Cost per client</summary>{_summary(costs(runs))}</details>"
    return _div(title, failed, _summary(results(runs)), cost)


def _summary(table: Table) -> str:
    columns = [table.head, *(column.replace("\n", " ") for column in table.columns)]
    lines = [
        [
            escape(name),
            *(f"<b>{escape(c)}</b>" if b else escape(c) for c, b in zip(cells, best, strict=True)),
        ]
        for name, cells, best in zip(table.names, table.cells, table.best, strict=True)
    ]
    return _table([escape(column) for column in columns], lines)


def _clusters(partition: Partition) -> str:
    """Return a table of the clusters of several clients."""
    colors = cluster_colors(partition)
    several = [cluster for cluster, size in enumerate(partition.sizes) if size > 1]
    lines = [
        [
            f'<span style="{_DOT}{colors[cluster]}"></span>{cluster_name(cluster)}',
            f"{partition.sizes[cluster]:,}",
            f"{partition.sizes[cluster] / len(partition):.0%}",
        ]
        for cluster in several[:MAX_CLUSTERS]
    ]
    more = len(several) - MAX_CLUSTERS
    note = f"<div>and {more} more clusters</div>" if more > 0 else ""
    return _table(["cluster", "clients", "share"], lines) + note if lines else ""


def _table(columns: Iterable[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table; the first column is aligned to the left. Cells are HTML."""

    def row(tag: str, cells: Iterable[str]) -> str:
        return "".join(
            f'<{tag} style="{_CELL.format(side="right" if place else "left")}">{cell}</{tag}>'
            for place, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{row('td', line)}</tr>" for line in lines)
    return f'<table style="{_TABLE}"><tr>{row("th", columns)}</tr>{body}</table>'


def _div(*parts: str) -> str:
    return f'<div style="max-width:60em">{"".join(parts)}</div>'
