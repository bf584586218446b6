"""Records of runs: one small JSON file each, with metrics and stages, and without models.

A file says which run it is, so that folders of several machines can be copied together.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from srfca._version import __version__
from srfca.experiments.executor import RunSpec
from srfca.experiments.experiment import Experiment
from srfca.experiments.runner import ScoredRun
from srfca.experiments.saved import library_versions, run_digest, run_settings
from srfca.federation import Federation
from srfca.federation.requests import Scores
from srfca.files import replace_file, writable_folder
from srfca.methods import Monitor, Stage

Record = dict[str, Any]
"""What a file holds: ``run``, ``metrics``, ``stages`` and ``distances``."""
_BINS = 40
_NOTES = ("metric", "threshold", "reason", "joined", "empty", "kept", "given_up")
"""Notes of a stage that a record holds."""


class StageScores(Monitor):
    """Scores the models of every stage on test data, without counting that as cost.

    Args:
        federation: The clients.
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.scores: dict[str, dict[str, float | None]] = {}

    def stage_predictors(self, name: str, request: Scores) -> None:
        """Score a stage."""
        if "test" not in self.federation.splits:
            return
        scoring = Scores(request.clients, request.models, "test", request.personal)
        scores = self.federation.ask(scoring).values
        accuracy = None if scores.accuracy is None else float(scores.accuracy.nanmean())
        self.scores[name] = {"loss": float(scores.loss.nanmean()), "accuracy": accuracy}


def record_path(out: Path, experiment: Experiment, spec: RunSpec) -> Path:
    """Return the file of a run."""
    digest = run_digest(experiment.set(spec.settings), spec.method, spec.seed)
    return out / experiment.name / f"{spec.label}-{digest}.json"


def write_record(
    path: Path,
    run: ScoredRun,
    experiment: Experiment,
    spec: RunSpec,
    stage_scores: StageScores,
    times: Mapping[str, float],
) -> Record:
    """Write the record of a run.

    Args:
        path: The file.
        run: The run.
        experiment: What was run, with the settings of the spec.
        spec: What was run.
        stage_scores: Test scores of the stages.
        times: Seconds by name: ``setup``, for making the clients, and ``run``, for all the rest.

    Returns:
        What was written.
    """
    history = run.result.history
    record: Record = {
        "run": {
            "experiment": experiment.name,
            "row": spec.row or spec.method,
            "method": spec.method,
            "k": spec.k,
            "seed": spec.seed,
            "digest": run_digest(experiment, spec.method, spec.seed),
            "settings": run_settings(experiment, spec.method),
            "srfca": __version__,
            "versions": library_versions(),
            "machine": machine(run.federation.device),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": {name: round(seconds, 3) for name, seconds in times.items()},
        },
        "metrics": run.metrics,
        "stages": [_stage(stage, stage_scores.scores.get(stage.name)) for stage in history],
        "distances": _distances(history, run),
    }
    writable_folder(path.parent)
    replace_file(path, (json.dumps(record, indent=1) + "\n").encode())
    return record


def read_record(path: Path) -> Record | None:
    """Return a record, None if the file is missing, damaged, or no record."""
    try:
        record: Record = json.loads(path.read_bytes())
        digest = record["run"]["digest"]
        complete = all(name in record for name in ("metrics", "stages", "distances"))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return record if complete and path.stem.endswith(digest) else None


def read_records(folder: Path) -> list[Record]:
    """Return all records of a folder and of the folders in it."""
    records = map(read_record, sorted(folder.rglob("*.json")))
    return [record for record in records if record is not None]


def machine(device: torch.device | str) -> str:
    """Describe what a run computed on."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} CPU cores, {_processor()}"


def _processor() -> str:
    """Return the name of the processor, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _stage(stage: Stage, test: Mapping[str, float | None] | None) -> dict[str, Any]:
    """Return what a record holds of a stage."""
    partition = stage.partition
    return {
        "name": stage.name,
        "clusters": partition.num_clusters,
        "unclustered": len(partition.unclustered),
        "labels": list(stage.labels),
        "validation_loss": stage.loss,
        "validation_accuracy": stage.accuracy,
        "test_loss": None if test is None else test["loss"],
        "test_accuracy": None if test is None else test["accuracy"],
        "local_steps": stage.budget.local_steps,
        "seconds": round(stage.seconds, 3),
        "notes": {name: stage.notes[name] for name in _NOTES if name in stage.notes},
    }


def _distances(history: tuple[Stage, ...], run: ScoredRun) -> dict[str, Any] | None:
    """Return a histogram of the distances between clients, by whether they belong together.

    They do if the truth says so; where it is not known, if the run ended with them in one cluster.
    """
    stage = next((stage for stage in history if stage.distances is not None), None)
    if stage is None or stage.distances is None:
        return None
    truth = run.federation.truth
    labels = np.asarray(run.result.labels if truth is None else truth.labels)
    pairs = np.triu(np.isfinite(stage.distances), 1)
    if not pairs.any():
        return None
    same = labels[:, None] == labels
    end = float(np.quantile(stage.distances[pairs], 0.995))
    edges = np.linspace(0, end or 1.0, _BINS + 1)
    counts = [
        np.histogram(np.clip(stage.distances[pairs & chosen], 0, edges[-1]), edges)[0].tolist()
        for chosen in (same, ~same)
    ]
    return {
        "of": "true clusters" if truth is not None else "clusters that were found",
        "metric": stage.notes.get("metric"),
        "threshold": stage.notes.get("threshold"),
        "end": float(edges[-1]),
        "same": counts[0],
        "different": counts[1],
    }
