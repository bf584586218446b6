"""Fixtures that several tests use."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("srfca", deadline=None, max_examples=30)
settings.load_profile("srfca")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

UNPACK = Path(__file__).resolve().parents[2] / "shared" / "data" / "unpack.py"
UNPACKED = ("mnist", "cifar10", "femnist", "shakespeare")
"""The data sets that UNPACK writes."""


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with a real data set in it, by name; the test is skipped where there is none.

    The processes of one test session share the folder.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "real-data"
    folder.mkdir(exist_ok=True)

    def find(name: str) -> Path:
        if name not in UNPACKED:
            return find_installed(name, Path(os.environ.get("SRFCA_DATA", folder)))
        if named := os.environ.get("SRFCA_DATA"):
            return Path(named)
        if not UNPACK.exists():
            pytest.skip(f"needs the real {name}: set SRFCA_DATA to a folder that has it")
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = folder / f"{name}.done"
            if not done.exists():
                subprocess.run([sys.executable, str(UNPACK), str(folder), name], check=True)
                done.touch()
        return folder

    return find


def find_installed(name: str, folder: Path) -> Path:
    """The folder, if a data set is in it or is installed with the operating system."""
    from srfca.data.loaders.publication import PUBLICATIONS
    from srfca.errors import InputError

    publication = PUBLICATIONS[name]
    try:
        missing = [path for path, _ in publication.expected_files(folder) if not path.is_file()]
    except InputError as error:
        pytest.skip(str(error))
    if missing:
        pytest.skip(str(publication.missing_files_error([missing[0].name], folder)))
    return folder


@pytest.fixture
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache folder of the test's own."""
    folder = tmp_path / "user-cache"
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(folder / name))
    return folder


@pytest.fixture(autouse=True)
def on_the_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """``device="auto"`` is the CPU, unless a test asks for the GPU."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
