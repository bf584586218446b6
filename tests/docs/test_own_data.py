"""Follow docs/own_data.md step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import code_blocks, run_python

PAGE = "docs/own_data.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the Python blocks of the page have run, one after the other."""
    folder = tmp_path_factory.mktemp("own_data")
    blocks = [code for _, code in code_blocks(PAGE, "python")]
    (folder / "printed").write_text(run_python(["-c", "\n".join(blocks)], folder))
    return folder


def test_python_blocks_run(folder: Path) -> None:
    labels, accuracy, predicted, estimated = (folder / "printed").read_text().splitlines()
    assert labels.count(": 0") == labels.count(": 1") == labels.count(": 2") == 8
    assert float(accuracy) > 0.9
    assert predicted.startswith("['")
    assert estimated.endswith("[" + " ".join(["0 1 2"] * 8) + "]")


def test_the_comparison_is_as_shown(folder: Path) -> None:
    """The clusters are; figures depend on the processor in the last digit."""
    blocks = [code for _, code in code_blocks(PAGE, "") if code.startswith("$ srfca compare")]
    command, *lines = blocks[0].splitlines()
    printed = run_python(["-m", *command.split()[1:]], folder).splitlines()
    assert lines[-1] in printed
    shown = {line.split("|")[1]: line for line in printed if line.count("|") == 6}
    for line in lines[3:6]:
        printed_line = shown[line.split("|")[1]]
        for expected, cell in zip(
            line.split("|")[3:-1], printed_line.split("|")[3:-1], strict=True
        ):
            assert float(cell) == pytest.approx(float(expected), abs=10)
