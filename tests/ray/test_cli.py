"""The command line on a Ray cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("ray")

from tests.cli.command import QUICK, srfca
from tests.ray.cluster import LocalCluster


@pytest.mark.slow
def test_run_on_a_cluster_finds_what_run_here_finds(cluster: LocalCluster, tmp_path: Path) -> None:
    options = ["rotated-digits", *QUICK, "--json", "--no-differences"]
    here = srfca("run", *options)
    done = srfca("run", *options, "--ray", cluster.address, "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    expected, metrics = json.loads(here.stdout), json.loads(done.stdout)
    for name in ("num_clusters", "misclustering", "local_steps_per_client"):
        assert metrics.get(name) == expected.get(name)
    assert metrics["accuracy"] == pytest.approx(expected["accuracy"], abs=0.01)
    assert (tmp_path / "run" / "clusters.csv").exists()


@pytest.mark.slow
def test_compare_spreads_its_runs(cluster: LocalCluster, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    options = ["rotated-digits", "--methods", "sr-fca,local", *QUICK, "--no-reference", "--json"]
    done = srfca("compare", *options, "--ray", cluster.address, "--out", str(out))
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [run["method"] for run in runs] == ["sr-fca", "local"]
    assert len(list(out.glob("*seed0*"))) == 2


def test_options_that_do_not_go_with_a_cluster() -> None:
    options = ["compare", "rotated-digits", *QUICK, "--ray", "local"]
    assert "--jobs is for this machine" in srfca(*options, "--jobs", "2").stderr
    assert "needs --out" in srfca(*options, "--report", "page.html").stderr


def test_a_run_is_resumed_on_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # other tests are connected
    options = ["rotated-digits", *QUICK, "--out", str(tmp_path), "--journal"]
    lost = srfca("run", *options, "--ray", "127.0.0.1:1")
    assert "there is no Ray cluster at '127.0.0.1:1'" in lost.stderr
    again = srfca("resume", str(tmp_path), "--ray", "127.0.0.1:2")
    assert "there is no Ray cluster at '127.0.0.1:2'" in again.stderr
    assert "there is no Ray cluster at '127.0.0.1:2'" in srfca("resume", str(tmp_path)).stderr
