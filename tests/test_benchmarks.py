"""The benchmarks run, in a tiny setting, and their contestants agree."""

from __future__ import annotations

import os
import subprocess
import sys
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import pytest
import torch

from srfca import SRFCA, Simulation, Work, data, models

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=ONE_THREAD, check=False
    )


def test_the_race_of_a_cpu(tmp_path: Path) -> None:
    """Without Flower and pfl-research, whose environments are not looked for here."""
    page = tmp_path / "page.md"
    script = str(BENCHMARKS / "run.py")
    done = run(script, "--quick", "--envs", str(tmp_path / "none"), "--out", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.count("**srfca**") == 5
    assert text.count("\n| plain loop") == 5
    for name in ("fused Adam", "lazy pivots", "scipy.stats.trim_mean", "sequential, pair by pair"):
        assert name in text, text
    assert "srfca reaches" in text


def test_the_suite_of_a_gpu(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    script = str(BENCHMARKS / "gpu.py")
    done = run(script, "--device", "cpu", "--quick", "--cifar", "--out", str(page))
    assert done.returncode == 0, done.stderr
    for what in ("bf16", "all 64 losses", "trimmed mean", "rotated-mnist", "ResNet9", "LSTM"):
        assert what in page.read_text()


def test_a_part_that_fails_does_not_lose_the_rest(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "import gpu\n"
        "def broken(card):\n"
        "    raise RuntimeError('no such luck')\n"
        "gpu.PARTS['small_models'] = broken\n"
        "gpu.main()\n"
    )
    wanted = ["--only", "small_models", "trimmed_mean", "--device", "cpu", "--quick"]
    done = run(str(script), *wanted)
    assert done.returncode == 1
    assert "small_models: RuntimeError: no such luck" in done.stdout
    assert "| trimmed mean, 20 rows" in done.stdout


RACE = """
import sys
sys.path.insert(0, {benchmarks!r})
from harness import Server, race, table
print(table(race([Server([sys.executable, name]) for name in sys.argv[1:]], 3), "ours", "check"))
"""


@pytest.mark.parametrize(("answer", "agrees"), [(2.0, True), (2.1, False), (None, True)])
def test_a_race_is_refused_where_answers_differ(
    tmp_path: Path, answer: float | None, agrees: bool
) -> None:
    (tmp_path / "race.py").write_text(RACE.format(benchmarks=str(BENCHMARKS)))
    for name, check in (("ours", 2.0), ("theirs", answer)):
        (tmp_path / f"{name}.py").write_text(
            f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
            "from harness import serve\n"
            "print('noise that is no answer')\n"
            f"serve({{{name!r}: lambda: {check}}})\n"
        )
    scripts = [str(tmp_path / f"{name}.py") for name in ("race", "ours", "theirs")]
    done = run(*scripts)
    assert (done.returncode == 0) == agrees, done.stderr
    if agrees:
        lines = done.stdout.splitlines()
        assert [line.split(" | ")[0] for line in lines[2:]] == ["| **ours**", "| theirs"]
        assert lines[2].split(" | ")[3] == "1.00"
    else:
        assert "do not agree" in done.stderr


def test_a_contestant_that_dies_is_named(tmp_path: Path) -> None:
    (tmp_path / "race.py").write_text(RACE.format(benchmarks=str(BENCHMARKS)))
    (tmp_path / "dead.py").write_text("raise SystemExit(3)\n")
    done = run(str(tmp_path / "race.py"), str(tmp_path / "dead.py"))
    assert done.returncode == 1
    assert "dead.py ended with 3" in done.stderr


def test_the_sequential_way_finds_the_same_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    Sequential = import_module("sequential").Sequential

    clients = data.rotated_digits(num_clients=12)
    module = models.mlp(64, 16, 10)()
    work = Work(steps=30, local_steps=5, batch_size=10, optimizer="adam", lr=0.01)
    federation = Simulation(clients, deepcopy(module), validation=0.0)
    found = SRFCA(work=work, threshold=2.0, refine_steps=1).fit(federation, seed=0)
    samples = [clients.train.of(client) for client in range(12)]
    for loaders in (True, False):
        partition, rows = Sequential(
            clients.clients, [x for x, _ in samples], [y for _, y in samples], deepcopy(module),
            work, 2.0, loaders=loaders,
        ).sr_fca(seed=0)  # fmt: skip
        assert partition == found.partition
        assert torch.allclose(rows, found.models, atol=1e-4)
