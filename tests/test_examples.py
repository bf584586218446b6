from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_every_example_runs(path: Path) -> None:
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "clusters of" in done.stdout


def test_the_readme_shows_what_the_demo_prints() -> None:
    """All but the seconds, which the machine decides."""
    [methods] = re.findall(r"^DEMO := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "srfca", "compare", "rotated-digits", "--methods", methods]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    readme = (ROOT / "README.md").read_text()
    for line in printed.splitlines():
        assert line.rpartition("|")[0].rpartition("|")[0] in readme, line
