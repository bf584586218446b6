"""Locks on folders: one process at a time writes a run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from srfca.errors import InputError
from srfca.files import remove_temporary_files, writable_folder

LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Lock a folder for this process, and remove temporary files of processes that were killed.

    The system releases the lock when the process ends, however that happens. A file system without
    locks gets none. A folder that was created for the lock, and is still empty, is removed.

    Args:
        folder: The folder, which is created if it is missing.

    Yields:
        The folder.

    Raises:
        InputError: If another process has locked it, or it cannot be written to.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as home, locked(Path(home, "run")) as folder:
    ...     print([path.name for path in folder.iterdir()])
    ['.lock']
    """
    is_new = not folder.exists()
    path = writable_folder(folder) / LOCK_FILE
    handle = _open_locked(path)
    try:
        remove_temporary_files(folder)
        yield folder
    finally:
        path.unlink(missing_ok=True)  # before the lock is released: nobody else can hold it
        os.close(handle)
        if is_new:
            with suppress(OSError):  # of a folder that is not empty
                folder.rmdir()


def _open_locked(path: Path) -> int:
    """Open and lock a file, and write the number of this process into it."""
    while True:
        try:
            handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        except OSError as error:
            raise InputError(f"cannot write to {path.parent}: {error.strerror}") from error
        try:
            with suppress(OSError):  # of a file system that has no locks
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise _in_use(path, handle) from None
            if _is_current(path, handle):
                with suppress(OSError):  # of a full disk
                    os.ftruncate(handle, 0)
                    os.write(handle, str(os.getpid()).encode())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # the one that had it before has just removed it


def _is_current(path: Path, handle: int) -> bool:
    """Return whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _in_use(path: Path, handle: int) -> InputError:
    process = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
    named = f"process {process}" if process.isdigit() else "another process"
    return InputError(
        f"{path.parent} is in use by {named}: wait until it has ended, or choose another folder"
    )
