"""The notebooks run from top to bottom, and are committed without what they print."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.docs.markdown import ROOT

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
PRINTS = {
    "1_quick_start": ["4 clusters of 10", "the same groups as the turns: True"],
    "2_your_data": ["2 clusters of 15", "temperature"],
    "3_sr_fca_step_by_step": ["misclustered: 3", "misclustered: 0", "the true ones: True"],
    "4_compare_for_a_paper": ["| SR-FCA |", "\\toprule"],
}
"""What each must print, so that its text stays true."""


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def test_all_notebooks_are_tested() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(PRINTS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_output_is_committed(path: Path) -> None:
    book = read(path)
    nbformat.validate(book)
    for cell in book.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
    assert set(book.metadata) == {"kernelspec", "language_info"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run it as ``jupyter execute`` does, in an empty folder."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for package in ("matplotlib", "pandas"):
        pytest.importorskip(package)
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    from nbclient import NotebookClient

    book = read(path)
    folder = tmp_path / "work"
    folder.mkdir()
    NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    outputs = [out for cell in book.cells if cell.cell_type == "code" for out in cell.outputs]
    assert not [out for out in outputs if out.get("name") == "stderr"], "no warnings"
    text = "".join(
        str(out.get("text", "")) + "".join(str(shown) for shown in out.get("data", {}).values())
        for out in outputs
    )
    for words in PRINTS[path.stem]:
        assert words in text
