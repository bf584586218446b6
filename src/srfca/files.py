"""Atomic writes: a file is either complete or absent."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from srfca.errors import InputError


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically, replacing an existing one.

    The content goes to a temporary file in the same folder, which is then renamed.

    Args:
        path: The file.
        content: All of its bytes.

    Raises:
        InputError: If the folder or the file cannot be written to.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"cannot write to {path.parent}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"cannot write {path}: {error.strerror}") from error
        raise


def writable_folder(path: Path) -> Path:
    """Create a folder if it is missing, check that it can be written to, and return it.

    Raises:
        InputError: If it cannot be created or written to; the message says why.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror}") from error
    return path
