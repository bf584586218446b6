"""``srfca predict`` and ``srfca assign``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.command import QUICK, srfca
from tests.experiments.shops import shops, without, write_csv

KINDS = {f"shop-{number}": number % 2 for number in range(10)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved run on a table of shops."""
    folder = tmp_path_factory.mktemp("shops")
    path = write_csv(folder / "shops.csv", without(shops(KINDS), "spends"))
    columns = ["--data", str(path), "--client", "shop", "--target", "buys"]
    done = srfca("run", *columns, "--input-statistics", "--out", str(folder / "run"))
    assert done.returncode == 0, done.stderr
    return folder / "run"


def new_file(folder: Path, kinds: dict[str, int], *missing: str) -> Path:
    return write_csv(folder / "new.csv", without(shops(kinds, seed=3), "spends", *missing))


def test_known_clients_are_predicted_by_name(run: Path, tmp_path: Path) -> None:
    new = new_file(tmp_path, {"shop-2": 0, "shop-5": 1}, "buys")
    done = srfca("predict", str(run), str(new))
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["client"] for row in rows] == ["shop-2"] * 40 + ["shop-5"] * 40
    assert {row["prediction"] for row in rows} == {"yes", "no"}
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)
    out = tmp_path / "predictions.csv"
    written = srfca("predict", str(run), str(new), "--out", str(out))
    assert written.stdout == f"80 predictions for 2 clients: {out}\n"
    assert out.read_text() == done.stdout


def test_newcomers_are_assigned_before_they_are_predicted(run: Path, tmp_path: Path) -> None:
    done = srfca("predict", str(run), str(new_file(tmp_path, {"late": 0, "shop-5": 1})))
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("srfca: client 'late' is new, and placed in cluster 0, confid")
    assert all(row["prediction"] for row in csv.DictReader(io.StringIO(done.stdout)))
    alike = srfca("predict", str(run), str(new_file(tmp_path, {"late": 0}, "buys")))
    assert alike.returncode == 0, alike.stderr
    assert "client 'late' is in no cluster, and has no predictions: nearly a coin" in alike.stderr
    assert alike.stdout.splitlines()[1] == "late,,"


def test_assign_prints_a_line_for_each_client(run: Path, tmp_path: Path) -> None:
    new = str(new_file(tmp_path, {"late": 0, "later": 1}))
    done = srfca("assign", str(run), new)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:4]] for line in lines[2:4]]
    assert cells == [["late", "0", ">99%"], ["later", "1", ">99%"]]
    assert lines[-1].startswith(
        "Margin: how much larger the loss of the next cluster's model is, rel"
    )
    rows = [
        json.loads(line) for line in srfca("assign", str(run), new, "--json").stdout.split("\n")[:2]
    ]
    assert [(row["client"], row["cluster"], row["next"]) for row in rows] == [
        ("late", 0, 1), ("later", 1, 0),
    ]  # fmt: skip
    by_inputs = srfca("assign", str(run), str(new_file(tmp_path, {"late": 0}, "buys")))
    assert "none" in by_inputs.stdout
    assert "nearly a coin toss between clusters" in by_inputs.stdout
    assert "Margin: how many standard deviations" in by_inputs.stdout


def test_one_model_serves_everybody(run: Path, tmp_path: Path) -> None:
    columns = ["--data", str(run.parent / "shops.csv"), "--client", "shop", "--target", "buys"]
    single = tmp_path / "single"
    done = srfca("run", *columns, "--method", "global", "--out", str(single))
    assert done.returncode == 0, done.stderr
    new = str(new_file(tmp_path, {"late": 0}, "buys"))
    predicted = srfca("predict", str(single), new)
    assert (predicted.returncode, predicted.stderr) == (0, "")
    assert len(predicted.stdout.splitlines()) == 41
    assigned = srfca("assign", str(single), new)
    assert (assigned.returncode, assigned.stderr) == (
        2, "srfca: Global has no clusters to assign clients to\n",
    )  # fmt: skip


def test_statistics_of_inputs_need_clusters_and_a_folder() -> None:
    for arguments, message in (
        (["--method", "local"], "--input-statistics is for methods that find clusters, but Local"),
        ([], "--input-statistics needs --out, a folder to keep it in"),
    ):
        done = srfca("run", "rotated-digits", *QUICK, "--input-statistics", *arguments)
        assert done.returncode == 2
        assert message in done.stderr
