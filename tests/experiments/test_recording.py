"""Records of runs."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srfca.experiments import runner
from srfca.experiments.compare import execute
from srfca.experiments.executor import RunSpec
from srfca.experiments.recording import RecordingExecutor, expected_seconds
from srfca.experiments.records import read_records
from tests.experiments.small import small_experiment
from tests.experiments.test_saved import Refuse

EXPERIMENT = small_experiment()
SPEC = RunSpec("sr-fca", 0, experiment=EXPERIMENT.name)


def executor(out: Path, **options: Any) -> RecordingExecutor:
    return RecordingExecutor({EXPERIMENT.name: EXPERIMENT}, out, "cpu", **options)


def test_a_record_has_metrics_stages_and_distances(tmp_path: Path) -> None:
    outcome = executor(tmp_path).execute(SPEC)
    assert outcome.metrics is not None, outcome.error
    (record,) = read_records(tmp_path)
    assert record["metrics"] == json.loads(json.dumps(outcome.metrics))
    run = record["run"]
    assert (run["experiment"], run["row"], run["seed"]) == (EXPERIMENT.name, "sr-fca", 0)
    assert run["settings"]["local_training"]["steps"] == 4
    assert "CPU cores" in run["machine"]
    assert set(run["seconds"]) == {"setup", "run"}
    names = [stage["name"] for stage in record["stages"]]
    assert names[:2] == ["ONE_SHOT", "TRIMMED_MEAN_GD 1"]
    assert record["stages"][-1]["test_accuracy"] == pytest.approx(outcome.metrics["accuracy"])
    pairs = sum(record["distances"]["same"]) + sum(record["distances"]["different"])
    assert pairs == 8 * 7 / 2


def test_finished_runs_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [replace(SPEC, method="local"), replace(SPEC, method="global", row="other")]
    first = execute(executor(tmp_path), specs)
    monkeypatch.setattr(runner, "make_federation", Refuse())
    again = execute(executor(tmp_path), specs)
    assert again.reused == 2
    assert [m["loss"] for m in again.metrics] == [m["loss"] for m in first.metrics]


def test_folders_can_be_copied_together(tmp_path: Path) -> None:
    specs = [replace(SPEC, method="local", seed=seed) for seed in (0, 1)]
    for number, spec in enumerate(specs):
        executor(tmp_path / str(number)).execute(spec)
    for path in (tmp_path / "1").rglob("*.json"):
        path.rename(tmp_path / "0" / EXPERIMENT.name / path.name)
    merged = executor(tmp_path / "0")
    assert [merged.record(spec)["run"]["seed"] for spec in specs] == [0, 1]  # type: ignore[index]


def test_damaged_and_changed_records_do_not_count(tmp_path: Path) -> None:
    spec = replace(SPEC, method="local")
    executor(tmp_path).execute(spec)
    changed = RecordingExecutor({EXPERIMENT.name: EXPERIMENT.set(["lr=0.2"])}, tmp_path)
    assert changed.read_saved(spec) is None
    (path,) = tmp_path.rglob("*.json")
    path.write_text(path.read_text()[:-100])
    assert executor(tmp_path).read_saved(spec) is None


def test_no_run_is_started_that_would_end_too_late(tmp_path: Path) -> None:
    spec = replace(SPEC, method="local")
    executor(tmp_path).execute(replace(spec, seed=5))
    (path,) = tmp_path.rglob("*.json")
    record = json.loads(path.read_text())
    record["run"]["seconds"] = {"setup": 1.0, "run": 1000.0}
    path.write_text(json.dumps(record))
    comparison = execute(executor(tmp_path, deadline=time.time() + 600), [spec])
    assert comparison.outcomes[0].postponed
    assert comparison.failures == []
    assert execute(executor(tmp_path, deadline=time.time() + 6000), [spec]).metrics


def test_expected_seconds() -> None:
    def record(row: str, where: str, seconds: float) -> dict[str, Any]:
        times = {"setup": 10.0, "run": seconds}
        run = {"row": row, "k": None, "machine": where, "seconds": times}
        return {"run": run, "metrics": {"clients": 4, "local_steps": 400}}

    records = [record("local", "a", 50.0), record("local", "a", 20.0), record("local", "b", 900.0)]
    local = RunSpec("local", 0)
    assert expected_seconds(records, local, 100, "a") == pytest.approx(10 + 1.2 * 50)
    other = RunSpec("local", 0, row="other")
    assert expected_seconds(records, other, 200, "a") == pytest.approx(10 + 1.2 * 100)
    assert expected_seconds(records, local, 100, "c") == 0
