"""The command line in a process of its own, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

QUICK = ["--set", "steps=40", "--set", "num_clients=12", "--set", "rotations=2"]
"""Options of rotated-digits for a run of about a second."""


def srfca(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "srfca", *arguments],
        capture_output=True, text=True, check=False, cwd=cwd, env=env,
    )  # fmt: skip
