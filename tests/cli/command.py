"""The command line as a user runs it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from srfca.cli.app import main

QUICK = ["--set", "steps=40", "--set", "num_clients=12", "--set", "rotations=2"]
"""Options of rotated-digits for a run of about a second."""


def srfca(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command: in this process, unless it needs another folder or environment.

    A new process would take seconds to import torch.
    """
    if cwd is not None or env is not None:
        return subprocess.run(
            [sys.executable, "-m", "srfca", *arguments],
            capture_output=True, text=True, check=False, cwd=cwd, env=env,
        )  # fmt: skip
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings(),
        patch.object(sys, "argv", ["srfca", *arguments]), patch.dict(os.environ),
        patch.object(sys, "path", list(sys.path)),
    ):  # fmt: skip
        warnings.simplefilter("default")
        try:
            main()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
