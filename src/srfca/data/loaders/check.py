"""Check which published data sets are present, and whether their files are intact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from srfca.data.loaders.cache import data_folder
from srfca.data.loaders.publication import PUBLICATIONS, Publication, matches_hash
from srfca.errors import InputError

State = Literal["verified", "different", "readable", "damaged", "missing"]
"""The state of a file.

Verified: the published bytes. Different: readable, but not the published bytes. Readable: the
publisher gives no hash to compare with. Damaged: cannot be read.
"""


@dataclass(frozen=True)
class FileStatus:
    """The state of a file.

    Args:
        path: The file.
        state: Its state.
        detail: An explanation of the state, or empty.
    """

    path: Path
    state: State
    detail: str = ""


@dataclass(frozen=True)
class Status:
    """The state of a data set.

    Args:
        name: The data set.
        files: The states of its files.
        problem: Why it cannot be loaded and what to do; empty if it can be loaded.
    """

    name: str
    files: tuple[FileStatus, ...]
    problem: str = ""

    @property
    def usable(self) -> bool:
        """Whether the data set can be loaded."""
        return not self.problem


def check(folder: Path | str | None = None) -> list[Status]:
    """Read all published data sets in the data folder, bypassing the cache.

    Args:
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.

    Returns:
        The state of every data set, by name in alphabetical order.
    """
    folder = data_folder(folder)
    return [status(PUBLICATIONS[name], folder) for name in sorted(PUBLICATIONS.keys())]


def status(publication: Publication, folder: Path) -> Status:
    """Read one published data set, bypassing the cache.

    Args:
        publication: The data set.
        folder: The data folder.
    """
    try:
        expected = list(publication.expected_files(folder))
    except InputError as error:
        return Status(publication.name, (), str(error))
    files = tuple(_file_status(publication, path, read) for path, read in expected)
    missing = [file.path.name for file in files if file.state == "missing"]
    damaged = [file.detail for file in files if file.state == "damaged"]
    problem = damaged[0] if damaged else ""
    if missing:
        problem = str(publication.missing_files_error(missing, folder))
    return Status(publication.name, files, problem)


def _file_status(
    publication: Publication, path: Path, read: Callable[[Path], object]
) -> FileStatus:
    """Return the state of one file."""
    if not path.is_file():
        return FileStatus(path, "missing")
    published = publication.hashes.get(path.name)
    if published is not None and matches_hash(path, published):
        return FileStatus(path, "verified")
    try:
        read(path)
    except InputError as error:
        return FileStatus(path, "damaged", str(error))
    if published is not None:
        return FileStatus(path, "different", "readable, but not the published bytes")
    return FileStatus(path, "readable", "there is no published hash to compare with")
