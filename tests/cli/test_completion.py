"""Completion of commands and names by the shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from srfca.cli import completion
from srfca.experiments import config
from srfca.methods import METHODS


def test_names_are_those_of_the_registries() -> None:
    assert completion.experiments("") == sorted(config.names())
    assert completion.methods("") == sorted(METHODS.keys())


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "candidates"),
    [
        ("srfca rep", {"report", "reproduce"}),
        ("srfca run rotated-d", {"rotated-digits"}),
        ("srfca run rotated-digits --method sr-", {"sr-fca", "sr-fca-literal"}),
        ("srfca compare synthetic --methods local,fedsof", {"local,fedsoft"}),
        ("srfca data g", {"get"}),
    ],
)
def test_bash_completes(line: str, candidates: set[str], tmp_path: Path) -> None:
    """The script that ``--show-completion bash`` prints works in bash."""
    program = tmp_path / "srfca"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m srfca "$@"\n')
    program.chmod(0o755)
    script = f"""
        eval "$(_SRFCA_COMPLETE=source_bash srfca)"
        COMP_WORDS=({line}); COMP_CWORD=$(({len(line.split())} - 1))
        _srfca_completion srfca
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, env=env
    )
    assert set(done.stdout.split()) == candidates


def test_completion_does_not_import_torch() -> None:
    code = (
        "import sys\n"
        "from srfca.cli import app, completion\n"
        "assert completion.methods('') and completion.experiments('')\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
