"""``srfca compare``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from srfca import Result
from srfca.analysis import Analysis
from srfca.cli.app import app
from srfca.cli.options import method_keys
from srfca.errors import InputError
from srfca.experiments import config, runner
from srfca.experiments.compare import without_truth_if_unknown
from srfca.methods import all_methods
from srfca.report import tables
from tests.cli.command import QUICK, srfca
from tests.cli.test_run import METHOD
from tests.experiments.small import NETWORKS, SMALL, write_sensors
from tests.experiments.test_saved import Refuse

SAVED = {"analysis.json", "clusters.csv", "result.json", "run.json", "tensors.safetensors"}
FAST = [word for setting in SMALL[:3] for word in ("--set", setting)]


def test_tables_are_plain_when_piped(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "out"))
    methods = ("--methods", "sr-fca,global,local")
    done = srfca("compare", "rotated-digits", *methods, *out, *QUICK)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 3
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert [line.split("|")[1].strip() for line in lines[3:6]] == ["SR-FCA", "Global", "Local"]
    assert "SR-FCA found 2 clusters of 6, 6 clients" in done.stdout
    [folder] = (tmp_path / "out").glob("sr-fca-seed0-*")
    assert sorted(p.name for p in folder.iterdir()) == [
        "analysis.json", "clusters.csv", "result.json", "run.json", "tensors.safetensors",
    ]  # fmt: skip
    assert len(Result.load(folder).models) == 2
    settings = json.loads((folder / "run.json").read_text())["settings"]
    assert settings["local_training"]["steps"] == 40


def test_all_stands_for_every_method_that_can_run() -> None:
    """Nothing is trained: the specs are made, and the first thing that is wrong is said."""
    done = srfca("compare", "rotated-digits", "--methods", "all,nothing")
    assert done.returncode == 2
    assert "nothing" in done.stderr
    keys = method_keys("ifca:restarts=2,all,SR-FCA")
    assert keys[0] == "ifca:restarts=2"
    assert sorted(keys[1:]) == sorted(method.key for method in all_methods())
    known, unknown = (
        without_truth_if_unknown(config.load(name), keys) for name in ("rotated-digits", "femnist")
    )
    assert set(known) - set(unknown) == {"oracle"}


def test_several_seeds_give_a_mean_and_a_deviation() -> None:
    arguments = ("compare", "rotated-digits", "--methods", "local,global", "--seeds", "2", *QUICK)
    runs = [json.loads(line) for line in srfca(*arguments, "--json").stdout.splitlines()]
    assert [(run["method"], run["seed"]) for run in runs] == [
        ("local", 0), ("global", 0), ("local", 1), ("global", 1),
    ]  # fmt: skip
    assert runs[0]["num_clusters"] is None
    done = srfca(*arguments)
    assert " ± " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Use --out DIR to keep the models")


def test_clusters_are_shown_if_all_methods_are_given_their_number() -> None:
    arguments = ["--methods", "ifca,global", "--k", "3,2", "--no-reference", "--set", "steps=4"]
    done = srfca("compare", "rotated-digits", *QUICK, *arguments)
    assert done.returncode == 0, done.stderr
    assert "Clusters of IFCA, K=3, seed 0" in done.stdout.splitlines()


def test_methods_by_module_and_class(tmp_path: Path) -> None:
    (tmp_path / "my_methods.py").write_text(METHOD)
    done = srfca(
        "compare", "rotated-digits", *QUICK, "--methods", "local,my_methods:Untrained",
        "--set", "scale=0", "--jobs", "2", "--out", "out", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    methods = [json.loads(line)["method"] for line in done.stdout.splitlines()]
    assert methods == ["local", "my_methods:Untrained"]
    [folder] = (tmp_path / "out").glob("my_methods.Untrained-seed0-*")
    assert not Result.load(folder).models.any()


def test_a_model_in_a_module(tmp_path: Path) -> None:
    (tmp_path / "nets_d.py").write_text(NETWORKS)
    write_sensors(tmp_path)
    arguments = ("--data", "sensors.npz", "--model", "nets_d:network", "--methods", "sr-fca")
    out = tmp_path / "out"
    done = srfca("compare", *arguments, "--json", "--out", str(out), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert (metrics["experiment"], metrics["scored_on"]) == ("sensors.npz", "validation")
    assert metrics["labels"] == [0, 1, 2] * 8
    [path] = out.glob("sr-fca-seed0-*/run.json")
    settings = json.loads(path.read_text())["settings"]
    assert settings["model"] == {"name": "nets_d:network"}
    assert settings["data"] == {"name": "sensors.npz"}


def test_a_change_in_the_package_of_a_model_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide" / "__init__.py").write_text("from wide.net import network")
    write_sensors(tmp_path)
    arguments = (
        "--data", "sensors.npz", "--model", "wide:network", "--methods", "local", "--json",
        "--no-reference",
    )  # fmt: skip
    saved_runs = []
    for width in (4, 4, 8):
        (tmp_path / "wide" / "net.py").write_text(NETWORKS.replace("16", str(width)))
        done = srfca("compare", *arguments, "--set", "steps=1", "--out", "out", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        saved_runs.append(len(list((tmp_path / "out").iterdir())))
    assert saved_runs == [1, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "t.xlsx"], "--table t.xlsx: the name must end with .csv, .md, .tex"),
        (["--table", "/proc/t.csv"], "cannot write to /proc"),
        (["--k", "two"], "--k must be a list of whole numbers"),
        (["--k", "0"], "--k must be one or more numbers from 1 on"),
        (["--k", "2", "--methods", "local"], "k is for methods that need it"),
        (["--methods", ","], "--methods is empty"),
        (["--methods", "local,no_module:Method"], "there is no module 'no_module'"),
        (["--jobs", "0"], "--jobs"),
        (["--fine-tune", "-1"], "--fine-tune"),
    ],
)
def test_invalid_input_is_refused_before_any_run(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "make_federation", Refuse())
    done = CliRunner().invoke(app, ["compare", "rotated-digits", *FAST, *arguments])
    assert done.exit_code != 0
    assert isinstance(done.exception, InputError | SystemExit)
    assert message in str(done.exception) + done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_training_that_failed_is_reported_for_each_run(jobs: str) -> None:
    settings = ["--set", "lr=1e4", "--methods", "LOCAL,Global", "--jobs", jobs]
    done = srfca("compare", "rotated-digits", *FAST, *settings)
    assert done.returncode == 0, done.stderr
    for name in ("Local", "Global"):
        expected = f"srfca: warning: {name} seed 0: training failed: {name} ends with a loss of"
        assert expected in done.stderr
    assert "SrfcaWarning" not in done.stderr


def test_there_is_no_table_if_all_runs_fail() -> None:
    settings = ["--set", "lr=1e30", "--methods", "local,global", "--jobs", "1"]
    done = CliRunner().invoke(app, ["compare", "rotated-digits", *FAST, *settings])
    assert done.exit_code == 2
    assert done.stdout == ""
    reasons = [line for line in done.stderr.splitlines() if line.startswith("srfca: Failed: ")]
    assert ["Local seed 0" in reasons[0], "Global seed 0" in reasons[1]] == [True, True]
    assert done.stderr.count("diverged") == 4, "as it happens, and at the end"


def test_all_options_together(tmp_path: Path) -> None:
    files = [
        word for suffix in tables.FORMATS for word in ("--table", str(tmp_path / f"t{suffix}"))
    ]
    done = srfca(
        "compare", "rotated-digits", *FAST, "--methods", "global,local", "--seeds", "2",
        "--fine-tune", "3", "--equal-budget", "--jobs", "1", *files,
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


def test_an_interrupted_comparison_leaves_no_partial_file(tmp_path: Path) -> None:
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
        assert names <= SAVED
        if "run.json" in names:
            Result.load(folder)


def test_the_answer_of_the_first_method_is_compared_with_the_baselines(tmp_path: Path) -> None:
    methods = ("--methods", "sr-fca,global,local,cfl", "--jobs", "1")
    arguments = ("compare", "rotated-digits", *methods, *QUICK, "--out", str(tmp_path))
    done = srfca(*arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "Clusters of SR-FCA, seed 0" in lines
    [head] = [line for line in lines if line.startswith("| cluster ")]
    assert "points over one model" in head
    assert "points over alone" in head
    assert any(line.startswith("CFL found ") for line in lines)
    [folder] = tmp_path.glob("sr-fca-seed0-*")
    assert lines[-1] == f"A line for each client: {folder / 'clusters.csv'}"
    analysis = Analysis.load(folder)
    assert analysis.reference is not None
    assert analysis.reference.together is not None
    again = srfca(*arguments)
    assert "4 of 4 runs were read from --out." in again.stdout
    assert again.stdout.splitlines()[-2:] == lines[-2:]


def test_a_reference_is_trained_apart_from_the_methods(tmp_path: Path) -> None:
    methods = ("--methods", "sr-fca,local", "--jobs", "1", "--seeds", "2")
    arguments = ("compare", "rotated-digits", *methods, *QUICK, "--out", str(tmp_path))
    done = srfca(*arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert not any(line.startswith("| Global") for line in lines)
    [reference] = [line for line in lines if line.startswith("Reference, apart from")]
    assert "Global (test accuracy " in reference
    assert "Local" not in reference
    assert ", 40 local steps and " in reference
    [head] = [line for line in lines if line.startswith("| cluster ")]
    assert "points over one model" in head
    assert "points over alone" in head
    [gains] = [line for line in lines if line.startswith("Over 2 seeds, test accuracy of SR-FCA ")]
    assert "that of Global" in gains
    assert "that of Local" in gains
    references = sorted((tmp_path / "reference").iterdir())
    assert [path.name[:12] for path in references] == ["global-seed0", "global-seed1"]
    for seed in (0, 1):
        [folder] = tmp_path.glob(f"sr-fca-seed{seed}-*")
        analysis = Analysis.load(folder)
        assert analysis.reference is not None
        assert analysis.reference.source == "runs"
        assert analysis.reference.together is not None
    changed = [path.stat().st_mtime_ns for path in references]
    again = srfca(*arguments)
    assert "4 of 4 runs were read from --out." in again.stdout
    assert again.stdout.splitlines()[-2:] == lines[-2:]
    now = [path.stat().st_mtime_ns for path in references]
    assert now == changed, "they are not repeated"


@pytest.mark.parametrize(
    "arguments",
    [["--methods", "sr-fca", "--no-reference"], ["--methods", "sr-fca", "--json"],
     ["--methods", "fedprox"]],
)  # fmt: skip
def test_no_reference_is_trained_in_vain(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srfca.experiments.answer.TOGETHER", "nothing")
    monkeypatch.setattr("srfca.experiments.compare.TOGETHER", "nothing")
    done = srfca("compare", "rotated-digits", *QUICK, *arguments)
    assert done.returncode == 0, done.stderr
    assert "Reference" not in done.stdout
