"""The example package adds a method and a data set when it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import srfca
from tests.docs.markdown import ROOT

EXAMPLE = ROOT / "examples" / "third_party"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that finds the package, installed into a temporary folder."""
    folder = tmp_path_factory.mktemp("third_party")
    source = shutil.copytree(EXAMPLE, folder / "source")  # a build writes into its sources
    target = folder / "site-packages"
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(target), str(source)], check=True
    )
    paths = [str(target), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def test_list_shows_its_method_and_data_set(installed: dict[str, str], tmp_path: Path) -> None:
    done = srfca("list", cwd=tmp_path, env=installed)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("| fedavgm ")]
    assert "| FedAvgM " in line
    assert "| Hsu et al., 2019 " in line
    assert "| turned_moons " in done.stdout
    assert "`fedavgm`" in srfca("list", "--markdown", cwd=tmp_path, env=installed).stdout
    assert "fedavgm" not in srfca("list", cwd=tmp_path).stdout, "only where it is installed"


def test_its_method_runs_on_its_data_set(installed: dict[str, str], tmp_path: Path) -> None:
    experiment = str(EXAMPLE / "turned-moons.toml")
    arguments = ["--method", "fedavgm", "--quick", "--set", "momentum=0", "--json"]
    done = srfca("run", experiment, *arguments, cwd=tmp_path, env=installed)
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert (metrics["experiment"], metrics["name"]) == ("turned-moons", "FedAvgM")
    assert (metrics["clients"], metrics["true_clusters"]) == (12, 2)
    assert metrics["local_steps"] == 12 * 20
    fedavg = srfca(
        "run", experiment, "--method", "global", "--quick", "--json", cwd=tmp_path, env=installed
    )
    assert metrics["loss"] != json.loads(fedavg.stdout)["loss"], "it has draws of its own"


def test_it_is_compared_with_our_methods(installed: dict[str, str], tmp_path: Path) -> None:
    command = ["compare", str(EXAMPLE / "turned-moons.toml"), "--methods", "sr-fca,fedavgm"]
    done = srfca(*command, "--out", "out", "--jobs", "2", cwd=tmp_path, env=installed)
    assert done.returncode == 0, done.stderr
    assert "| FedAvgM |" in done.stdout
    assert "SR-FCA found 2 clusters of 6, 6 clients" in done.stdout
    again = srfca(*command, "--out", "out", "--json", cwd=tmp_path, env=installed)
    sr_fca, fedavgm = (json.loads(line) for line in again.stdout.splitlines())
    assert sr_fca["accuracy"] > fedavgm["accuracy"] + 0.05
