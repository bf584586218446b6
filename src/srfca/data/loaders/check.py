"""What of the data sets is there, and in which state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from srfca.data.loaders import cifar10, femnist, leaf, mnist, parquet, shakespeare
from srfca.data.loaders.registry import DATA_SETS, DataSet, missing
from srfca.data.loaders.store import data_folder, file_hash
from srfca.errors import InputError

State = Literal["verified", "different", "readable", "damaged", "missing"]
"""Verified: the published bytes. Different: readable, but not the published bytes. Readable: the
publisher gives no hash to compare with. Damaged: cannot be read."""


@dataclass(frozen=True)
class FileStatus:
    """The state of a file."""

    path: Path
    state: State
    detail: str = ""


@dataclass(frozen=True)
class Status:
    """The state of a data set."""

    name: str
    files: tuple[FileStatus, ...]
    problem: str = ""
    """Why the data set cannot be loaded, and what to do; empty where it can."""

    @property
    def usable(self) -> bool:
        """Whether the data set can be loaded."""
        return not self.problem


def check(folder: Path | str | None = None) -> list[Status]:
    """The state of every data set in the data folder. All that is there is read, past the cache."""
    folder = data_folder(folder)
    return [status(data, folder) for data in DATA_SETS.values()]


def status(data: DataSet, folder: Path) -> Status:
    """The state of one data set."""
    try:
        expected = list(_EXPECTED[data.name](folder))
    except InputError as error:
        return Status(data.name, (), str(error))
    files = tuple(_file(data, path, read) for path, read in expected)
    absent = [file.path.name for file in files if file.state == "missing"]
    damaged = [file.detail for file in files if file.state == "damaged"]
    problem = str(missing(data, absent, folder)) if absent else damaged[0] if damaged else ""
    return Status(data.name, files, problem)


def _file(data: DataSet, path: Path, read: Callable[[Path], object]) -> FileStatus:
    if not path.is_file():
        return FileStatus(path, "missing")
    known = data.hashes.get(path.name)
    if known is not None and file_hash(path, known.partition(":")[0]) == known:
        return FileStatus(path, "verified")
    try:
        read(path)
    except InputError as error:
        return FileStatus(path, "damaged", str(error))
    if known is not None:
        return FileStatus(path, "different", "readable, but not the published bytes")
    return FileStatus(path, "readable", "there is no published hash to compare with")


Expected = Iterator[tuple[Path, Callable[[Path], object]]]


def _mnist(folder: Path) -> Expected:
    for part, path in mnist.located(folder).items():
        yield path, mnist.read_images if part.endswith("_x") else mnist.read_labels


def _cifar10(folder: Path) -> Expected:
    for path in cifar10.located(folder):
        yield path, cifar10.read_batch


def _femnist(folder: Path) -> Expected:
    train, test, tables = femnist.find(folder)
    for path in (*train, *test):
        yield path, lambda path: leaf.read_part([path], leaf.IMAGES)
    for path in tables:
        yield path, lambda path: parquet.femnist([path])


def _shakespeare(folder: Path) -> Expected:
    text = shakespeare.find_text(folder)
    if text is not None:
        yield text, shakespeare.read
        return
    train, test, tables = shakespeare.find_samples(folder)
    for path in (*train, *test):
        yield path, lambda path: leaf.read_part([path], leaf.TEXT)
    for path in tables:
        yield path, lambda path: parquet.shakespeare([path])


_EXPECTED: dict[str, Callable[[Path], Expected]] = {
    "mnist": _mnist,
    "cifar10": _cifar10,
    "femnist": _femnist,
    "shakespeare": _shakespeare,
}
"""The files of each data set, with what reads them."""
