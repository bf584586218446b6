"""Read the code blocks of Markdown pages, and run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import srfca

ROOT = Path(__file__).resolve().parents[2]


def code_blocks(page: str, language: str) -> list[tuple[str, str]]:
    """Return the blocks of a language, each with the HTML comment on the line before it, if any."""
    blocks, comment, opened = [], "", ""
    lines: list[str] = []
    for line in (ROOT / page).read_text().splitlines(keepends=True):
        if not opened and line.startswith("```"):
            opened, lines = line.strip(), []
        elif opened and line.startswith("```"):
            if opened == f"```{language}":
                blocks.append((comment, "".join(lines)))
            opened = ""
        elif opened:
            lines.append(line)
            continue
        else:
            match = re.fullmatch(r"<!-- (.*) -->", line.strip())
            comment = match[1] if match else ""
    return blocks


def run_python(arguments: list[str], folder: Path) -> str:
    """Run Python in a folder, with this srfca, and return what it prints."""
    paths = [str(folder), str(Path(srfca.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
