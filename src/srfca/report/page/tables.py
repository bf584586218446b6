"""Tables of a page: the clusters, the stages, the settings, and the clients for the script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from srfca.clustering.partition import Indices
from srfca.report.palette import cluster_name
from srfca.report.sampling import sample_clients, short
from srfca.report.view import Numbers, RunView

MAX_CLIENTS = 20_000
"""Most clients in a table of clients."""
MAX_CLUSTERS = 200
"""Most clusters in a table of clusters."""


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


def cluster_table(view: RunView) -> ClusterTable:
    """Return the sizes of the clusters, and how their clients are served."""
    columns = ["clients", "share"]
    scores, form, best = _scores(view)
    if scores is not None:
        split = view.clients.split
        columns += [f"{split} {'accuracy' if best is max else 'loss'}", "worst client"]
    if view.truth is not None:
        columns.append("true clusters")
    clusters = [int(label) for label in np.unique(view.labels[view.labels >= 0])]
    sizes = view.partition.sizes
    largest = sorted(clusters, key=lambda cluster: (-sizes[cluster], cluster))[:MAX_CLUSTERS]
    lines = [_cluster_line(view, cluster, scores, form, best) for cluster in sorted(largest)]
    if len(view.partition.unclustered):
        lines.append(_cluster_line(view, -1, scores, form, best))
    remark = ""
    if len(clusters) > MAX_CLUSTERS:
        remark = f"The {MAX_CLUSTERS} largest of {len(clusters):,} clusters."
    return ClusterTable(columns, lines, remark)


def _scores(view: RunView) -> tuple[Numbers | None, str, Any]:
    """Return the clients' scores, their format, and which of two is the better one."""
    clients = view.clients
    tuned = clients.tuned_loss is not None
    accuracy = clients.tuned_accuracy if tuned else clients.accuracy
    if accuracy is not None:
        return accuracy, ".1%", max
    return clients.tuned_loss if tuned else clients.loss, ".3g", min


def _cluster_line(
    view: RunView, cluster: int, scores: Numbers | None, form: str, best: Any
) -> ClusterLine:
    members = view.partition.members(cluster)
    cells = [f"{len(members):,}", f"{len(members) / view.num_clients:.1%}"]
    if scores is not None:
        known = scores[members][np.isfinite(scores[members])]
        worst = min if best is max else max
        cells += (
            [format(known.mean(), form), format(worst(known), form)] if len(known) else ["-", "-"]
        )
    if view.truth is not None:
        cells.append(_listed(view.truth.labels[members]))
    return ClusterLine(cluster_name(cluster), view.colors[cluster], cells)


def _listed(truth: Indices) -> str:
    """Return the true clusters of some clients with their numbers of clients."""
    counts = Counter(truth.tolist()).most_common()
    text = ", ".join(f"{cluster_name(cluster)} ({count})" for cluster, count in counts[:4])
    return text + (f" and {len(counts) - 4} more" if len(counts) > 4 else "")


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
    for title, kind, numbers in (
        (f"{split} accuracy", "percent", clients.accuracy),
        (f"{split} loss", "number", clients.loss),
        ("fine-tuned accuracy", "percent", clients.tuned_accuracy),
        ("fine-tuned loss", "number", clients.tuned_loss),
    ):
        if numbers is not None:
            columns.append({"title": title, "kind": kind})
            values.append([short(number) for number in numbers[shown].tolist()])
    present = np.unique(view.labels).tolist()
    return {
        "columns": columns,
        "rows": [list(row) for row in zip(*values, strict=True)],
        "total": view.num_clients,
        "colors": {str(cluster): view.colors[cluster] for cluster in present},
    }
