"""The data folder, and a cache of the arrays that were parsed from its files.

The cache of a data folder is its subfolder ``.srfca-cache``, or a folder of the user's cache if the
data folder is not writable. An entry is a folder of .npy files with an index of their checksums. It
is written under a temporary name and moved into place, so that it is either complete or absent. An
entry that does not match its index is written again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.errors import InputError

Arrays = dict[str, NDArray[Any]]

FORMAT = 1
"""Version of the cached arrays; increase it when parsing the same files gives other arrays."""


def data_folder(folder: Path | str | None = None) -> Path:
    """Return the folder to search for data.

    Args:
        folder: The folder if it is given explicitly.

    Returns:
        ``folder``, or else the value of ``SRFCA_DATA``, or else the user's cache folder.

    Examples:
        >>> data_folder("downloads").name
        'downloads'
    """
    if folder is not None:
        return Path(folder)
    if from_environment := os.environ.get("SRFCA_DATA"):
        return Path(from_environment)
    return _user_cache()


def cached(
    folder: Path, name: str, files: Sequence[Path], parse: Callable[[], Mapping[str, NDArray[Any]]]
) -> Arrays:
    """Parse files, or return the memory-mapped arrays of an earlier call.

    Writing to the arrays does not change the cache.

    Args:
        folder: The data folder.
        name: The name of the entry; it must tell everything but the files that ``parse`` depends
            on.
        files: The files that are parsed. An entry is valid while their names, sizes and
            modification times do not change.
        parse: Parses the files into arrays by name.

    Returns:
        The arrays by name.

    Raises:
        InputError: If a file cannot be read, or changes during parsing.
    """
    key = _entry_key(folder, name, files)
    cache_folders = _cache_folders(folder)
    for cache_folder in cache_folders:
        arrays = _read_entry(cache_folder / f"{name}-{key}")
        if arrays is not None:
            return arrays
    parsed = dict(parse())
    if _entry_key(folder, name, files) != key:
        raise InputError(f"the files of {name} in {folder} changed while they were read: try again")
    for cache_folder in cache_folders:
        entry = cache_folder / f"{name}-{key}"
        _write_entry(entry, parsed)
        arrays = _read_entry(entry)
        if arrays is not None:
            _remove_outdated(cache_folder, name, entry)
            return arrays
    return parsed


def _user_cache() -> Path:
    """Return the user's cache folder."""
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("srfca"))


def _cache_folders(folder: Path) -> list[Path]:
    """Return the possible cache folders of a data folder, the preferred one first."""
    digest = sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return [folder / ".srfca-cache", _user_cache() / "parsed" / digest]


def _entry_key(folder: Path, name: str, files: Sequence[Path]) -> str:
    """Return a digest of an entry's name and of its files' names, sizes and modification times."""
    parts: list[Any] = [FORMAT, name]
    for file in files:
        try:
            stat = file.stat()
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from error
        parts.append([os.path.relpath(file, folder), stat.st_size, stat.st_mtime_ns])
    return sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _read_entry(entry: Path) -> Arrays | None:
    """Return the arrays of an entry, or None if it is missing or damaged."""
    try:
        index = json.loads((entry / "index.json").read_text("utf-8"))
        arrays = {}
        for name, checksum in index.items():
            array = np.load(entry / f"{name}.npy", mmap_mode="c", allow_pickle=False)
            arrays[name] = np.asarray(array)
            if _checksum(arrays[name]) != checksum:
                return None
    except (OSError, ValueError, EOFError, AttributeError, SyntaxError):
        return None
    return arrays


def _write_entry(entry: Path, arrays: Arrays) -> None:
    """Write an entry atomically; do nothing if the folder is full or not writable."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=entry.parent, prefix=".draft-"))
    except OSError:
        return
    try:
        for name, array in arrays.items():
            np.save(draft / f"{name}.npy", array, allow_pickle=False)
        index = {name: _checksum(array) for name, array in arrays.items()}
        (draft / "index.json").write_text(json.dumps(index), "utf-8")
        if entry.exists():
            os.replace(entry, draft / "damaged")
        os.replace(draft, entry)
        shutil.rmtree(entry / "damaged", ignore_errors=True)
    except OSError:
        pass
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_outdated(cache_folder: Path, name: str, entry: Path) -> None:
    """Remove the entries of the same name that another entry replaces."""
    for candidate in cache_folder.glob(f"{name}-{'?' * 16}"):
        if candidate != entry:
            shutil.rmtree(candidate, ignore_errors=True)


def _checksum(array: NDArray[Any]) -> list[Any]:
    """Return the type, shape and CRC-32 of an array."""
    flat = np.ascontiguousarray(array).reshape(-1)
    content = zlib.crc32(flat.view(np.uint8).data) if flat.size else 0
    return [array.dtype.str, list(array.shape), content]
