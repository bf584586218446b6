"""The command line as a whole: help, version, list, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from srfca import __version__
from srfca.data import DATASETS
from srfca.experiments import config
from srfca.methods import METHODS
from tests.cli.command import srfca


def test_help_is_fast_and_does_not_import_torch() -> None:
    code = (
        "import sys; sys.argv = ['srfca', '--help']\n"
        "from srfca.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'sklearn' not in sys.modules\n"
        "assert 'rich' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compare" in done.stdout


@pytest.mark.parametrize("command", ["", "run", "compare", "tune", "list", "data", "flower"])
def test_help_is_plain_when_piped(command: str) -> None:
    done = srfca(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: srfca {command}")
    assert "\x1b" not in done.stdout
    assert "─" not in done.stdout
    assert "\\" not in done.stdout


def test_idle_threads_sleep_soon_but_only_in_the_command() -> None:
    """``limit_spinning`` runs before torch is imported, and never by importing srfca."""
    code = (
        "import os, sys\n"
        "import srfca, srfca.cli.app, srfca.threads\n"
        "assert 'GOMP_SPINCOUNT' not in os.environ and 'torch' not in sys.modules\n"
        "sys.argv = ['srfca', '--version']\n"
        "try: srfca.cli.app.main()\n"
        "except SystemExit: pass\n"
        "assert os.environ['GOMP_SPINCOUNT'] == str(srfca.threads.SPIN_COUNT)\n"
        "assert 'torch' not in sys.modules\n"
    )
    hidden = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr


def test_list_shows_experiments_methods_and_data_sets() -> None:
    done = srfca("list")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    for experiment in config.names():
        assert f"| {experiment} " in done.stdout
    for key, method in METHODS.items().items():
        [line] = [line for line in done.stdout.splitlines() if line.startswith(f"| {key} ")][-1:]
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        assert cells[1] == method.name
        assert (cells[2] == "K") == method.needs_k
        assert cells[3] == method.family
    for dataset in DATASETS.keys():  # noqa: SIM118
        assert f"| {dataset} " in done.stdout
    assert "Find the clusters of a federation, without their number" in done.stdout
    assert "Ghosh et al., NeurIPS 2020" in done.stdout


def test_list_as_json_has_all_that_the_tables_have() -> None:
    done = srfca("list", "--json")
    assert done.returncode == 0, done.stderr
    catalog = json.loads(done.stdout)
    assert [experiment["name"] for experiment in catalog["experiments"]] == config.names()
    assert {dataset["key"] for dataset in catalog["datasets"]} == set(DATASETS.keys())
    methods = {method["key"]: method for method in catalog["methods"]}
    assert methods.keys() == METHODS.items().keys()
    assert methods["ifca"]["needs"] == "K"
    assert methods["oracle"]["needs"] == "truth"
    assert methods["sr-fca"]["needs"] is None
    assert METHODS[methods["ifca"]["class"]] is METHODS["ifca"]
    both = srfca("list", "--json", "--markdown")
    assert both.returncode == 2
    assert "not both" in both.stderr


def test_version() -> None:
    assert srfca("--version").stdout == f"srfca {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "rotated-digit"], "did you mean 'rotated-digits'"),
        (["run", "nothing.toml"], "cannot read the experiment nothing.toml"),
        (["run", "rotated-digits", "--set", "trin=0.1"], "did you mean 'trim'"),
        (["run", "rotated-digits", "--set", "k=2"], "SR-FCA has no setting 'k'"),
        (["compare", "rotated-digits", "--methods", "Local", "--set", "k=2"], "Local has no sett"),
        (["tune", "rotated-digits", "--set", "oracle.lr=2"], "because oracle does not run"),
        (["run", "rotated-digits", "--set", "learning_rate=2"], "did you mean 'lr'?"),
        (["run", "rotated-digits", "--set", "trim=0.5"], "trim must be in [0, 0.5), not 0.5"),
        (["run", "rotated-digits", "--set", "threshold=-1"], "threshold must not be negative"),
        (["run", "rotated-digits", "--set", "schedule=lin"], "schedule must be one of constant, "),
        (["run", "rotated-digits", "--set", "min_size=41"], "min_size=41 is more than the 40"),
        (["run", "synthetic", "--set", "num_clients=1", "--set", "clusters=1"], "two clients"),
        (["run", "rotated-digits", "--set", "outputs=5"], "classes 0 to 4"),
        (["run", "rotated-digits", "--set", "inputs=63"], "does not take samples of shape (8, 8)"),
        (["run", "rotated-digits", "--method", "sgd"], "unknown method 'sgd'"),
        (["run", "rotated-digits", "--method", "no_such:M"], "there is no module 'no_such'"),
        (["compare", "rotated-digits", "--methods", ","], "--methods is empty"),
        (["compare", "rotated-digits", "--methods", "local,sfca"], "did you mean 'sr-fca'"),
        (["run", "rotated-digits", "--device", "tpu"], "device 'tpu'"),
        (["run", "rotated-digits", "--out", "/proc/no"], "cannot write to /proc/no"),
        (["run", "rotated-digits", "--set", "lr=1e30"], "diverged"),
        (["run", "rotated-digits", "--seed", "-1"], "'--seed': must be at least 0, not -1"),
        (["run", "rotated-digits", "--seed", "x"], "'--seed': must be a whole number, not 'x'"),
        (["run", "rotated-digits", "--seed", str(2**63)], "'--seed': must be at most"),
        (["run"], "name an experiment ('srfca list' shows them), or give --data"),
        (["run", "synthetic", "--data", "a.npz"], "'synthetic' or --data a.npz, not both"),
        (["compare"], "name an experiment"),
        (["run", "synthetic", "--model", "mlp"], "--model goes with --data"),
        (["run", "synthetic", "--client", "a"], "--client goes with --data"),
        (["run", "synthetic", "--no-standardize"], "--standardize goes with --data"),
        (["run", "--data", "nowhere.npz"], "there is no file or folder nowhere.npz"),
        (["run", "--data", "nowhere.npz", "--quick"], "--quick is for experiments"),
        (["rum"], "No such command 'rum'"),
    ],
)
def test_invalid_input_is_reported_in_one_line(arguments: list[str], message: str) -> None:
    done = srfca(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("Usage", "Try"))]
    assert len([line for line in lines if line]) == 1, "a single line, plain when piped"


def test_data_commands(tmp_path: Path) -> None:
    done = srfca("data", "check", "--data-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("missing") >= 4
    done = srfca("data", "get", "mnits", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "did you mean 'mnist'" in done.stderr
    done = srfca("run", "femnist", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "femnist" in done.stderr
    assert "Traceback" not in done.stderr
