from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from srfca.errors import InputError
from srfca.locks import LOCK_FILE, locked

HOLD = """
import sys
from pathlib import Path
from srfca.locks import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_one_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path) as folder:
        assert folder == tmp_path
        with pytest.raises(InputError, match=f"is in use by process {os.getpid()}: wait until"):
            locked(tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path):
        pass


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(InputError, match=f"in use by process {process.pid}"):
            locked(tmp_path).__enter__()
        process.kill()
        process.wait()
    assert (tmp_path / LOCK_FILE).exists(), "it was killed before it could remove the file"
    (tmp_path / ".result.json.0a1b2c3d.tmp").write_text("half")
    with locked(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]


def test_a_new_folder_that_stays_empty_is_removed(tmp_path: Path) -> None:
    with locked(tmp_path / "empty"):
        pass
    with locked(tmp_path / "used") as folder:
        (folder / "result.json").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["used"]


def test_a_folder_that_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write to"):
        locked(tmp_path / "file").__enter__()
