"""Follow docs/add_a_method.md step by step, as a newcomer would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import code_blocks, run_python

PAGE = "docs/add_a_method.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file that the page writes."""
    folder = tmp_path_factory.mktemp("newcomer")
    [(comment, code)] = [block for block in code_blocks(PAGE, "python") if "file:" in block[0]]
    (folder / comment.removeprefix("file: ")).write_text(code)
    return folder


def test_python_blocks_run(folder: Path) -> None:
    blocks = [code for comment, code in code_blocks(PAGE, "python") if comment == "run"]
    assert len(blocks) == 2
    for code in blocks:
        run_python(["-c", code], folder)


def test_commands_run(folder: Path) -> None:
    commands = [
        line.split()[1:]
        for _, block in code_blocks(PAGE, "")
        for line in block.splitlines()
        if line.startswith("srfca ")
    ]
    assert len(commands) == 2
    for command in commands:
        assert "FedAvgM" in run_python(["-m", "srfca", *command], folder)
