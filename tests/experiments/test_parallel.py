"""Runs in several processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from srfca import Result
from srfca.experiments import parallel
from srfca.experiments.compare import compare
from srfca.experiments.executor import RunExecutor, RunOutcome
from tests.cli.command import srfca
from tests.experiments.small import NETWORKS, ROUND_ROBIN, small_experiment, write_sensors
from tests.experiments.test_saved import without_seconds

SAVED = {"analysis.json", "clusters.csv", "result.json", "run.json", "tensors.safetensors"}
"""Files of a run."""


def test_default_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "num_cores", lambda: 4)
    assert [parallel.default_jobs("auto", runs) for runs in (1, 3, 9)] == [1, 3, 4]
    assert parallel.default_jobs("cuda:1", 9) == 1
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert parallel.default_jobs("auto", 9) == 1
    assert parallel.default_jobs("cpu", 9) == 4


def test_there_is_at_least_one_core() -> None:
    assert parallel.num_cores() >= 1


def test_several_processes_give_the_same_metrics(tmp_path: Path) -> None:
    methods = ["sr-fca", "oracle", ROUND_ROBIN]
    serial = compare(small_experiment(), methods, [0, 1], k=[2])
    at_once = compare(small_experiment(), methods, [0, 1], k=[2], jobs=2, out=tmp_path)
    assert len(serial.metrics) == 6
    assert without_seconds(at_once.metrics) == without_seconds(serial.metrics)
    assert compare(small_experiment(), methods, [0, 1], k=[2], out=tmp_path).reused == 6


def test_user_data_and_model_in_several_processes(tmp_path: Path) -> None:
    (tmp_path / "nets_e.py").write_text(NETWORKS)
    write_sensors(tmp_path)
    arguments = ("--data", "sensors.npz", "--model", "nets_e:network", "--set", "steps=10")
    methods = ("--methods", "local,oracle,global", "--jobs", "2", "--out", "out")
    first = srfca("compare", *arguments, *methods, cwd=tmp_path)
    assert first.returncode == 2
    assert "Failed: Oracle seed 0: oracle needs the true clusters" in first.stdout
    assert "Traceback" not in first.stderr
    assert len(first.stderr.splitlines()) == 3
    assert "Oracle seed 0: failed: oracle needs" in first.stderr
    again = srfca("compare", *arguments, *methods, cwd=tmp_path)
    assert "2 of 3 runs were read from --out." in again.stdout
    as_json = srfca("compare", *arguments, *methods, "--json", cwd=tmp_path)
    assert [json.loads(line)["method"] for line in as_json.stdout.splitlines()] == [
        "local", "global",
    ]  # fmt: skip
    assert as_json.returncode == 2
    assert as_json.stderr.startswith("srfca: Failed: Oracle seed 0")


def is_running(process_group: int) -> bool:
    try:
        os.killpg(process_group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("ending", ["interrupted", "killed"])
def test_workers_end_with_their_parent(tmp_path: Path, ending: str) -> None:
    """Ctrl-C in a terminal reaches all processes of a group; a parent can also be killed alone."""
    command = [sys.executable, "-m", "srfca", "compare", "rotated-digits", "--seeds", "500"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path), "--jobs", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    try:
        while not list(tmp_path.glob("*/run.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        if ending == "interrupted":
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.kill()
        _, error = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    assert process.returncode == (130 if ending == "interrupted" else -signal.SIGKILL)
    assert "Traceback" not in error
    if ending == "interrupted":
        assert error.splitlines()[-1] == "srfca: interrupted"
    while is_running(process.pid) and time.monotonic() < deadline + 60:
        time.sleep(0.05)
    assert not is_running(process.pid)
    for folder in tmp_path.iterdir():
        names = {path.name for path in folder.iterdir()}
        assert names <= SAVED
        if "run.json" in names:
            Result.load(folder)


def test_a_worker_that_dies_is_a_failure_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[RunOutcome] = []
    monkeypatch.setattr(parallel, "_execute", os._exit)
    executor = RunExecutor(small_experiment())
    # The number in place of a spec is the exit code of the worker.
    parallel.run_parallel(executor, [9], 1, outcomes.append)  # type: ignore[list-item]
    assert "use fewer --jobs" in str(outcomes[0].error)


def ignore_termination(ready: Any) -> None:
    """Run in a process that ignores SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    time.sleep(600)


def test_a_worker_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_GRACE_SECONDS", 0.5)
    context = get_context("spawn")
    ready = context.Event()
    child = context.Process(target=ignore_termination, args=(ready,))
    child.start()
    assert ready.wait(60)
    parallel._end_all([child])
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
