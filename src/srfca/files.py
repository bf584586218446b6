"""Atomic writes: a file is either complete or absent, also after a loss of power."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from srfca.errors import InputError

_TEMPORARY = ".tmp"
"""How the names of temporary files end; they begin with a dot."""


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically, replacing an existing one.

    The content goes to a temporary file in the same folder, which is then renamed. Its permissions
    follow the umask.

    Args:
        path: The file.
        content: All of its bytes.

    Raises:
        InputError: If the folder or the file cannot be written to.
    """
    draft = path.parent / f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY}"
    try:
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except OSError as error:
        raise InputError(f"cannot write to {path.parent}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        _sync_folder(path.parent)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"cannot write {path}: {error.strerror}") from error
        raise


def remove_temporary_files(folder: Path) -> None:
    """Remove temporary files that killed processes left in a folder, as far as possible."""
    with suppress(OSError):
        for path in folder.glob(f".*{_TEMPORARY}"):
            path.unlink(missing_ok=True)


def writable_folder(path: Path) -> Path:
    """Create a folder if it is missing, check that it can be written to, and return it.

    Raises:
        InputError: If it cannot be created or written to; the message says why.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise InputError(f"cannot write to {path}: {_reason(error)}") from error
    return path


def _reason(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error)


def _sync_folder(folder: Path) -> None:
    """Make a renamed file survive a loss of power; not every file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
