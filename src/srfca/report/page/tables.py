"""Tables of a page: the clusters, the stages, the settings, and the clients for the script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from srfca.analysis.gains import client_gains
from srfca.analysis.names import percent
from srfca.clustering.partition import Indices
from srfca.report.answer import cluster_gains, fairness_table, gain_text, gain_title
from srfca.report.palette import NONE, cluster_name
from srfca.report.sampling import sample_clients, short
from srfca.report.summary import Table
from srfca.report.view import Numbers, RunView

MAX_CLIENTS = 20_000
"""Most clients in a table of clients."""
MAX_CLUSTERS = 200
"""Most clusters in a table of clusters."""
Groups = dict[int | str, Indices]
"""Clients by cluster; those that are alone, or in no cluster, by a word."""


@dataclass(frozen=True)
class ClusterLine:
    """A line of the table of clusters, as text.

    Args:
        name: The cluster.
        color: Its color.
        cells: The other columns.
    """

    name: str
    color: str
    cells: list[str]


@dataclass(frozen=True)
class ClusterTable:
    """The table of clusters.

    Args:
        columns: Titles of the columns after the first.
        lines: The clusters.
        remark: What is left out, if anything is.
    """

    columns: list[str]
    lines: list[ClusterLine]
    remark: str


@dataclass(frozen=True)
class TableLines:
    """A table for a template.

    Args:
        columns: Titles after the first.
        lines: Name and cells of each line.
        best: Which cells are the best.
    """

    columns: list[str]
    lines: list[list[str]]
    best: Sequence[Sequence[bool]]

    @classmethod
    def of(cls, table: Table) -> TableLines:
        """Return the lines of a summary."""
        return cls(
            [column.replace("\n", " ") for column in table.columns],
            [[name, *cells] for name, cells in zip(table.names, table.cells, strict=True)],
            table.best,
        )


def cluster_table(view: RunView) -> ClusterTable:
    """Return the sizes of the clusters, how their clients are served, and how sure they are.

    Clients that are alone are one line, and so are those in no cluster.
    """
    sizes = view.partition.sizes
    shared = np.flatnonzero(sizes > 1).tolist()
    clusters = sorted(shared, key=lambda cluster: (-sizes[cluster], cluster))
    shown: Groups = {c: view.partition.members(c) for c in sorted(clusters[:MAX_CLUSTERS])}
    rest = {"alone": view.partition.alone, "unclustered": view.partition.unclustered}
    shown |= {name: clients for name, clients in rest.items() if len(clients)}
    columns = {
        "clients": [f"{len(clients):,}" for clients in shown.values()],
        "share": [f"{len(clients) / view.num_clients:.1%}" for clients in shown.values()],
        **_score_cells(view, shown),
        **_analysis_cells(view, shown),
    }
    if view.truth is not None:
        truth = view.truth.labels
        columns["true clusters"] = [_listed(truth[clients]) for clients in shown.values()]
    columns = {title: cells for title, cells in columns.items() if set(cells) != {"-"}}
    cells = [list(line) for line in zip(*columns.values(), strict=True)]
    lines = [
        ClusterLine(str(name), NONE if isinstance(name, str) else view.colors[name], of_group)
        for name, of_group in zip(shown, cells, strict=True)
    ]
    remark = ""
    if len(clusters) > MAX_CLUSTERS:
        remark = f"The {MAX_CLUSTERS} largest of {len(clusters):,} clusters."
    return ClusterTable(list(columns), lines, remark)


def _score_cells(view: RunView, groups: Groups) -> dict[str, list[str]]:
    """Return the mean and the worst score of the clients of each cluster."""
    scores = view.clients.score
    if scores is None:
        return {}
    percent = view.clients.accuracy is not None
    form, worst = (".1%", np.min) if percent else (".3g", np.max)
    means, worsts = [], []
    for clients in groups.values():
        finite = scores[clients]
        finite = finite[np.isfinite(finite)]
        means.append(format(finite.mean(), form) if len(finite) else "-")
        worsts.append(format(float(worst(finite)), form) if len(finite) else "-")
    return {view.clients.score_name: means, "worst client": worsts}


def _analysis_cells(view: RunView, groups: Groups) -> dict[str, list[str]]:
    """Return what each cluster gains, and how sure it is."""
    if view.analysis is None:
        return {}
    lines = view.analysis.clusters()
    place = {name: number for number, name in enumerate(lines["cluster"])}
    gains = cluster_gains(view.analysis)

    def cells(name: str, write: Callable[[float], str]) -> list[str]:
        values = [lines[name][place[c]] if c in place else None for c in groups]
        return ["-" if value is None else write(value) for value in values]

    titles = [
        gain_title(view.analysis, other).replace("\n", " ") for other in ("one model", "alone")
    ]
    over_others = {
        title: [gain_text(gains[place[c]][other]) if c in place else "-" for c in groups]
        for other, title in enumerate(titles)
    }
    return over_others | {
        "confidence": cells("confidence", percent),
        "stability": cells("stability", "{:.2f}".format),
    }


def _listed(truth: Indices) -> str:
    """Return the true clusters of some clients with their numbers of clients."""
    counts = Counter(truth.tolist()).most_common()
    text = ", ".join(f"{cluster_name(cluster)} ({count})" for cluster, count in counts[:4])
    return text + (f" and {len(counts) - 4} more" if len(counts) > 4 else "")


def fairness_lines(view: RunView) -> TableLines | None:
    """Return how even the clients' scores are, beside one model and training alone."""
    table = None if view.analysis is None else fairness_table(view.analysis)
    return None if table is None else TableLines.of(table)


def stage_lines(view: RunView) -> list[list[str]]:
    """Return a line for each stage: clusters, scores, costs per client and time."""
    m = view.num_clients
    return [
        [
            stage.name,
            f"{stage.partition.num_clusters:,}",
            "-" if stage.accuracy is None else f"{stage.accuracy:.1%}",
            "-" if stage.loss is None else f"{stage.loss:.4g}",
            f"{stage.budget.local_steps / m:,.4g}",
            f"{stage.budget.bytes_down / m / 1e6:,.3g}",
            f"{stage.budget.bytes_up / m / 1e6:,.3g}",
            f"{stage.budget.evaluations / m:,.4g}",
            f"{stage.seconds:,.1f}",
        ]
        for stage in view.history
    ]


STAGE_COLUMNS = (
    "clusters", "held-out accuracy", "held-out loss", "local steps", "MB down", "MB up",
    "evaluations", "seconds",
)  # fmt: skip


def setting_lines(view: RunView) -> dict[str, list[tuple[str, str]]]:
    """Return the settings by section: of the experiment, or of the method alone."""
    sections: dict[str, Mapping[str, Any]] = {}
    if view.settings:
        sections |= {name: values for name, values in view.settings.items() if values}
    parameters = dict(view.parameters)
    local = parameters.pop("local", None)
    sections[f"{view.method}, all parameters"] = parameters
    if isinstance(local, Mapping):
        sections["local training, all parameters"] = local
    return {name: _texts(values.items()) for name, values in sections.items()}


def _texts(items: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(name, "-" if value is None else str(value)) for name, value in items]


def client_table(view: RunView) -> dict[str, Any]:
    """Return the table of clients for the page's script, ready for JSON."""
    shown = sample_clients(view.labels, MAX_CLIENTS)
    if len(shown) == view.num_clients:
        shown = np.arange(view.num_clients)
    columns = [
        {"title": "client", "kind": "text"},
        {"title": "cluster", "kind": "cluster"},
    ]
    values: list[list[Any]] = [
        [view.client_ids[client] for client in shown.tolist()],
        view.labels[shown].tolist(),
    ]
    clients, split = view.clients, view.clients.split
    if view.truth is not None:
        columns.append({"title": "true cluster", "kind": "whole"})
        values.append(view.truth.labels[shown].tolist())
    if clients.samples is not None:
        columns.append({"title": "training samples", "kind": "whole"})
        values.append(clients.samples[shown].tolist())
    numbers: list[tuple[str, str, Numbers | None]] = [
        (f"{split} accuracy", "percent", clients.accuracy),
        (f"{split} loss", "number", clients.loss),
        *_analysis_columns(view),
    ]
    for title, kind, column in numbers:
        if column is not None and np.isfinite(column).any():
            columns.append({"title": title, "kind": kind})
            values.append([short(number) for number in column[shown].tolist()])
    present = np.unique(view.labels).tolist()
    return {
        "columns": columns,
        "rows": [list(row) for row in zip(*values, strict=True)],
        "total": view.num_clients,
        "colors": {str(cluster): view.colors[cluster] for cluster in present},
        "alone": np.flatnonzero(view.partition.sizes == 1).tolist() if view.clustered else [],
    }


def _analysis_columns(view: RunView) -> list[tuple[str, str, Numbers | None]]:
    """Return title, kind and numbers of what the analysis knows of each client."""
    analysis = view.analysis
    if analysis is None:
        return []
    confidence, structure, reference = analysis.confidence, analysis.structure, analysis.reference
    kind = "points" if analysis.scores.accuracy is not None else "change"
    columns: list[tuple[str, str, Numbers | None]] = []
    if confidence is not None:
        following = np.where(confidence.next_cluster >= 0, confidence.next_cluster, np.nan)
        columns += [
            ("confidence", "confidence", confidence.confidence),
            ("next cluster", "whole", following),
        ]
    if reference is not None:
        columns += [
            (
                f"gain over {name}",
                kind,
                None if other is None else client_gains(reference.answer, other),
            )
            for name, other in (("one model", reference.together), ("alone", reference.alone))
        ]
    if structure is not None:
        columns.append(("outlier score", "number", structure.outlier_score))
    return columns
