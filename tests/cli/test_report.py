"""``srfca report``, ``srfca figure`` and ``--report``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from srfca.experiments.views import read_view, read_views
from tests.cli.command import QUICK, srfca


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved run with a report."""
    folder = tmp_path_factory.mktemp("run")
    done = srfca(
        "run", "rotated-digits", *QUICK, "--curves", "5", "--out", str(folder / "out"),
        "--report", str(folder / "page.html"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"Report: {folder / 'page.html'}" in done.stdout
    return folder


def test_a_run_writes_a_report(run: Path) -> None:
    page = (run / "page.html").read_text()
    assert "<title>rotated-digits, SR-FCA, seed 0</title>" in page
    assert "What differs" in page
    assert srfca("report", str(run / "out")).stdout == f"Report: {run / 'out' / 'report.html'}\n"
    again = (run / "out" / "report.html").read_text()
    assert len(again) == pytest.approx(len(page), rel=0.01)
    elsewhere = run / "elsewhere.html"
    assert srfca("report", str(run / "out"), "-o", str(elsewhere)).returncode == 0
    assert elsewhere.exists()


def test_views_have_what_is_saved(run: Path) -> None:
    view = read_view(run / "out")
    assert view.truth is not None
    assert view.partition == view.truth
    assert view.clients.samples is not None
    assert len(view.clients.samples) == 12
    assert view.clients.accuracy is not None
    assert view.clients.accuracy.mean() == pytest.approx(view.metrics["accuracy"])
    assert view.analysis is not None
    assert {"srfca", "python", "torch"} <= set(view.versions)
    (run / "bare").mkdir()
    for name in ("result.json", "tensors.safetensors"):
        (run / "bare" / name).write_bytes((run / "out" / name).read_bytes())
    (bare,) = read_views(run / "bare")
    assert bare.clients.split == "validation", "what the history knows"
    assert srfca("report", str(run / "bare")).returncode == 0


def test_figures_are_listed_and_written(run: Path) -> None:
    listed = srfca("figure", str(run / "out"), "--list").stdout
    assert "map          Map of the clients" in listed
    path = run / "map.pdf"
    done = srfca("figure", str(run / "out"), "map", "-o", str(path), "--width", "300")
    assert done.stdout == f"Figure: {path}\n"
    assert path.read_bytes().startswith(b"%PDF")
    wrong = srfca("figure", str(run / "out"), "mapp")
    assert wrong.returncode == 2
    assert "did you mean 'map'?" in wrong.stderr
    assert "--list" in srfca("figure", str(run / "out")).stderr


def test_a_comparison_writes_a_report_also_without_saving_runs(tmp_path: Path) -> None:
    page, out = tmp_path / "page.html", tmp_path / "out"
    command = ["compare", "rotated-digits", *QUICK, "--methods", "global,local", "--jobs", "1"]
    done = srfca(*command, "--report", str(page))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"Report: {page}\n")
    text = page.read_text()
    assert "Methods side by side" in text
    assert 'id="run1"' in text
    assert list(tmp_path.iterdir()) == [page], "the runs themselves are not kept"
    srfca(*command, "--out", str(out))
    assert srfca("report", str(out)).returncode == 0
    listed = srfca("figure", str(out), "--list").stdout
    assert "Which method serves clients best" in listed


def test_wrong_paths_are_errors_before_anything_runs(tmp_path: Path) -> None:
    done = srfca("run", "rotated-digits", "--report", str(tmp_path / "page.pdf"))
    assert done.returncode == 2
    assert "must end with .html" in done.stderr
    assert "is not a folder" in srfca("report", str(tmp_path / "nothing")).stderr
    assert "holds no result" in srfca("report", str(tmp_path)).stderr


def test_a_damaged_run_is_an_error(run: Path, tmp_path: Path) -> None:
    for path in (run / "out").glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    content = json.loads((tmp_path / "run.json").read_text())
    del content["versions"]
    (tmp_path / "run.json").write_text(json.dumps(content))
    done = srfca("report", str(tmp_path))
    assert done.returncode == 2
    assert "run.json is damaged" in done.stderr


def test_without_the_packages_the_error_names_the_extra(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("srfca.report.page")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    done = srfca("report", str(run / "out"))
    assert done.returncode == 2
    assert "pip install 'srfca[report]'" in done.stderr


def test_a_comparison_that_is_not_kept_names_no_file_of_clusters(tmp_path: Path) -> None:
    arguments = ["compare", "synthetic", "--quick", "--methods", "sr-fca", "--report", "c.html"]
    done = srfca(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "A line for each client" not in done.stdout
    assert done.stdout.rstrip().endswith("Report: c.html")
