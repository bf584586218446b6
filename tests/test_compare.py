"""Methods side by side: which runs there are, reuse, several processes, tables."""

from __future__ import annotations

import csv
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from srfca import Local, Partition, Result, console, methods
from srfca.cli import app
from srfca.errors import InputError
from srfca.experiments import compare, config, custom, parallel, runner, saved
from srfca.experiments.bench import Bench, Done, Task
from srfca.experiments.config import Experiment
from srfca.federation.base import Scores
from srfca.methods.base import Answer, Method
from srfca.methods.run import Run
from srfca.report import summary, tables
from tests.test_cli import srfca
from tests.test_custom import MODULE, npz, three_groups

SMALL = ["num_clients=8", "steps=4", "rotations=2", "refine_steps=1"]
FAST = [word for setting in SMALL for word in ("--set", setting)]


@dataclass(frozen=True, kw_only=True)
class Told(Method):
    """Clients are dealt to k clusters in turn.

    Args:
        k: The number of clusters.
    """

    name: ClassVar[str] = "Told"

    k: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k < 1:
            raise InputError(f"k must be at least 1, not {self.k}")

    @property
    def trainings(self) -> float:
        return 2

    def solve(self, run: Run) -> Answer:
        labels = np.arange(len(run.federation.clients)) % self.k
        models = run.federation.initial(run.seed).expand(self.k, -1)
        answer = Answer.of(labels, models)
        run.record("TOLD", Partition(labels), answer.client_models)
        return answer


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> str:
    """A method that must be told the number of clusters, by its name on the command line."""
    monkeypatch.setitem(config.METHODS, "told", "Told")
    monkeypatch.setattr(methods, "Told", Told, raising=False)
    return "told"


def small() -> Experiment:
    return config.load("rotated-digits").set(SMALL)


def figures(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what the clock says."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_methods_that_must_be_told_k_run_for_each(told: str) -> None:
    assert config.takes_k(told)
    assert not config.takes_k("sr-fca")
    found = compare.tasks(small(), ["local", told], seeds=[5, 6])
    assert [(task.method, task.k, task.seed) for task in found] == [
        ("local", None, 5), ("told", 2, 5), ("told", 4, 5), ("told", 6, 5),
        ("local", None, 6), ("told", 2, 6), ("told", 4, 6), ("told", 6, 6),
    ]  # fmt: skip
    assert str(found[2]) == "Told K=4 seed 5"
    assert [task.k for task in compare.tasks(small(), [told], k=[3, 1, 3])] == [3, 1]
    once = compare.tasks(small().set(["told.k=5"]), [told])
    assert [task.k for task in once] == [5], "a setting of its own comes before the experiment's"
    rows = compare.compare(small(), [told], k=[1, 3]).rows
    assert [(row["k"], row["num_clusters"]) for row in rows] == [(1, 1), (3, 3)]


def test_every_experiment_has_numbers_of_clusters(tmp_path: Path) -> None:
    assert config.load("rotated-mnist").k == (2, 4, 6)
    assert config.load("femnist").k == (2, 3, 4, 5)
    assert custom.own(npz(tmp_path / "own.npz")).k == (2, 3, 4)
    assert all(min(config.load(name).k) >= 2 for name in config.names())


def test_bad_parameters_are_refused_before_any_run(told: str) -> None:
    for arguments, message in (
        ((["told"], [0], [2, 0]), "k must be at least 1"),
        ((["sr-fca"], [0], [2]), "k is for methods that must be told it"),
        ((["local", "sfca"],), "did you mean 'sr-fca'"),
    ):
        with pytest.raises(InputError, match=message):
            compare.tasks(small(), *arguments)
    with pytest.raises(InputError, match="jobs must be at least 1"):
        compare.compare(small(), ["local"], jobs=0)


def test_default_methods_leave_out_an_oracle_that_knows_nothing() -> None:
    known = compare.default_methods(small())
    assert known[:4] == ["sr-fca", "oracle", "local", "global"]
    assert set(known) <= set(config.METHODS)
    assert "oracle" not in compare.default_methods(config.load("femnist"))


def test_an_equal_budget_is_sr_fcas(told: str) -> None:
    experiment = config.load("rotated-digits").set(["steps=100", "refine_steps=2", *SMALL[:1]])
    assert compare.budget(experiment) == 300
    chosen = ["sr-fca", "global", told]
    found = compare.tasks(experiment, chosen, k=[2], equal_budget=True)
    steps = [experiment.set(task.settings).work(task.method)["steps"] for task in found]
    assert steps == [100, 300, 150]
    (grouped,) = compare.tasks(experiment, ["fedgroup"], k=[2], equal_budget=True)
    assert experiment.set(grouped.settings).work("fedgroup")["steps"] == 300 - 20
    spent = compare.compare(experiment, chosen[:2], equal_budget=True).rows
    assert spent[0]["local_steps"] == 200 * 8, "one REFINE was enough"
    assert spent[1]["local_steps"] == 300 * 8
    free = compare.compare(experiment, ["global"]).rows
    assert free[0]["local_steps"] == 100 * 8
    assert "300 local steps" in compare.terms(experiment, True)
    assert "100 steps" in compare.terms(experiment, False)


def test_an_equal_budget_counts_who_takes_part() -> None:
    """ONE_SHOT is of all clients, every REFINE of half of them."""
    halves = ["steps=100", "refine_steps=2", "participation=0.5", *SMALL[:1]]
    experiment = config.load("rotated-digits").set(halves)
    assert compare.budget(experiment) == 200
    chosen = [
        "local", "global", "oracle", "ditto", "one-shot-kmeans", "one-shot-ifca", "hierarchical",
        "fesem", "ifca", "fedem", "fedgroup", "pacfl", "mocha", "cfl",
    ]  # fmt: skip
    for row in compare.compare(experiment, chosen, k=[2], equal_budget=True).rows:
        extra = 200 * 2 if row["method"] == "fedem" else 5 * 2  # the steps of k starts, if any
        assert abs(row["local_steps"] / 8 - 200) <= 5 + extra / 8, row["method"]


def test_the_mean_over_k_is_over_k_first_and_then_over_seeds(told: str) -> None:
    rows = compare.compare(small(), ["local", told], [0, 1, 2], k=[1, 2]).rows
    found = summary.lines(rows)
    assert [line.title for line in found] == [
        "Local",
        "Told, K=1",
        "Told, K=2",
        "Told, mean over K",
    ]
    wrong = {(row["k"], row["seed"]): row["misclustering"] for row in rows if row["k"]}
    means = [fmean([wrong[1, seed], wrong[2, seed]]) for seed in (0, 1, 2)]
    spread = found[-1].spread(lambda row: row["misclustering"])
    assert spread == summary.Spread(fmean(means), stdev(means))
    assert means[0] == 0.25
    assert found[0].spread(lambda row: row["misclustering"]) is None
    assert "Told: told the number of clusters, K." in tables.notes(rows)[0]
    assert tables.notes([row for row in rows if row["k"] != 2]) == []


@dataclass(frozen=True)
class Refuses:
    """A bench that must not be asked to run anything."""

    def __call__(self, *arguments: Any) -> Any:
        raise AssertionError("a run was done again")


def test_what_is_saved_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(experiment: Experiment, seeds: range = range(2)) -> compare.Comparison:
        return compare.compare(experiment, ["local", "global"], seeds, out=tmp_path)

    first = again(small())
    assert (first.reused, first.failures) == (0, [])
    folders = sorted(tmp_path.iterdir())
    assert [folder.name.rpartition("-")[0] for folder in folders] == [
        "global-seed0", "global-seed1", "local-seed0", "local-seed1",
    ]  # fmt: skip
    assert all(len(Result.load(folder).labels) == 8 for folder in folders)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run", Refuses())
        patch.setattr(runner, "federation", Refuses())
        second = again(small())
        assert second.rows == first.rows
        assert second.reused == 4
        assert again(small().set(["sr-fca.trim=0.3"])).reused == 4, "not a setting of these methods"
    assert again(small(), range(3)).reused == 4
    assert again(small().set(["global.weighted=false"])).reused == 2
    assert again(small().set(["lr=0.4"])).reused == 0
    monkeypatch.setattr(saved, "__version__", "0.0.0.other")
    assert again(small()).reused == 0


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
def test_a_damaged_run_is_done_again(tmp_path: Path, damage: Callable[[str], str]) -> None:
    first = compare.compare(small(), ["local"], out=tmp_path)
    [folder] = tmp_path.iterdir()
    whole = (folder / "run.json").read_text()
    (folder / "run.json").write_text(damage(whole))
    assert damage(whole) != whole
    second = compare.compare(small(), ["local"], out=tmp_path)
    assert second.reused == 0
    assert figures(second.rows) == figures(first.rows)
    assert compare.compare(small(), ["local"], out=tmp_path).reused == 1


@pytest.mark.parametrize("name", ["tensors.safetensors", "result.json"])
def test_a_run_whose_models_are_damaged_is_done_again(tmp_path: Path, name: str) -> None:
    compare.compare(small(), ["local"], out=tmp_path)
    [folder] = tmp_path.iterdir()
    for garbage in (b"nonsense", None):
        (folder / name).unlink()
        if garbage is not None:
            (folder / name).write_bytes(garbage)
        assert compare.compare(small(), ["local"], out=tmp_path).reused == 0
        assert Result.load(folder).method == "Local"
        assert compare.compare(small(), ["local"], out=tmp_path).reused == 1


def test_own_data_that_changed_are_run_again(tmp_path: Path) -> None:
    def runs(**changes: Any) -> int:
        own = custom.own(npz(tmp_path / "own.npz", **changes), "linear").set(["steps=1"])
        return compare.compare(own, ["local"], out=tmp_path / "out").reused

    assert [runs(), runs(), runs(y=np.arange(12) // 6), runs()] == [0, 1, 0, 1]


def test_a_failure_does_not_lose_the_others(tmp_path: Path) -> None:
    own = custom.own(npz(tmp_path / "own.npz"), "linear").set(["steps=1"])
    found = compare.compare(own, ["local", "oracle", "global"], [0, 1])
    assert [row["method"] for row in found.rows] == ["local", "global"] * 2
    assert [(done.task.method, done.task.seed) for done in found.failures] == [
        ("oracle", 0), ("oracle", 1),
    ]  # fmt: skip
    assert "needs the true clusters" in str(found.failures[0].why)


def test_whatever_goes_wrong_with_a_run_is_its_own_affair(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Local, run: object) -> None:
        raise ZeroDivisionError("of the user's own\nand more")

    monkeypatch.setattr(Local, "solve", fails)
    found = compare.compare(small(), ["local", "global"])
    assert [row["method"] for row in found.rows] == ["global"]
    assert [done.why for done in found.failures] == ["ZeroDivisionError: of the user's own"]


def test_an_experiment_travels_to_another_process(tmp_path: Path) -> None:
    plain = pickle.loads(pickle.dumps(small()))
    assert plain == small()
    own = custom.own(npz(tmp_path / "own.npz"), "linear").set(["steps=3"])
    copy = pickle.loads(pickle.dumps(own))
    assert copy.sections == own.sections
    assert copy.fingerprint == own.fingerprint
    assert len(runner.federation(copy, seed=0).clients) == 3


def test_default_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "cores", lambda: 4)
    assert [parallel.default_jobs("auto", tasks) for tasks in (1, 3, 9)] == [1, 3, 4]
    assert parallel.default_jobs("cuda:1", 9) == 1
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert parallel.default_jobs("auto", 9) == 1
    assert parallel.default_jobs("cpu", 9) == 4
    assert parallel.cores() >= 1


def test_several_processes_give_the_same_rows(tmp_path: Path) -> None:
    chosen = ["sr-fca", "oracle", "global"]
    alone = compare.compare(small(), chosen, [0, 1])
    beside = compare.compare(small(), chosen, [0, 1], jobs=2, out=tmp_path)
    assert figures(beside.rows) == figures(alone.rows)
    assert compare.compare(small(), chosen, [0, 1], out=tmp_path).reused == 6


def test_own_data_and_network_in_several_processes(tmp_path: Path) -> None:
    (tmp_path / "nets_e.py").write_text(MODULE)
    three_groups(tmp_path)
    arguments = ("--data", "sensors.npz", "--model", "nets_e:network", "--set", "steps=10")
    methods = ("--methods", "local,oracle,global", "--jobs", "2", "--out", "out")
    done = srfca("compare", *arguments, *methods, cwd=tmp_path)
    assert done.returncode == 2
    assert "Failed: Oracle seed 0: oracle needs the true clusters" in done.stdout
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 3
    assert "Oracle seed 0: failed: oracle needs" in done.stderr
    again = srfca("compare", *arguments, *methods, cwd=tmp_path)
    assert "2 of 3 runs were there already." in again.stdout
    silent = srfca("compare", *arguments, *methods, "--json", cwd=tmp_path)
    assert [json.loads(line)["method"] for line in silent.stdout.splitlines()] == [
        "local", "global",
    ]  # fmt: skip
    assert silent.returncode == 2
    assert silent.stderr.startswith("srfca: Failed: Oracle seed 0")


def running(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("how", ["terminal", "killed"])
def test_children_end_with_their_parent(tmp_path: Path, how: str) -> None:
    """Ctrl-C in a terminal goes to all processes of a group; a parent may also be killed alone."""
    command = [sys.executable, "-m", "srfca", "compare", "rotated-digits", "--seeds", "500"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path), "--jobs", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    try:
        while not list(tmp_path.glob("*/run.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        if how == "terminal":
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.kill()
        _, error = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    assert process.returncode == (130 if how == "terminal" else -signal.SIGKILL)
    assert "Traceback" not in error
    if how == "terminal":
        assert error.splitlines()[-1] == "srfca: interrupted"
    while running(process.pid) and time.monotonic() < deadline + 60:
        time.sleep(0.05)
    assert not running(process.pid)
    for folder in tmp_path.iterdir():
        names = {path.name for path in folder.iterdir()}
        assert names <= {"result.json", "run.json", "tensors.safetensors"}
        if "run.json" in names:
            Result.load(folder)


def test_a_worker_that_dies_is_a_failure_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Done] = []
    monkeypatch.setattr(parallel, "_work", os._exit)
    # os._exit takes a number: what a worker is given as its task ends it.
    parallel.run_parallel(Bench(small()), [9], 1, found.append)  # type: ignore[list-item]
    assert "take fewer --jobs" in str(found[0].why)


def stubborn(ready: Any) -> None:
    """A process that does not hear that it is to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    time.sleep(600)


def test_a_worker_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_GRACE", 0.5)
    context = get_context("spawn")
    ready = context.Event()
    child = context.Process(target=stubborn, args=(ready,))
    child.start()
    assert ready.wait(60)
    parallel._end_all([child])
    child.join(60)
    assert child.exitcode == -signal.SIGKILL


def row(method: str, seed: int, accuracy: float | None, **others: Any) -> dict[str, Any]:
    """A made-up row."""
    names = {"sr-fca": "SR-FCA", "oracle": "Oracle", "odd": "Odd & 5% a_b"}
    figures = [*runner.FIGURES, *(f"tuned_{name}" for name in runner.FIGURES)]
    made: dict[str, float | None] = dict.fromkeys(figures)
    budget = dict.fromkeys(("local_steps", "models_down", "models_up", "evaluations"), 1200)
    budget |= dict.fromkeys(("bytes_down", "bytes_up"), 50_000_000)
    return {
        "experiment": "made-up", "method": method, "name": names[method], "k": None, "seed": seed,
        "clients": 10, "true_clusters": 2, "num_clusters": 2, "misclustering": 0.0, "ari": 1.0,
        "scored_on": "test", **made, "accuracy": accuracy, "worst_accuracy": accuracy, "loss": 0.5,
        **budget, "distance_to_optimum": None, "seconds": 1.25, "labels": [0, 1],
    } | others  # fmt: skip


ROWS = [
    row("sr-fca", 0, 0.75), row("oracle", 0, 0.9), row("odd", 0, 0.5, ari=0.5),
    row("sr-fca", 1, 0.85), row("oracle", 1, 0.9), row("odd", 1, 0.7, ari=0.5),
]  # fmt: skip


def test_tables_of_made_up_rows() -> None:
    found = summary.results(ROWS)
    assert found.columns == [
        "clusters", "misclustered\n%", "ARI", "test\naccuracy %", "worst\nclient %",
    ]  # fmt: skip
    assert found.cells[0] == ["2", "0.0", "1.00", "80.00 ± 7.07", "80.0 ± 7.1"]
    assert found.best[0] == [False, False, True, True, True], "the best of two, none of equals"
    assert not any(found.best[1]), "an oracle is not in the race"
    failed = summary.results(ROWS[1:])  # without SR-FCA's worse seed
    assert failed.names[-1] == "SR-FCA"
    assert not any(failed.best[-1]), "nor is who failed on some seed"
    cost = summary.costs(ROWS)
    assert cost.cells[0] == ["120", "120", "120", "5.00", "5.00", "120", "1.2"]
    regression = summary.results([row("odd", 0, None, worst_loss=2e-6)])
    assert regression.columns[-2:] == ["test\nloss", "worst\nclient"]
    assert regression.cells[0][-2:] == ["0.5", "2e-06"]


def test_a_mean_over_k_is_of_seeds_that_have_them_all() -> None:
    rows = [row("odd", seed, 0.5, k=2) for seed in (0, 1)] + [row("odd", 0, 0.9, k=4)]
    found = summary.results(rows)
    assert found.names == ["Odd & 5% a_b, K=2", "Odd & 5% a_b, K=4", "Odd & 5% a_b, mean over K"]
    assert [cells[3] for cells in found.cells] == ["50.00", "90.00", "70.00"]
    apart = [row("odd", 0, 0.5, k=2), row("odd", 1, 0.9, k=4)]
    assert len(summary.results(apart).names) == 2


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_a_narrow_terminal_cuts_nothing(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    console.show(console.summary_table(summary.results(ROWS)))
    shown = capsys.readouterr().out
    assert "…" not in shown
    for text in ("SR-FCA", "Oracle", "Odd & 5% a_b", "misclustered", "80.00", "7.07", "7.1"):
        assert text in shown


def test_a_run_whose_loss_is_infinite_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(self: Result, *arguments: Any, **named: Any) -> Scores:
        found = usual(self, *arguments, **named)
        return replace(found, loss=found.loss.index_fill(0, torch.tensor([1]), torch.inf))

    usual = Result.scores
    monkeypatch.setattr(Result, "scores", endless)
    [failure] = compare.compare(small(), ["local"]).failures
    assert "Local diverged for client '1' (test loss)" in str(failure.why)


def test_table_files(tmp_path: Path) -> None:
    report = tables.Report(ROWS, "made-up, 100%", ["A note."])
    for suffix in tables.FORMATS:
        tables.write(report, tmp_path / f"t{suffix}")
    with (tmp_path / "t.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["method"], line["k"], line["runs"]) for line in lines] == [
        ("sr-fca", "", "2"), ("oracle", "", "2"), ("odd", "", "2"),
    ]  # fmt: skip
    assert float(lines[0]["accuracy_mean"]) == pytest.approx(0.8)
    assert float(lines[0]["accuracy_std"]) == pytest.approx(stdev([0.75, 0.85]))
    assert lines[0]["tuned_loss_mean"] == lines[0]["tuned_loss_std"] == ""
    markdown = (tmp_path / "t.md").read_text()
    assert "| SR-FCA | 2 | 0.0 | **1.00** | **80.00 ± 7.07** | **80.0 ± 7.1** |" in markdown
    assert markdown.endswith("\nA note.\n")
    latex = (tmp_path / "t.tex").read_text()
    assert r"\textbf{80.00 $\pm$ 7.07}" in latex
    assert r"Odd \& 5\% a\_b & 2 & 0.0 & 0.50 &" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\bottomrule") == 2
    assert not list(tmp_path.glob(".*")), "nothing half written"


def test_csv_has_a_line_for_each_k_and_their_mean(told: str, tmp_path: Path) -> None:
    rows = compare.compare(small(), [told], k=[1, 2]).rows
    lines = list(csv.DictReader(tables.as_csv(tables.Report(rows, "")).splitlines()))
    assert [line["k"] for line in lines] == ["1", "2", "mean"]
    assert [float(line["num_clusters_mean"]) for line in lines] == [1, 2, 1.5]
    assert lines[0]["num_clusters_std"] == "", "a single run has no deviation"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "t.xlsx"], "--table t.xlsx: the name must end with .csv, .md, .tex"),
        (["--table", "/proc/t.csv"], "cannot write to /proc"),
        (["--k", "two"], "--k must be a list of whole numbers"),
        (["--k", "0"], "--k must be one or more numbers from 1 on"),
        (["--k", "2", "--methods", "local"], "k is for methods that must be told it"),
        (["--methods", ","], "names no method"),
        (["--jobs", "0"], "--jobs"),
        (["--personalise", "-1"], "--personalise"),
    ],
)
def test_what_a_user_can_mend_is_said_before_any_run(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "federation", Refuses())
    done = CliRunner().invoke(app, ["compare", "rotated-digits", *FAST, *arguments])
    assert done.exit_code != 0
    assert isinstance(done.exception, InputError | SystemExit)
    assert message in str(done.exception) + done.stderr
    assert done.stdout == ""


def test_where_all_fails_there_is_no_table() -> None:
    settings = ["--set", "lr=1e30", "--methods", "local,global", "--jobs", "1"]
    done = CliRunner().invoke(app, ["compare", "rotated-digits", *FAST, *settings])
    assert done.exit_code == 2
    assert done.stdout == ""
    reasons = [line for line in done.stderr.splitlines() if line.startswith("srfca: Failed: ")]
    assert ["Local seed 0" in reasons[0], "Global seed 0" in reasons[1]] == [True, True]
    assert done.stderr.count("diverged") == 4, "as it happens, and at the end"


def test_the_command_from_end_to_end(tmp_path: Path) -> None:
    files = [
        word for suffix in tables.FORMATS for word in ("--table", str(tmp_path / f"t{suffix}"))
    ]
    done = srfca(
        "compare", "rotated-digits", *FAST, "--methods", "global,local", "--seeds", "2",
        "--personalise", "3", "--equal-budget", "--jobs", "1", *files,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rotated-digits, seeds 0 to 1, every method with SR-FCA's ")
    assert "fine-tuned %" in done.stdout
    assert "Cost per client" in done.stdout
    assert "\x1b" not in done.stdout
    assert sorted(line.split()[0] for line in done.stderr.splitlines()) == [
        "1/4", "2/4", "3/4", "4/4",
    ]  # fmt: skip
    assert all((tmp_path / f"t{suffix}").stat().st_size for suffix in tables.FORMATS)


def test_a_task_is_its_own_settings_too() -> None:
    task = Task("local", 0)
    assert task != replace(task, settings=("work.steps=3",))
