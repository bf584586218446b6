"""Saved runs: reused if they are the same, repeated if they are damaged or differ."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srfca import InputError, Result
from srfca.experiments import config, runner, saved
from srfca.experiments.compare import Comparison, compare
from srfca.experiments.executor import RunExecutor, RunSpec
from srfca.experiments.experiment import Experiment, _method_parameters
from srfca.experiments.metrics import TIME_NAMES
from srfca.experiments.source_code import _package_digest
from srfca.experiments.user_data import experiment_from_data
from srfca.locks import locked
from tests.experiments.small import small_experiment, write_npz


@dataclass(frozen=True)
class Refuse:
    """Stands for a function that must not be called."""

    def __call__(self, *arguments: Any) -> Any:
        raise AssertionError("a run was repeated")


def without_seconds(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in run.items() if name not in TIME_NAMES} for run in runs]


def test_saved_runs_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(experiment: Experiment, seeds: range = range(2)) -> Comparison:
        return compare(experiment, ["local", "global"], seeds, out=tmp_path)

    first = again(small_experiment())
    assert (first.reused, first.failures) == (0, [])
    folders = sorted(tmp_path.iterdir())
    assert [folder.name.rpartition("-")[0] for folder in folders] == [
        "global-seed0", "global-seed1", "local-seed0", "local-seed1",
    ]  # fmt: skip
    assert all(len(Result.load(folder).labels) == 8 for folder in folders)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_method", Refuse())
        patch.setattr(runner, "make_federation", Refuse())
        second = again(small_experiment())
        assert second.metrics == first.metrics
        assert second.reused == 4
        other = small_experiment().set(["sr-fca.trim=0.3"])
        assert again(other).reused == 4, "not a setting of these methods"
    assert again(small_experiment(), range(3)).reused == 4
    assert again(small_experiment().set(["global.weighted=false"])).reused == 2
    assert again(small_experiment().set(["lr=0.4"])).reused == 0
    monkeypatch.setattr(saved, "__version__", "0.0.0.other")
    assert again(small_experiment()).reused == 0


def test_run_json_has_metrics_settings_and_digests(tmp_path: Path) -> None:
    [metrics] = compare(small_experiment(), ["local"], out=tmp_path).metrics
    [path] = tmp_path.glob("local-seed0-*/run.json")
    content = json.loads(path.read_text())
    extra = {name: content.pop(name) for name in set(content) - set(metrics)}
    assert content == metrics
    assert set(extra) == {
        "settings",
        "srfca",
        "versions",
        "client_samples",
        "run_digest",
        "tensors_sha256",
        "format",
        "checksum",
    }
    assert set(extra["settings"]) == {"data", "model", "federation", "local_training", "local"}
    assert path.parent.name == f"local-seed0-{extra['run_digest']}"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: "null",
        lambda text: text.replace('"accuracy": 0.', '"accuracy": 0.9'),
        lambda text: text.replace('"run_digest": "', '"run_digest": "0'),
    ],
)
def test_a_run_with_damaged_metrics_is_repeated(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    first = compare(small_experiment(), ["local"], out=tmp_path)
    [folder] = tmp_path.iterdir()
    intact = (folder / "run.json").read_text()
    (folder / "run.json").write_text(damage(intact))
    assert damage(intact) != intact
    second = compare(small_experiment(), ["local"], out=tmp_path)
    assert second.reused == 0
    assert without_seconds(second.metrics) == without_seconds(first.metrics)
    assert compare(small_experiment(), ["local"], out=tmp_path).reused == 1


@pytest.mark.parametrize("name", ["tensors.safetensors", "result.json"])
def test_a_run_with_damaged_models_is_repeated(tmp_path: Path, name: str) -> None:
    compare(small_experiment(), ["local"], out=tmp_path)
    [folder] = tmp_path.iterdir()
    for garbage in (b"nonsense", None):
        (folder / name).unlink()
        if garbage is not None:
            (folder / name).write_bytes(garbage)
        assert compare(small_experiment(), ["local"], out=tmp_path).reused == 0
        assert Result.load(folder).method == "Local"
        assert compare(small_experiment(), ["local"], out=tmp_path).reused == 1


def test_runs_on_changed_data_are_repeated(tmp_path: Path) -> None:
    def reused(**changes: Any) -> int:
        path = write_npz(tmp_path / "data.npz", **changes)
        experiment = experiment_from_data(path, "linear").set(["steps=1"])
        return compare(experiment, ["local"], out=tmp_path / "out").reused

    assert [reused(), reused(), reused(y=np.arange(12) // 6), reused()] == [0, 1, 0, 1]


METHOD = """
from dataclasses import dataclass
from typing import ClassVar
from srfca.methods.local import Local

@dataclass(frozen=True, kw_only=True)
class Mine(Local):
    name: ClassVar[str] = "Mine"
"""
DATASET = """
from srfca.data import rotated_digits

def digits(*, num_clients: int = 4, seed: int = 0):
    return rotated_digits(num_clients=num_clients, rotations=2, seed=seed)
"""
EXPERIMENT = """
[data]
name = "user_dataset:digits"
[model]
name = "mlp"
inputs = 64
hidden = [8]
outputs = 10
[local_training]
steps = 1
"""


@pytest.mark.parametrize("changed", ["user_method.py", "user_dataset.py"])
def test_runs_with_changed_code_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    (tmp_path / "user_method.py").write_text(METHOD)
    (tmp_path / "user_dataset.py").write_text(DATASET)
    (tmp_path / "user.toml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run() -> Comparison:
        for module in ("user_method", "user_dataset"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        _method_parameters.cache_clear()
        _package_digest.cache_clear()
        return compare(config.load("user.toml"), ["user_method:Mine"], out=tmp_path / "out")

    assert run().reused == 0
    assert run().reused == 1
    [folder] = (tmp_path / "out").iterdir()
    assert folder.name.startswith("user_method.Mine-seed0-")
    with (tmp_path / changed).open("a") as file:
        file.write("# a change\n")
    assert run().reused == 0


def test_files_of_another_run_are_not_believed(tmp_path: Path) -> None:
    compare(small_experiment(), ["local"], seeds=range(2), out=tmp_path)
    first, second = sorted(tmp_path.iterdir())
    for name in ("run.json", "result.json", "tensors.safetensors"):
        kept = (first / name).read_bytes()
        (first / name).write_bytes((second / name).read_bytes())
        with pytest.raises(InputError, match=r"another result|another run"):
            saved.read_run(first)
        (first / name).write_bytes(kept)
    assert saved.read_run(first)[0]["seed"] == 0


def test_a_run_that_another_process_works_on_is_not_touched(tmp_path: Path) -> None:
    executor = RunExecutor(small_experiment(), out=tmp_path)
    folder = executor.folder_of(RunSpec("local", 0))
    assert folder is not None
    with locked(folder):
        outcome = executor.execute(RunSpec("local", 0))
    assert outcome.error is not None
    assert "is in use by process" in outcome.error
    assert executor.execute(RunSpec("local", 0)).error is None
