from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, code_blocks, run_python

BLOCKS = [code for _, code in code_blocks("README.md", "python")]
EXAMPLES = [ROOT / "examples" / name for name in ("quickstart.py", "own_data.py")]
README = (ROOT / "README.md").read_text()


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


def test_the_table_of_the_readme_finds_its_groups(tmp_path: Path) -> None:
    printed = run_python(["-c", BLOCKS[1]], tmp_path)
    labels = [int(label) for label in re.findall(r": (-?\d+)", printed)]
    assert labels in ([0, 1] * 6, [1, 0] * 6)


def test_readme_quotes_the_answer_of_the_demo(tmp_path: Path) -> None:
    """Figures may differ a little by processor."""
    [methods] = re.findall(r"^DEMO := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    pytest.importorskip("vl_convert")
    command = ["-m", "srfca", "compare", "rotated-digits", "--methods", methods]
    printed = run_python([*command, "--report", "demo.html"], tmp_path)
    quoted = " ".join(line[2:] for line in README.splitlines() if line.startswith("> "))
    [answer] = [line for line in printed.splitlines() if line.startswith("SR-FCA found")]
    words, numbers = words_and_numbers(answer)
    expected_words, expected_numbers = words_and_numbers(quoted)
    assert words == expected_words
    assert numbers == pytest.approx(expected_numbers, abs=5, rel=0.05)
    assert (tmp_path / "demo.html").stat().st_size > 1_000_000


@pytest.mark.slow
def test_readme_shows_what_the_comparison_prints(tmp_path: Path) -> None:
    """Figures may differ a little by processor."""
    [command] = re.findall(r"^\(`srfca (compare [^`]*)`\)$", README, re.MULTILINE)
    shown = README.splitlines()
    printed = run_python(["-m", "srfca", *command.split()], tmp_path).splitlines()
    expected, actual = accuracies(shown), accuracies(printed)
    assert list(expected) == list(actual)
    assert actual == pytest.approx(expected, abs=1.5)


def accuracies(lines: list[str]) -> dict[str, float]:
    """Return the mean test accuracy of each of five methods, from the first table."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    start = next(i for i, row in enumerate(rows) if row[0] == "method")
    column = rows[start].index("test accuracy %")
    return {row[0]: float(row[column].split()[0]) for row in rows[start + 2 : start + 7]}


def words_and_numbers(line: str) -> tuple[str, list[float]]:
    """Separate the numbers of a line from the rest of it."""
    number = r"\d+(?:\.\d+)?"
    words = re.sub(r"[ -]+", " ", re.sub(number, "#", line))
    return words, [float(text) for text in re.findall(number, line)]
