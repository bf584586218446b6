"""The page on models: its Python blocks run as printed, and its commands print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from srfca.registry import is_installed
from tests.docs.markdown import ROOT, code_blocks, run_python


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the blocks of the page have run."""
    folder = tmp_path_factory.mktemp("page")
    blocks = [code for _, code in code_blocks("docs/models.md", "python")]
    printed = run_python(["-c", "\n".join(blocks)], folder)
    assert printed == "['yes' 'no']\n['no' 'yes']\n"
    return folder


def test_the_python_blocks_run_as_printed(folder: Path) -> None:
    names = {path.name for path in (folder / "exported").iterdir()}
    clusters = {"cluster-0.safetensors", "cluster-1.safetensors"}
    assert names == {*clusters, "client-shop-3.pt", "models.json"}


def test_the_commands_print_what_the_page_shows(folder: Path) -> None:
    page = (ROOT / "docs" / "models.md").read_text()
    shown = without_numbers(page)
    has_onnx = is_installed("onnx") and is_installed("onnxscript")
    for command in re.findall(r"^\$ srfca (.*)$", page, re.MULTILINE):
        if "onnx" in command and not has_onnx:
            continue
        printed = run_python(["-m", "srfca", *shlex.split(command)], folder)
        if not command.startswith("run"):
            assert all(without_numbers(line) in shown for line in printed.splitlines()), printed


def without_numbers(text: str) -> str:
    """The text without decimals, whose last digits depend on the machine."""
    return re.sub(r"\d+\.\d+", "#", text)
