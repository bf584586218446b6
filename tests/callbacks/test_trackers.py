"""Experiment trackers and progress bars."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from srfca import FedAvg, InputError, LocalTraining, Result, Simulation, data, models
from srfca.callbacks import MLflow, Monitor, ProgressBars, WandB
from srfca.callbacks.bars import bar_html
from srfca.errors import SrfcaWarning
from tests.cli.command import QUICK, srfca


def small_run(*callbacks: Monitor, lr: float = 0.5) -> Result:
    federation = Simulation(data.rotated_digits(num_clients=4, rotations=2), models.mlp(64, 8, 10))
    local = LocalTraining(steps=6, local_steps=2, batch_size=10, lr=lr)
    return FedAvg(local=local, curves=1).fit(federation, callbacks=callbacks)


class Stub:
    """Stands for the packages: keeps what they are told."""

    def __init__(self) -> None:
        self.parameters: dict[str, Any] = {}
        self.metrics: list[tuple[str, float, int]] = []
        self.ended: list[object] = []
        self.name = ""

    # wandb
    def init(self, *, project: str, name: str, config: dict[str, Any]) -> Stub:
        self.name, self.parameters = f"{project}/{name}", config
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.metrics += [(key, value, step) for key, value in values.items()]

    def finish(self, exit_code: int) -> None:
        self.ended.append(exit_code)

    # mlflow
    def get_experiment_by_name(self, name: str) -> None:
        self.name = name

    def create_experiment(self, name: str) -> str:
        return "1"

    def create_run(self, experiment: str, run_name: str) -> Any:
        self.name += f"/{run_name}"
        return SimpleNamespace(info=SimpleNamespace(run_id="run"))

    def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
        self.parameters |= dict(params)
        self.metrics += [(key, value, step) for key, value, _, step in metrics]

    def set_terminated(self, run: str, status: str) -> None:
        self.ended.append(status)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    made = Stub()
    wandb, mlflow, entities = (ModuleType(n) for n in ("wandb", "mlflow", "mlflow.entities"))
    wandb.init = made.init  # type: ignore[attr-defined]
    mlflow.MlflowClient = lambda uri: made  # type: ignore[attr-defined]
    entities.Metric = lambda *values: values  # type: ignore[attr-defined]
    entities.Param = lambda *values: values  # type: ignore[attr-defined]
    for module in (wandb, mlflow, entities):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


@pytest.mark.parametrize(("make", "ends"), [(WandB, (0, 1)), (MLflow, ("FINISHED", "FAILED"))])
def test_every_round_and_the_end_are_logged(
    stub: Stub, make: Any, ends: tuple[object, ...]
) -> None:
    result = small_run(make("mine"))
    assert stub.name == f"mine/{result.method.lower()}-seed0"
    assert str(stub.parameters["local.lr"]) == "0.5"
    rounds = [step for key, _, step in stub.metrics if key == "round/local_steps"]
    assert rounds == [1, 2, 3]
    assert len([key for key, _, _ in stub.metrics if key == "validation/accuracy"]) == 2
    final = {key: value for key, value, _ in stub.metrics if key.startswith("final/")}
    assert final["final/loss"] == result.history[-1].loss
    assert final["final/local_steps"] == 24
    with pytest.raises(InputError, match="diverged"):
        small_run(make("mine"), lr=1e30)
    assert stub.ended == list(ends)


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = "torch.utils.tensorboard" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, module, None)
    done = srfca("run", "rotated-digits", *QUICK, "--track", f"{name}:{tmp_path}")
    assert done.returncode == 2
    assert f"pip install 'srfca[{name}]'" in done.stderr


def test_wrong_trackers_are_refused() -> None:
    assert "did you mean 'wandb'?" in srfca("run", "rotated-digits", "--track", "wandbb").stderr
    done = srfca("run", "rotated-digits", "--track", "wandb:")
    assert "names no place" in done.stderr


def test_tensorboard_reads_what_a_command_logged(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("tensorboard", reason="needs srfca[tensorboard]")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    command = ["run", "rotated-digits", *QUICK, "--method", "global", "--curves", "2"]
    for _ in range(2):
        done = srfca(*command, "--track", f"tensorboard:{tmp_path}")
        assert done.returncode == 0, done.stderr
    runs = sorted(path.name for path in tmp_path.iterdir())
    assert runs == ["rotated-digits-global-seed0", "rotated-digits-global-seed0-2"]
    events = EventAccumulator(str(tmp_path / runs[0])).Reload()
    assert {"validation/accuracy", "round/local_steps", "final/loss"} <= set(
        events.Tags()["scalars"]
    )
    steps = [event.value for event in events.Scalars("round/local_steps")]
    assert steps == sorted(steps)
    assert len(steps) > 2


def test_every_run_of_a_comparison_is_logged(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs srfca[tensorboard]")
    done = srfca(
        "compare", "rotated-digits", *QUICK, "--methods", "sr-fca,ifca", "--k", "2", "--seeds", "2",
        "--jobs", "1", "--track", f"tensorboard:{tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rotated-digits-ifca-k2-seed0", "rotated-digits-ifca-k2-seed1",
        "rotated-digits-sr-fca-seed0", "rotated-digits-sr-fca-seed1",
    ]  # fmt: skip
    assert "did you mean 'wandb'?" in srfca("compare", "rotated-digits", "--track", "wandbb").stderr


def test_a_resumed_run_is_tracked_as_before_or_as_asked(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs srfca[tensorboard]")
    out, logs = str(tmp_path / "run"), [tmp_path / name for name in ("first", "second")]
    options = ("--method", "global", "--out", out, "--journal")
    done = srfca("run", "rotated-digits", *QUICK, *options, "--track", f"tensorboard:{logs[0]}")
    assert done.returncode == 0, done.stderr
    assert srfca("resume", out).returncode == 0
    assert srfca("resume", out, "--track", f"tensorboard:{logs[1]}").returncode == 0
    assert [len(list(folder.iterdir())) for folder in logs] == [2, 1]


def test_an_experiment_of_mlflow_may_be_created_by_another_process(stub: Stub) -> None:
    found = iter([None, SimpleNamespace(experiment_id="7")])
    stub.get_experiment_by_name = lambda name: next(found)  # type: ignore[assignment, method-assign]

    def exists(name: str) -> str:
        raise RuntimeError("experiment exists")

    stub.create_experiment = exists  # type: ignore[method-assign]
    small_run(MLflow("mine"))
    assert stub.ended == ["FINISHED"]


@pytest.mark.parametrize("make", [WandB, MLflow])
def test_a_tracker_that_cannot_begin_stops_the_run_at_once(
    stub: Stub, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError("no server answers\nand more")

    monkeypatch.setattr(make, "begin", refuse)
    with pytest.raises(InputError, match=r"cannot track: OSError: no server answers$"):
        small_run(make("mine"))
    assert stub.ended == []


def test_a_run_that_cannot_be_followed_ends_for_all_that_follow_it(stub: Stub) -> None:
    class Refusing(Monitor):
        def run_start(self, start: object) -> None:
            raise InputError("not today")

    with pytest.raises(InputError, match="not today"):
        small_run(WandB(), Refusing())
    assert stub.ended == [1]


@pytest.mark.parametrize("part", ["log", "finish"])
def test_a_tracker_that_fails_later_does_not_end_the_run(
    stub: Stub, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError("connection lost")

    monkeypatch.setattr(stub, part, refuse)
    with pytest.warns(SrfcaWarning, match="WandB no longer tracks .* connection lost") as caught:
        small_run(WandB("mine"))
    assert len(caught) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # between MLflow and its database
def test_mlflow_keeps_runs_in_a_database(tmp_path: Path) -> None:
    for package in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(package, reason="needs srfca[mlflow]")
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    small_run(MLflow("mine", uri))
    client = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert run.info.status == "FINISHED"
    assert len(client.get_metric_history(run.info.run_id, "round/local_steps")) == 3


def test_wandb_works_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs srfca[wandb]")
    small_run(WandB("mine", mode="offline", dir=str(tmp_path)))
    assert list(tmp_path.glob("**/*.wandb"))


def test_bars_in_a_notebook_need_no_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=shown.append)

    def display(html: str, display_id: bool) -> Any:
        shown.append(html)
        return handle

    module = ModuleType("IPython.display")
    module.HTML = lambda html: html  # type: ignore[attr-defined]
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    bars = ProgressBars()
    bars.console.is_jupyter = True
    small_run(bars)
    assert shown[0].count("<progress") == 1
    assert 'value="0" max="24"' in shown[0]
    assert "done" in shown[-1]
    assert "&lt;b&gt;" in bar_html("<b>", 1, 0, 2.0)
