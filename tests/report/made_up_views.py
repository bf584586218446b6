"""Made-up runs: of any number of clients and clusters, without training anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from srfca import Result
from srfca.analysis import (
    Analysis,
    ClusterDifference,
    Confidence,
    Differences,
    FeatureDifference,
    LayerDifference,
    Reference,
    Structure,
)
from srfca.federation import Budget, ClientScores
from srfca.methods import CurvePoint, Stage
from srfca.report.view import ClientColumns, RunView
from tests.report.made_up import made_up_run


def made_up_view(
    num_clients: int = 24,
    num_clusters: int = 3,
    *,
    alone: int = 0,
    unclustered: int = 0,
    distances: bool = True,
    truth: bool = True,
    accuracy: bool = True,
    analyzed: bool = True,
    names: str = "client {}",
    seed: int = 0,
    **changes: Any,
) -> RunView:
    """Return a run that looks real: clusters in a row, some clients moved, and curves.

    Args:
        num_clients: m.
        num_clusters: Of several clients.
        alone: Clients in a cluster of their own.
        unclustered: Clients in no cluster.
        distances: Whether they are known.
        truth: Whether the true clusters are known.
        accuracy: Whether targets are classes.
        analyzed: Whether there is an analysis.
        names: Of the clients.
        seed: Of what is drawn.
        changes: Other fields.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(num_clients) % max(num_clusters, 1)
    labels[num_clients - alone :] = num_clusters + np.arange(alone)
    if unclustered:
        labels[num_clusters : num_clusters + unclustered] = -1
    first = labels.copy()
    first[: num_clients // 8] = (first[: num_clients // 8] + 1) % max(num_clusters, 1)
    matrix = None
    if distances:
        near = labels[:, None] == labels
        matrix = np.where(near, 1.0, 4.0) + 0.3 * rng.random((num_clients, num_clients))
        matrix = (matrix + matrix.T) / 2
        np.fill_diagonal(matrix, 0.0)
    stages = (
        _stage(
            "ONE_SHOT", first, 0, num_clients, rng, accuracy, matrix, _notes(matrix is not None)
        ),
        _stage("TRIMMED_MEAN_GD 1", first, 1, num_clients, rng, accuracy),
        _stage("RECLUSTER 1", labels, 2, num_clients, rng, accuracy, notes=_to_clusters(labels)),
        _stage("DECIDE", labels, 2, num_clients, rng, accuracy, notes=_decision(accuracy)),
    )
    columns = ClientColumns(
        samples=rng.integers(10, 500, num_clients),
        truth=np.arange(num_clients) % max(num_clusters, 1) if truth else None,
        loss=rng.random(num_clients),
        accuracy=0.7 + 0.3 * rng.random(num_clients) if accuracy else None,
    )
    fields: dict[str, Any] = {
        "method": "SR-FCA",
        "seed": seed,
        "client_ids": tuple(names.format(number) for number in range(num_clients)),
        "labels": labels,
        "history": stages,
        "parameters": {"trim": 0.1, "curves": 1, "local": {"steps": 100, "lr": 0.1}},
        "experiment": "made-up",
        "key": "sr-fca",
        "clients": columns,
        "metrics": made_up_run("sr-fca", seed, 0.8 if accuracy else None, labels=labels.tolist()),
        "settings": {"data": {"name": "made_up"}},
        "versions": {"srfca": "0", "python": "3"},
        "decision": "Chose the clusters on held-out data.",
    }
    view = RunView(**fields | changes)
    return replace(view, analysis=made_up_analysis(view, rng)) if analyzed else view


def made_up_analysis(view: RunView, rng: np.random.Generator) -> Analysis:
    """Return an analysis of a made-up run: some clients are doubtful, and some lose."""
    m, classes = view.num_clients, tuple(str(number) for number in range(4))
    shared = np.flatnonzero(view.partition.sizes > 1)
    placed = np.isin(view.labels, shared)
    numbers = np.where(placed, 0.7 + 0.3 * rng.random(m), np.nan)
    confidence = Confidence(
        clusters=shared, confidence=numbers, margin=numbers, standard_errors=numbers,
        next_cluster=np.where(placed, 0, -1), stays=numbers,
        memberships=np.full((m, len(shared)), 1 / max(len(shared), 1)),
        stability=np.full(len(shared), 0.9),
    )  # fmt: skip
    scores = _scores(rng, m, view.clients.accuracy is not None)
    others = [_scores(rng, m, view.clients.accuracy is not None) for _ in range(2)]
    shares = tuple(np.full(len(classes), 1 / len(classes)).tolist())
    differences = tuple(
        ClusterDifference(
            cluster, 100, classes, shares, shares, (0.1,) * len(classes),
            (FeatureDifference("input 0", 1.0, 0.5, 0.5),), tuple(rng.random(16).tolist()),
            "input 0 is higher",
        )
        for cluster in shared.tolist()
    )  # fmt: skip
    layers = (LayerDifference("hidden", 1.2), LayerDifference("output", 0.4))
    return Analysis(
        method=view.method, seed=view.seed, client_ids=view.client_ids, labels=view.labels,
        clustered=view.clustered, split="test", scores=scores,
        confidence=confidence if len(shared) > 1 else None,
        structure=Structure("distances", numbers, 1 - numbers),
        reference=Reference("test", scores, others[0], others[1]),
        differences=Differences(differences, layers, (1, 4, 4)),
    )  # fmt: skip


def _scores(rng: np.random.Generator, count: int, accuracy: bool) -> ClientScores:
    values = torch.as_tensor(rng.random((2, count)))
    return ClientScores(values[0], values[1] if accuracy else None, torch.ones(count))


def made_up_result(**arguments: Any) -> Result:
    """Return the result of such a run."""
    view = made_up_view(**arguments, analyzed=False)
    return Result(
        method=view.method,
        parameters=view.parameters,
        seed=view.seed,
        client_ids=view.client_ids,
        labels=np.asarray(view.partition.labels),
        models=torch.zeros(view.partition.num_clusters, 4),
        history=view.history,
    )


def _notes(known: bool) -> dict[str, Any]:
    notes: dict[str, Any] = {"metric": "distance", "distance": "cross_loss", "warning": None}
    if known:
        notes |= {"threshold": 2.5, "margin": [1.5, 4.0], "reason": "the gap is clear"}
    return notes


def _to_clusters(labels: np.ndarray) -> dict[str, Any]:
    if labels.max(initial=-1) < 1:
        return {}
    counts = np.eye(2, 40, dtype=int)[::-1] * len(labels)  # in the second bin, and in the first
    return {"to_clusters": {"end": 4.0, "own": counts[1].tolist(), "other": counts[0].tolist()}}


def _decision(accuracy: bool) -> dict[str, Any]:
    considered = [
        {"name": name, "variant": "", "accuracy": score if accuracy else None, "loss": 1 - score}
        for name, score in (("the clusters", 0.9), ("one model for all", 0.5))
    ]
    return {
        "considered": considered, "chosen": "the clusters", "variant": "",
        "decision": "Chose the clusters on held-out data.", "warning": None,
    }  # fmt: skip


def _stage(
    name: str,
    labels: np.ndarray,
    number: int,
    num_clients: int,
    rng: np.random.Generator,
    accuracy: bool,
    distances: np.ndarray | None = None,
    notes: dict[str, Any] | None = None,
) -> Stage:
    steps = 100 * num_clients if number < 2 else 0
    num_clusters = int(labels.max(initial=-1)) + 1
    points = []
    for place in range(1, 5 if number == 1 else 2):
        means = tuple((1 / (place + rng.random(num_clusters))).tolist())
        points.append(
            CurvePoint(
                name,
                place,
                number * 100 * num_clients + place * steps // 4,
                "validation",
                means,
                tuple(1 - mean / 2 for mean in means) if accuracy else None,
            )
        )
    return Stage(
        name=name,
        labels=tuple(labels.tolist()),
        seconds=0.5,
        loss=0.5 / (number + 1),
        accuracy=0.6 + 0.1 * number if accuracy else None,
        budget=Budget(steps, num_clients, num_clients, 4000 * num_clients, 4000 * num_clients, 3),
        notes=notes or {},
        distances=distances,
        curve=tuple(points),
    )
