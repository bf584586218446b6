"""An analysis as tables: a line for each client, and a line for each cluster."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.analysis.analysis import Analysis, Columns
from srfca.analysis.client_scores import to_list
from srfca.analysis.confidence import Confidence
from srfca.analysis.evidence import shared_clusters
from srfca.analysis.gains import mean_gain
from srfca.federation.replies import ClientScores
from srfca.files import replace_file


def client_columns(analysis: Analysis) -> Columns:
    """Return a line for each client.

    Columns from ``compared_on`` on are of the reference: ``global`` is one model for all, ``alone``
    the client's own model.
    """
    m, confidence, structure = len(analysis.client_ids), analysis.confidence, analysis.structure
    nothing: list[Any] = [None] * m

    def numbers(source: Any, name: str) -> list[Any]:
        return nothing if source is None else to_list(getattr(source, name))

    next_cluster = nothing
    if confidence is not None:
        next_cluster = [n if n >= 0 else None for n in confidence.next_cluster.tolist()]
    columns: Columns = {
        "client": list(analysis.client_ids),
        "cluster": [label if label >= 0 else None for label in analysis.labels.tolist()],
        "placed": placements(analysis),
        "confidence": numbers(confidence, "confidence"),
        "margin": numbers(confidence, "margin"),
        "standard_errors": numbers(confidence, "standard_errors"),
        "next_cluster": next_cluster,
        "stays": numbers(confidence, "stays"),
        "silhouette": numbers(structure, "silhouette"),
        "outlier_score": numbers(structure, "outlier_score"),
        "scored_on": [analysis.split] * m,
        **_score_columns("", analysis.scores, m),
    }
    reference = analysis.reference
    columns["compared_on"] = [None if reference is None else reference.split] * m
    parts = ("compared_", "answer"), ("global_", "together"), ("alone_", "alone")
    for prefix, name in parts:
        scores = None if reference is None else getattr(reference, name)
        columns |= _score_columns(prefix, scores, m)
    return columns


def placements(analysis: Analysis) -> list[str]:
    """Return ``cluster``, ``alone`` or ``unclustered`` for each client; ``-`` without clusters."""
    if not analysis.clustered:
        return ["-"] * len(analysis.client_ids)
    shared = np.isin(analysis.labels, shared_clusters(analysis.labels))
    placed = np.where(shared, "cluster", np.where(analysis.labels < 0, "unclustered", "alone"))
    return [str(value) for value in placed]


def cluster_columns(analysis: Analysis) -> Columns:
    """Return a line for each cluster of at least two clients, and for those alone or unclustered.

    Gains are in accuracy, or in loss if there are no classes; ``losing`` clients do worse than with
    one model for all.
    """
    lines = [_line(analysis, *group) for group in groups(analysis)]
    names = _line(analysis, "", np.zeros(0, dtype=np.int64))
    return {name: [line[name] for line in lines] for name in names}


def groups(analysis: Analysis) -> list[tuple[int | str, NDArray[np.int64]]]:
    """Return clusters with their clients; clients that are alone are one group."""
    if not analysis.clustered:
        return [("everyone", np.arange(len(analysis.client_ids)))]
    labels, placed = analysis.labels, np.array(placements(analysis))
    named: list[tuple[int | str, NDArray[np.int64]]] = [
        (cluster, np.flatnonzero(labels == cluster)) for cluster in shared_clusters(labels).tolist()
    ]
    rest = [(name, np.flatnonzero(placed == name)) for name in ("alone", "unclustered")]
    return named + [(name, clients) for name, clients in rest if len(clients)]


def _line(analysis: Analysis, name: int | str, clients: NDArray[np.int64]) -> dict[str, Any]:
    reference, confidence, scores = analysis.reference, analysis.confidence, analysis.scores
    over_global = over_alone = None
    if reference is not None and reference.together is not None:
        over_global = mean_gain(reference.answer, reference.together, clients)
    if reference is not None and reference.alone is not None:
        over_alone = mean_gain(reference.answer, reference.alone, clients)
    in_cluster = isinstance(name, int)
    sure = None if confidence is None or not in_cluster else confidence.confidence[clients]
    silhouette = None if analysis.structure is None else analysis.structure.silhouette[clients]
    return {
        "cluster": name,
        "clients": len(clients),
        "members": [analysis.client_ids[client] for client in clients.tolist()],
        "loss": _mean(scores.loss.double().numpy()[clients]),
        "accuracy": None
        if scores.accuracy is None
        else _mean(scores.accuracy.double().numpy()[clients]),
        "gain_over_global": None if over_global is None else over_global.mean,
        "gain_over_alone": None if over_alone is None else over_alone.mean,
        "losing": None if over_global is None else over_global.losing,
        "confidence": None if sure is None else _mean(sure),
        "lowest_confidence": None if sure is None else _lowest(sure),
        "doubtful": None if confidence is None else int(confidence.doubtful[clients].sum()),
        "stability": _stability(confidence, name),
        "silhouette": None if silhouette is None else _mean(silhouette),
        "differs": _words(analysis, name),
    }


def _stability(confidence: Confidence | None, cluster: int | str) -> float | None:
    if confidence is None or not isinstance(cluster, int):
        return None
    return _mean(confidence.stability[confidence.clusters == cluster])


def _words(analysis: Analysis, cluster: int | str) -> str | None:
    if analysis.differences is None:
        return None
    described = {part.cluster: part.words for part in analysis.differences.by_cluster}
    return described.get(cluster) if isinstance(cluster, int) else None


def _mean(values: NDArray[np.float64]) -> float | None:
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def _lowest(values: NDArray[np.float64]) -> float | None:
    values = values[np.isfinite(values)]
    return float(values.min()) if len(values) else None


def _score_columns(prefix: str, scores: ClientScores | None, m: int) -> Columns:
    nothing: list[Any] = [None] * m
    if scores is None:
        return {f"{prefix}loss": nothing, f"{prefix}accuracy": nothing}
    accuracy = nothing if scores.accuracy is None else to_list(scores.accuracy)
    return {f"{prefix}loss": to_list(scores.loss), f"{prefix}accuracy": accuracy}


def write_csv(columns: Columns, path: Path) -> Path:
    """Write a table as CSV, atomically; None is an empty cell.

    Raises:
        InputError: If the file cannot be written.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in line] for line in _lines(columns))
    replace_file(path, file.getvalue().encode())
    return path


def _lines(columns: Columns) -> Sequence[tuple[Any, ...]]:
    return list(zip(*columns.values(), strict=True))


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
