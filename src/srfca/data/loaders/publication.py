"""Published data sets: their files, where to find or download them, and their hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import Any

from srfca.errors import InputError
from srfca.registry import Registry

ExpectedFiles = Iterable[tuple[Path, Callable[[Path], object]]]
"""Files, each with a function that reads it and raises ``InputError`` if it is damaged."""


@dataclass(frozen=True)
class Download:
    """One file to download.

    Args:
        url: Where to download it from.
        target: Where to put it, relative to the data folder; an archive is unpacked beside it.
        hash: The published hash, ``md5:...`` or ``sha256:...``; None if there is none.
        unpack: Whether it is an archive to unpack.
    """

    url: str
    target: str
    hash: str | None
    unpack: bool = False


@dataclass(frozen=True)
class Publication:
    """A data set as its publisher lays it out.

    Args:
        name: Its name on the command line.
        title: Its name in messages.
        subfolders: Folders of the data folder to search for its files, in this order.
        files: Names or patterns of its files in a subfolder, for messages.
        source: Where to get it, for messages.
        expected_files: Returns the files that should be in a data folder, with their readers;
            raises ``InputError`` if it cannot tell.
        downloads: The files to download; none if it cannot be downloaded directly.
        hashes: Published hashes by file name.
    """

    name: str
    title: str
    subfolders: tuple[str, ...]
    files: tuple[str, ...]
    source: str
    expected_files: Callable[[Path], ExpectedFiles]
    downloads: tuple[Download, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)

    def search_folders(self, folder: Path) -> list[Path]:
        """Return the folders to search for the files.

        Args:
            folder: The data folder.
        """
        return [folder / subfolder if subfolder else folder for subfolder in self.subfolders]

    def missing_files_error(self, files: Sequence[str], folder: Path) -> InputError:
        """Return an error that says which files are missing, and where to get them.

        Args:
            files: Names of the missing files.
            folder: The data folder.
        """
        searched = " or ".join(str(path) for path in self.search_folders(folder))
        command = f"get it with 'srfca data get {self.name}', or from"
        return InputError(
            f"{self.title}: {', '.join(files)} is not in {searched}; "
            f"{command if self.downloads else 'get it:'} {self.source}. "
            "Another data folder can be named with --data-dir or SRFCA_DATA"
        )


def _check_publication(name: str, item: Any) -> Publication:
    """Return an imported object if it is a publication."""
    if not isinstance(item, Publication):
        raise InputError(
            f"data set {name!r} must be a Publication, not of type {type(item).__name__}"
        )
    return item


PUBLICATIONS: Registry[Publication] = Registry(
    "data set", "srfca.data.loaders", "srfca.loaders", _check_publication
)
"""All published data sets by name."""


def register_publication(publication: Publication) -> Publication:
    """Register a published data set under its name.

    Args:
        publication: The description of its files.

    Returns:
        The same object.
    """
    return PUBLICATIONS.add(publication.name, publication)


def matches_hash(path: Path, expected: str) -> bool:
    """Return whether a file has a hash.

    Args:
        path: The file.
        expected: The algorithm and the hash in hexadecimal: ``md5:...`` or ``sha256:...``.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "empty")
        ...     path.touch()
        ...     matches_hash(path, "md5:d41d8cd98f00b204e9800998ecf8427e")
        True
    """
    algorithm = expected.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{file_digest(file, algorithm).hexdigest()}" == expected
