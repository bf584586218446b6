from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, code_blocks, run_python

BLOCKS = [code for _, code in code_blocks("README.md", "python")]
EXAMPLES = [ROOT / "examples" / name for name in ("quickstart.py", "own_data.py")]


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_of_the_readme_run_as_printed(code: str, tmp_path: Path) -> None:
    assert run_python(["-c", code], tmp_path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(path: Path, tmp_path: Path) -> None:
    assert "clusters of" in run_python([str(path)], tmp_path)


def test_a_frozen_transformer_trains_its_adapters_alone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "frozen_transformer.py", tmp_path)
    code = "import frozen_transformer; frozen_transformer.main(num_clients=10, steps=10)"
    printed = run_python(["-c", code], tmp_path)
    assert "151,690 in the network, 5,258 trained (3.5%)" in printed
    assert "clusters of" in printed


def test_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    """Figures may differ a little by processor, and seconds by much."""
    [methods] = re.findall(r"^DEMO := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    pytest.importorskip("vl_convert")
    command = ["-m", "srfca", "compare", "rotated-digits", "--methods", methods]
    command += ["--report", "demo.html"]
    shown = [words_and_numbers(line) for line in (ROOT / "README.md").read_text().splitlines()]
    for line in run_python(command, tmp_path).splitlines():
        words, numbers = words_and_numbers(line)
        assert any(
            words == other and numbers == pytest.approx(others, abs=5, rel=0.05)
            for other, others in shown
        ), line
    assert (tmp_path / "demo.html").stat().st_size > 1_000_000


def words_and_numbers(line: str) -> tuple[str, list[float]]:
    """Separate the numbers of a line, except the seconds of a run, from the rest of it."""
    if line.startswith("|") and len(line.split("|")) == 10 and not line.endswith("1.00 |"):
        line = line.rstrip("| ").rpartition("|")[0]
    number = r"\d+(?:\.\d+)?"
    words = re.sub(r"[ -]+", " ", re.sub(number, "#", line))
    return words, [float(text) for text in re.findall(number, line)]
