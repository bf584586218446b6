"""Where data is looked for, and a cache of what was parsed from it.

The cache of a data folder is its subfolder ``.srfca-cache``, or a folder of the user's cache where
the data folder cannot be written to. An entry is a folder of .npy files and an index with their
checksums. It is written under another name and moved into place, so that it is there whole or not
at all; an entry that does not agree with its index is written anew.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.errors import InputError

Arrays = dict[str, NDArray[Any]]

FORMAT = 1
"""Goes up when what is stored for the same files changes."""


def data_folder(given: Path | str | None = None) -> Path:
    """The folder that data is looked for in: given, or ``SRFCA_DATA``, or the user's cache."""
    if given is not None:
        return Path(given)
    if named := os.environ.get("SRFCA_DATA"):
        return Path(named)
    return _user_cache()


def cached(
    folder: Path, name: str, files: Sequence[Path], parse: Callable[[], Mapping[str, NDArray[Any]]]
) -> Arrays:
    """What ``parse`` gives for these files of a data folder, memory-mapped after the first time.

    The arrays may be written to; the cache is not changed by it.

    Args:
        folder: The data folder.
        name: What the entry is called; it must name everything else that ``parse`` depends on.
        files: The files that are parsed. An entry is used while their names, sizes and times of
            change stay as they are.
        parse: Parses the files into arrays by name.
    """
    key = _key(folder, name, files)
    homes = _homes(folder)
    for home in homes:
        arrays = _read(home / f"{name}-{key}")
        if arrays is not None:
            return arrays
    parsed = dict(parse())
    if _key(folder, name, files) != key:
        raise InputError(f"the files of {name} in {folder} changed while they were read: try again")
    for home in homes:
        entry = home / f"{name}-{key}"
        _write(entry, parsed)
        arrays = _read(entry)
        if arrays is not None:
            _remove_older(home, name, entry)
            return arrays
    return parsed


def file_hash(path: Path, algorithm: str) -> str:
    """A file's hash as the registry writes it, ``md5:...`` or ``sha256:...``."""
    with path.open("rb") as file:
        return f"{algorithm}:{file_digest(file, algorithm).hexdigest()}"


def _user_cache() -> Path:
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("srfca"))


def _homes(folder: Path) -> list[Path]:
    elsewhere = sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return [folder / ".srfca-cache", _user_cache() / "parsed" / elsewhere]


def _key(folder: Path, name: str, files: Sequence[Path]) -> str:
    facts: list[Any] = [FORMAT, name]
    for file in files:
        try:
            stat = file.stat()
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from error
        facts.append([os.path.relpath(file, folder), stat.st_size, stat.st_mtime_ns])
    return sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _read(entry: Path) -> Arrays | None:
    """The arrays of an entry, or None where it is missing or damaged."""
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


def _write(entry: Path, arrays: Arrays) -> None:
    """Write an entry in one move, or nothing where there is no room or no right to."""
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


def _remove_older(home: Path, name: str, entry: Path) -> None:
    for other in home.glob(f"{name}-{'?' * 16}"):
        if other != entry:
            shutil.rmtree(other, ignore_errors=True)


def _checksum(array: NDArray[Any]) -> list[Any]:
    flat = np.ascontiguousarray(array).reshape(-1)
    content = zlib.crc32(flat.view(np.uint8).data) if flat.size else 0
    return [array.dtype.str, list(array.shape), content]
