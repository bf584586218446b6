from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from srfca.errors import InputError
from srfca.files import replace_file, writable_folder


def test_replace_file_overwrites_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    replace_file(path, b"old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    replace_file(path, b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot write .*result\.json: No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["result.json"]


def test_folders_that_cannot_be_written_to_are_refused(tmp_path: Path) -> None:
    assert writable_folder(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write to"):
        writable_folder(tmp_path / "file")
    with pytest.raises(InputError, match="cannot write to"):
        replace_file(tmp_path / "missing" / "file", b"")


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    replace_file(path, b"old")

    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["result.json"]


def test_files_follow_the_umask(tmp_path: Path) -> None:
    for mask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        before = os.umask(mask)
        try:
            replace_file(tmp_path / "result.json", b"")
        finally:
            os.umask(before)
        assert (tmp_path / "result.json").stat().st_mode & 0o777 == mode


def test_the_folder_is_synced_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []

    def sync(handle: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(handle).st_mode))

    monkeypatch.setattr(os, "fsync", sync)
    replace_file(tmp_path / "result.json", b"new")
    assert synced == [False, True]
