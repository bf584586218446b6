"""The benchmarks run with tiny sizes, and their contestants agree."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import pytest
import torch

from srfca import SRFCA, LocalTraining, Simulation, data, models

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=ONE_THREAD, check=False
    )


def test_cpu_benchmarks_run(tmp_path: Path) -> None:
    """Without Flower and pfl-research: there are no environments in the folder."""
    page = tmp_path / "page.md"
    script = str(BENCHMARKS / "run.py")
    done = run(script, "--quick", "--envs", str(tmp_path / "none"), "--out", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.count("**srfca**") == 7
    assert text.count("\n| plain loop") == 7
    for name in ("fused Adam", "lazy pivots", "scipy.stats.trim_mean", "sequential, pair by pair"):
        assert name in text, text
    assert "srfca reaches" in text


def test_gpu_benchmarks_run_on_a_cpu(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    script = str(BENCHMARKS / "gpu.py")
    done = run(script, "--device", "cpu", "--quick", "--cifar", "--out", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    for name in ("bf16", "all 64 losses", "trimmed mean", "rotated-mnist", "ResNet9", "LSTM"):
        assert name in text, text


def test_balanced_losses_are_compared(tmp_path: Path) -> None:
    g = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (2000, 28, 28), generator=g, dtype=torch.uint8).numpy().tobytes()
    labels = (torch.arange(2000) % 10).to(torch.uint8).numpy().tobytes()
    for name, header, content in (("images-idx3", 16, pixels), ("labels-idx1", 8, labels)):
        path = tmp_path / f"train-{name}-ubyte.gz"
        path.write_bytes(gzip.compress(bytes(header) + content))
    sizes = ["--clients", "9", "--samples", "30", "--only", "3 rotations, Dirichlet(0.3)"]
    done = run(str(BENCHMARKS / "balanced_loss.py"), "--folder", str(tmp_path), *sizes)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| 3 rotations, Dirichlet(0.3) inside |") == 3


def test_other_parts_run_when_one_fails(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "import gpu\n"
        "def broken(card):\n"
        "    raise RuntimeError('broken on purpose')\n"
        "gpu.PARTS['small_models'] = broken\n"
        "gpu.main()\n"
    )
    options = ["--only", "small_models", "trimmed_mean", "--device", "cpu", "--quick"]
    done = run(str(script), *options)
    assert done.returncode == 1
    assert "small_models: RuntimeError: broken on purpose" in done.stdout
    assert "| trimmed mean, 20 rows" in done.stdout


RACE = """
import sys
sys.path.insert(0, {benchmarks!r})
from harness import Process, race, table
processes = [Process([sys.executable, name]) for name in sys.argv[1:]]
print(table(race(processes, 3), "first", "check"))
"""


@pytest.mark.parametrize(("second", "agrees"), [(2.0, True), (2.1, False), (None, True)])
def test_contestants_must_agree(tmp_path: Path, second: float | None, agrees: bool) -> None:
    (tmp_path / "race.py").write_text(RACE.format(benchmarks=str(BENCHMARKS)))
    for name, check in (("first", 2.0), ("second", second)):
        (tmp_path / f"{name}.py").write_text(
            f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
            "from harness import serve\n"
            "print('output that is not a reply')\n"
            f"serve({{{name!r}: lambda: {check}}})\n"
        )
    scripts = [str(tmp_path / f"{name}.py") for name in ("race", "first", "second")]
    done = run(*scripts)
    assert (done.returncode == 0) == agrees, done.stderr
    if agrees:
        lines = done.stdout.splitlines()
        assert [line.split(" | ")[0] for line in lines[2:]] == ["| **first**", "| second"]
        assert lines[2].split(" | ")[3] == "1.00"
    else:
        assert "do not agree" in done.stderr


def test_error_names_the_process_that_died(tmp_path: Path) -> None:
    (tmp_path / "race.py").write_text(RACE.format(benchmarks=str(BENCHMARKS)))
    (tmp_path / "dead.py").write_text("raise SystemExit(3)\n")
    done = run(str(tmp_path / "race.py"), str(tmp_path / "dead.py"))
    assert done.returncode == 1
    assert "dead.py ended with 3" in done.stderr


def test_sequential_sr_fca_finds_the_same_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    Sequential = import_module("sequential").Sequential

    # In double precision: Adam turns a gradient that is all rounding into a whole step.
    clients = data.rotated_digits(num_clients=12)
    module = models.mlp(64, 16, 10)().double()
    local = LocalTraining(steps=30, local_steps=5, batch_size=10, optimizer="adam", lr=0.01)
    federation = Simulation(clients, deepcopy(module), validation=0.0)
    result = SRFCA.as_in_paper(2.0, local=local).fit(federation, seed=0)
    samples = [clients.train.of(client) for client in range(12)]
    for data_loaders in (True, False):
        partition, rows = Sequential(
            clients.client_ids, [x.double() for x, _ in samples], [y for _, y in samples],
            deepcopy(module), local, 2.0, data_loaders=data_loaders,
        ).sr_fca(seed=0)  # fmt: skip
        assert partition == result.partition
        torch.testing.assert_close(rows, result.models, rtol=1e-6, atol=1e-8)


def test_distances_of_permuted_networks_are_compared() -> None:
    sizes = ["--clients", "6", "--steps", "5"]
    done = run(str(BENCHMARKS / "permutations.py"), *sizes)
    assert done.returncode == 0, done.stderr
    distances = [line.split(" | ")[2] for line in done.stdout.splitlines()[2:]]
    assert distances == ["`l2`", "`matched`", "`wasserstein`", "`cross_loss`"] * 4


def test_drift_is_measured() -> None:
    sizes = ["--datasets", "digits", "--clients", "12", "--steps", "40", "--rounds", "2"]
    done = run(str(BENCHMARKS / "drift.py"), *sizes, "--only", "a quarter changes group")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    methods = [
        "SR-FCA, adapted", "SR-FCA, fitted again", "IFCA, K=3", "FedDrift", "FedAvg", "Oracle",
    ]  # fmt: skip
    assert [line.split(" | ")[3] for line in lines[2:]] == methods


def test_rates_of_fine_tuning_are_compared() -> None:
    sizes = ["--set", "steps=30", "num_clients=8"]
    done = run(
        str(BENCHMARKS / "fine_tuning.py"), "--seeds", "1", "--only", "rotated-digits", *sizes
    )
    assert done.returncode == 0, done.stderr
    header, _, line = done.stdout.splitlines()
    assert line.startswith("| rotated-digits | ")
    assert len(line.split(" | ")) == len(header.split(" | ")) == 13


def test_calibration_is_measured() -> None:
    options = ["--seeds", "1", "--only", "digits, 3 and 8 swapped", "digits, label permutations"]
    done = run(str(BENCHMARKS / "calibration.py"), *options)
    assert done.returncode == 0, done.stderr
    for title in (
        "| formula | T | SR-FCA |",
        "| 0.99 to 1.00 |",
        "| federation | clients | wrong |",
    ):
        assert title in done.stdout
    done = run(str(BENCHMARKS / "calibration.py"), "--newcomers", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Newcomers: ")


def test_costs_of_two_versions_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks import decision_cost

    small = ("rotated-digits", ("num_clients=8", "rotations=2", "steps=30"))
    monkeypatch.setattr(decision_cost, "FEDERATIONS", {"small": small})
    decision_cost.write(tmp_path, range(1))
    decision_cost.run(tmp_path)
    lines = capsys.readouterr().out
    (tmp_path / "runs.jsonl").write_text(lines)
    decision_cost.table(tmp_path / "runs.jsonl", tmp_path / "runs.jsonl")
    shown = capsys.readouterr().out
    assert "| small |" in shown
    assert "trainings: mean ratio 1.00, largest 1.00" in shown
