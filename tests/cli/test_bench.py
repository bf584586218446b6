"""``srfca bench field``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from srfca.cli.app import app
from srfca.errors import InputError
from srfca.experiments import runner
from tests.cli.command import srfca
from tests.experiments.test_saved import Refuse

QUICK = ("bench", "field", "--only", "rotated-digits", "--quick", "--jobs", "1")


def test_one_line_for_each_federation(tmp_path: Path) -> None:
    out, table = ("--out", str(tmp_path / "out")), tmp_path / "t.csv"
    arguments = (*QUICK, "--only", "synthetic", "--seeds", "2", "--fine-tune", "3", *out)
    done = srfca(*arguments, "--table", str(table))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "Mean test accuracy in % or loss of the clients, seeds 0 to 1"
    heads = [cell.strip() for cell in lines[1].strip("|").split("|")]
    assert heads == [
        "federation", "SR-FCA", "Oracle", "Global", "Local", "IFCA", "FedEM", "SR-FCA - best",
        "clusters", "ARI", "doubtful", "local steps",
    ]  # fmt: skip
    names = [line.split("|")[1].strip() for line in lines[3:5]]
    assert names == ["rotated-digits", "synthetic"]
    assert len(table.read_text().splitlines()) == 3
    assert len(done.stderr.splitlines()) == 24
    again = srfca(*arguments)
    assert "24 of 24 runs were read from --out." in again.stdout
    assert again.stdout.splitlines()[:5] == lines[:5]


def test_json_of_each_run() -> None:
    arguments = ("--methods", "local,global", "--seeds", "1", "--seed", "4", "--fine-tune", "0")
    done = srfca(*QUICK, *arguments, "--json")
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(run["method"], run["seed"], run["tuned_accuracy"]) for run in runs] == [
        ("local", 4, None), ("global", 4, None),
    ]  # fmt: skip


def test_a_table_without_sr_fca() -> None:
    done = srfca(*QUICK, "--methods", "local,global", "--seeds", "1", "--fine-tune", "0")
    heads = [cell.strip() for cell in done.stdout.splitlines()[1].strip("|").split("|")]
    assert heads == ["federation", "Local", "Global"]
    assert done.returncode == 0, done.stderr


def test_missing_data_are_skipped(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path), "--methods", "local", "--seeds", "1")
    done = srfca(*QUICK, "--only", "flux-cifar10,fedrc-cifar10", *folder)
    assert done.returncode == 0, done.stderr
    skipped = "Skipped flux-cifar10, fedrc-cifar10: CIFAR-10: "
    assert done.stderr.count(skipped) == done.stdout.count(skipped) == 1
    none = srfca("bench", "field", "--only", "fedrc-cifar10", *folder)
    assert none.returncode == 2
    assert "there is nothing to run: all data sets are missing" in none.stderr


def test_failures_are_reported(tmp_path: Path) -> None:
    (tmp_path / "wild.toml").write_text(
        'quick = ["num_clients=8", "steps=4"]\n[data]\nname = "rotated_digits"\n'
        '[model]\nname = "mlp"\ninputs = 64\nhidden = [8]\noutputs = 10\n'
        "[local_training]\nlr = 1e30\n"
    )
    options = ("--methods", "local", "--seeds", "1", "--quick", "--jobs", "1")
    done = srfca("bench", "field", "--only", str(tmp_path / "wild.toml"), *options)
    assert done.returncode == 2
    assert "Failed: wild, Local seed 0: " in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "noise"], "unknown suite 'noise': choose from skew, flux, fedrc"),
        (["--only", ","], "--only is empty"),
        (["--methods", "sr-fac"], "unknown method 'sr-fac': did you mean 'sr-fca'"),
        (["--table", "t.xlsx"], "--table t.xlsx: the name must end with"),
        (["--seeds", "0"], "--seeds"),
    ],
)
def test_invalid_input_is_refused_before_any_run(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "make_federation", Refuse())
    done = CliRunner().invoke(app, [*QUICK, *arguments])
    assert done.exit_code != 0
    assert isinstance(done.exception, InputError | SystemExit)
    assert message in str(done.exception) + done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("columns", "tables"), [(80, 2), (110, 1), (160, 1)])
def test_tables_fit_the_terminal(
    columns: int, tables: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from srfca.cli.bench import show_report
    from srfca.report.field import lines
    from srfca.report.field_report import FieldReport
    from tests.report.made_up import made_up_run

    names = ("SR-FCA", "Oracle", "Global", "Local", "IFCA", "FedEM")
    runs = [
        made_up_run("sr-fca", seed, 0.8 + 0.01 * seed, tuned_accuracy=0.85, experiment=federation)
        | {"method": name.lower(), "name": name}
        for federation in ("fashion-groups-outliers", "fashion-rotations")
        for name in names
        for seed in (0, 1)
    ]
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "50")
    monkeypatch.setenv("TERM", "dumb")  # no styles
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown = lines(runs, ["fashion-groups-outliers", "fashion-rotations"])
    show_report(FieldReport(shown, "Title", 50), 0, 24)
    text = capsys.readouterr().out
    assert text.count("federation ") == tables
    assert max(map(len, text.splitlines())) <= columns
