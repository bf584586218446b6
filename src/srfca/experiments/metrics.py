"""The metrics of a run: numbers, ready for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from srfca.clustering import Partition
from srfca.experiments.stopwatch import Elapsed
from srfca.federation import ClientScores
from srfca.methods import Result
from srfca.methods.registry import method_name

if TYPE_CHECKING:
    from srfca.experiments.runner import ScoredRun

Metrics = dict[str, Any]
"""The numbers of a run by name, and what it was a run of; None if one does not apply."""
SCORE_NAMES = (
    "accuracy", "worst_accuracy", "worst_tenth_accuracy",
    "loss", "worst_loss", "worst_tenth_loss",
)  # fmt: skip
"""Names of the metrics of clients' scores. After fine-tuning they begin with ``tuned_``."""
TIME_NAMES = ("seconds", "cpu_seconds", "gpu_seconds")
"""Names of the metrics of the time that a run took."""
WORST_FRACTION = 0.1
_CLUSTERING = ("misclustering", "ari", "nmi", "purity")


def run_metrics(run: ScoredRun) -> Metrics:
    """Return the metrics of a run."""
    result, federation = run.result, run.federation
    truth = federation.truth
    last = result.history[-1]
    final = run.scores if run.fine_tuned_scores is None else run.fine_tuned_scores
    fine_tuned: Mapping[str, float | None] = dict.fromkeys(SCORE_NAMES)
    if run.fine_tuned_scores is not None:
        fine_tuned = score_metrics(run.fine_tuned_scores)
    clusters: Mapping[str, float | None] = dict.fromkeys(SCORE_NAMES)
    if run.cluster_scores is not None:
        clusters = score_metrics(run.cluster_scores)
    return {
        "experiment": run.experiment,
        "method": run.method,
        "name": method_name(run.method),
        "k": result.parameters.get("k"),
        "seed": result.seed,
        "clients": len(result.client_ids),
        **clustering_metrics(result, truth),
        "scored_on": run.split,
        **score_metrics(run.scores),
        **{f"tuned_{name}": value for name, value in fine_tuned.items()},
        "cluster_accuracy": clusters["accuracy"],
        "cluster_loss": clusters["loss"],
        **asdict(result.budget),
        "epsilon": None if result.privacy is None else result.privacy.to_json()["epsilon"],
        "validation_loss": last.loss,
        "validation_accuracy": last.accuracy,
        "distance_to_optimum": distance_to_optimum(result, truth, federation.optima),
        **_times(run.elapsed),
        "device": str(federation.device),
        "client_ids": list(result.client_ids),
        "labels": [int(label) for label in result.labels],
        "true_labels": None if truth is None else truth.labels.tolist(),
        "client_losses": final.loss.tolist(),
        "client_accuracies": None if final.accuracy is None else final.accuracy.tolist(),
        "warning": result.warning,
    }


def _times(elapsed: Elapsed | None) -> dict[str, float | None]:
    """Return the times of a run in seconds, None if they are unknown."""
    if elapsed is None:
        return dict.fromkeys(TIME_NAMES)
    times = asdict(elapsed)
    return {name: None if times[name] is None else round(times[name], 3) for name in TIME_NAMES}


def elapsed_of(metrics: Metrics) -> Elapsed | None:
    """Return the time that a run took by its metrics, None if it is unknown."""
    if metrics["seconds"] is None:
        return None
    return Elapsed(**{name: metrics[name] for name in TIME_NAMES})


def score_metrics(scores: ClientScores) -> dict[str, float | None]:
    """Return the mean over the clients, the worst client, and the mean over the worst tenth."""
    count = ceil(WORST_FRACTION * len(scores.loss))
    accuracy = scores.accuracy
    values = (
        None if accuracy is None else float(accuracy.mean()),
        None if accuracy is None else float(accuracy.min()),
        None if accuracy is None else float(accuracy.sort().values[:count].mean()),
        float(scores.loss.mean()),
        float(scores.loss.max()),
        float(scores.loss.sort(descending=True).values[:count].mean()),
    )
    return dict(zip(SCORE_NAMES, values, strict=True))


def clustering_metrics(result: Result, truth: Partition | None) -> dict[str, float | None]:
    """Compare a result's clusters with the true ones, if both exist."""
    partition = result.partition
    scores: dict[str, float | None] = dict.fromkeys(_CLUSTERING)
    if result.clustered and truth is not None:
        scores = {name: getattr(partition, name)(truth) for name in _CLUSTERING}
    return {
        "true_clusters": None if truth is None else truth.num_clusters,
        "num_clusters": partition.num_clusters if result.clustered else None,
        **scores,
    }


def distance_to_optimum(
    result: Result, truth: Partition | None, optima: Tensor | None
) -> float | None:
    """Return the mean l2 distance of the clients' models to the best ones, if these are known."""
    models = result.client_models.cpu().double()
    if optima is None or truth is None or optima.shape[1] != models.shape[1]:
        return None
    best = optima.double()[torch.tensor(np.asarray(truth.labels))]
    return float((models - best).norm(dim=1).mean())
