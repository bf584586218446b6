"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from srfca import Result
from srfca.experiments.config import METHODS

QUICK = ["--set", "steps=40", "--set", "num_clients=12", "--set", "rotations=2"]


def srfca(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "srfca", *arguments],
        capture_output=True, text=True, check=False, cwd=cwd,
    )  # fmt: skip


def test_help_is_quick_and_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['srfca', '--help']\n"
        "from srfca.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'sklearn' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compare" in done.stdout


def test_list_shows_the_experiments_and_the_methods() -> None:
    done = srfca("list")
    assert done.returncode == 0
    assert "synthetic" in done.stdout
    assert "rotated-digits" in done.stdout
    for method in METHODS:
        assert f"| {method} " in done.stdout
    assert "SR-FCA: find the clusters of a federation" in done.stdout


def test_version() -> None:
    assert srfca("--version").stdout.startswith("srfca 0.")


def test_json_is_one_object_and_nothing_else() -> None:
    done = srfca("run", "rotated-digits", "--seed", "3", "--json", *QUICK)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    row = json.loads(done.stdout)
    assert row["experiment"] == "rotated-digits"
    assert row["method"] == "sr-fca"
    assert row["seed"] == 3
    assert (row["num_clusters"], row["misclustering"], row["ari"]) == (2, 0.0, 1.0)
    assert 0.5 < row["accuracy"] <= 1
    assert row["labels"] == [0, 1] * 6
    assert row["loss"] > 0
    assert row["seconds"] > 0


def test_compare_prints_plain_tables_when_piped(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "out"))
    methods = ("--methods", "sr-fca,global,local")
    done = srfca("compare", "rotated-digits", *methods, *out, *QUICK)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 3
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert [line.split("|")[1].strip() for line in lines[3:6]] == ["SR-FCA", "Global", "Local"]
    assert "Found 2 clusters of 6, 6 clients" in done.stdout
    [saved] = (tmp_path / "out").glob("sr-fca-seed0-*")
    assert sorted(p.name for p in saved.iterdir()) == [
        "result.json", "run.json", "tensors.safetensors",
    ]  # fmt: skip
    assert len(Result.load(saved).models) == 2
    assert json.loads((saved / "run.json").read_text())["settings"]["work"]["steps"] == 40


def test_compare_over_seeds_gives_rows_and_spread() -> None:
    arguments = ("compare", "rotated-digits", "--methods", "local,global", "--seeds", "2", *QUICK)
    rows = [json.loads(line) for line in srfca(*arguments, "--json").stdout.splitlines()]
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("local", 0), ("global", 0), ("local", 1), ("global", 1),
    ]  # fmt: skip
    assert rows[0]["num_clusters"] is None
    assert " ± " in srfca(*arguments).stdout


def test_run_tells_the_stages_and_why() -> None:
    done = srfca("run", "rotated-digits", *QUICK)
    assert "ONE_SHOT" in done.stdout
    assert "MERGE 1" in done.stdout
    assert "Threshold: at " in done.stdout
    assert "exactly the true ones" in done.stdout
    assert "Doubtful" not in done.stdout


def test_run_says_that_clusters_are_doubtful() -> None:
    few = ["--set", "steps=7", "--set", "num_clients=20", "--seed", "4"]
    done = srfca("run", "rotated-digits", *few)
    assert "Doubtful: no clear gap: " in done.stdout, done.stdout


def test_run_does_not_doubt_a_single_cluster_that_was_cut_and_joined() -> None:
    done = srfca("run", "rotated-digits", "--set", "rotations=1")
    assert "one cluster, cut into 2 parts" in done.stdout, done.stdout
    assert "Found 1 cluster of 40 clients" in done.stdout
    assert "Doubtful" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "rotated-digit"], "did you mean 'rotated-digits'"),
        (["run", "rotated-digits", "--set", "trin=0.1"], "did you mean 'trim'"),
        (["run", "rotated-digits", "--set", "trim=0.5"], "trim (beta) must be in [0, 1/2)"),
        (["run", "rotated-digits", "--set", "threshold=-1"], "threshold must not be negative"),
        (["run", "rotated-digits", "--set", "min_size=41"], "min_size=41 is more than the 40"),
        (["run", "synthetic", "--set", "num_clients=1", "--set", "clusters=1"], "two clients"),
        (["run", "rotated-digits", "--set", "outputs=5"], "classes 0 to 4"),
        (["run", "rotated-digits", "--set", "inputs=63"], "does not take samples of shape (8, 8)"),
        (["run", "rotated-digits", "--method", "sgd"], "unknown method 'sgd'"),
        (["compare", "rotated-digits", "--methods", ","], "names no method"),
        (["compare", "rotated-digits", "--methods", "local,sfca"], "did you mean 'sr-fca'"),
        (["run", "rotated-digits", "--device", "tpu"], "device 'tpu' is not there"),
        (["run", "rotated-digits", "--out", "/proc/no"], "cannot write to /proc/no"),
        (["run", "rotated-digits", "--set", "lr=1e9"], "diverged"),
        (["run", "rotated-digits", "--seed", "-1"], "--seed"),
        (["run"], "name an experiment ('srfca list' shows them), or give --data"),
    ],
)
def test_what_a_user_can_mend_is_said_in_a_line(arguments: list[str], message: str) -> None:
    done = srfca(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_interrupted_it_leaves_no_half_written_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "srfca", "compare", "rotated-digits", "--seeds", "500"]
    out = tmp_path / "out"
    process = subprocess.Popen(
        [*command, "--out", str(out), "--jobs", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(out.glob("local-seed0-*/run.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in error
    assert "Traceback" not in error
    for folder in out.iterdir():
        names = {path.name for path in folder.iterdir()}
        assert names <= {"result.json", "run.json", "tensors.safetensors"}
        if "run.json" in names:
            Result.load(folder)


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    command = ["run", "rotated-digits", "--set", "num_clients=12", "--set", "steps=100"]
    whole, parts = ["--out", str(tmp_path / "whole")], ["--out", str(tmp_path / "parts")]
    assert srfca(*command, *whole).returncode == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "srfca", *command, *parts, "--journal"], stdout=subprocess.DEVNULL
    )
    checkpoints = tmp_path / "parts" / "journal"
    while not list(checkpoints.glob("*.checkpoint.safetensors")):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (tmp_path / "parts" / "result.json").exists()
    assert srfca("resume", str(tmp_path / "parts")).returncode == 0
    expected, found = (Result.load(tmp_path / name) for name in ("whole", "parts"))
    assert torch.equal(found.models, expected.models)
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.budget == expected.budget
    figures = tmp_path / "parts" / "run.json"
    assert json.loads(figures.read_text())["seconds"] is None, "it is not known how long it took"
    refused = srfca(*command, *parts, "--journal", "--method", "ifca")
    assert refused.returncode == 2
    assert "with other settings: choose another --out" in refused.stderr
    assert srfca("resume", str(tmp_path / "parts")).returncode == 0
    refused = srfca(*command, "--journal")
    assert "--journal needs --out" in refused.stderr
    refused = srfca("resume", str(tmp_path / "whole"))
    assert refused.returncode == 2
    assert "holds no run with a journal" in refused.stderr
    (tmp_path / "parts" / "command.json").write_text('{"seed": 3}')
    refused = srfca("resume", str(tmp_path / "parts"))
    assert refused.returncode == 2
    assert "command.json is damaged" in refused.stderr
