from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, code_blocks, run_python

BLOCKS = [code for _, code in code_blocks("README.md", "python")]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_of_the_readme_run_as_printed(code: str, tmp_path: Path) -> None:
    assert run_python(["-c", code], tmp_path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(path: Path, tmp_path: Path) -> None:
    assert "clusters of" in run_python([str(path)], tmp_path)


def test_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    """Except for the seconds, which depend on the machine."""
    [methods] = re.findall(r"^DEMO := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = ["-m", "srfca", "compare", "rotated-digits", "--methods", methods]
    readme = (ROOT / "README.md").read_text()
    for line in run_python(command, tmp_path).splitlines():
        assert line.rpartition("|")[0].rpartition("|")[0] in readme, line
