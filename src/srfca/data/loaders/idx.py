"""Load gray images of 28 x 28 pixels from four idx files, gzipped or not, as MNIST is published."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.loaders.cache import cached, data_folder
from srfca.data.loaders.images import Images
from srfca.data.loaders.publication import Download, ExpectedFiles, Publication
from srfca.errors import InputError, require

FILES = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}
"""File names by the field of ``Images`` that they hold."""
_MAX_GZIP_RATIO = 1100
"""Upper bound of a gzip file's compression ratio: deflate's limit is 1032."""
_CLASSES = 10


@dataclass(frozen=True)
class IdxImages:
    """A data set of four idx files: images and classes 0 to 9, for training and for testing.

    Args:
        name: Its name on the command line.
        title: Its name in messages.
        subfolders: Folders of the data folder to search for its files, in this order. Downloads go
            to the first one. An absolute path stands for itself: a place of the operating system.
        url: The folder that its publisher offers the files in, with a slash at its end.
        hashes: Published hashes of the gzipped files, by file name.
    """

    name: str
    title: str
    subfolders: tuple[str, ...]
    url: str
    hashes: Mapping[str, str]

    @cached_property
    def publication(self) -> Publication:
        """Its files, and where they are published."""
        return Publication(
            name=self.name,
            title=self.title,
            subfolders=self.subfolders,
            files=tuple(self.hashes),
            source=self.url,
            expected_files=self._expected_files,
            downloads=tuple(
                Download(f"{self.url}{name}", f"{self.subfolders[0]}/{name}", published)
                for name, published in self.hashes.items()
            ),
            hashes=self.hashes,
        )

    def load(self, folder: Path | str | None = None) -> Images:
        """Load all images ``[n, 28, 28]``, white on black, with their classes.

        Args:
            folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.

        Raises:
            InputError: If a file is missing or damaged; the message names it.
        """
        folder = data_folder(folder)
        paths = self.find(folder)
        arrays = cached(folder, self.name, list(paths.values()), lambda: self._parse(paths))
        return Images(**arrays)

    def find(self, folder: Path) -> dict[str, Path]:
        """Return the four files by the field of ``Images`` that they hold.

        Raises:
            InputError: If a file is missing.
        """
        paths = self.expected_paths(folder)
        missing = [path.name for path in paths.values() if not path.is_file()]
        if missing:
            raise self.publication.missing_files_error(missing, folder)
        return paths

    def expected_paths(self, folder: Path) -> dict[str, Path]:
        """Return where the four files are, or should be."""
        folders = self.publication.search_folders(folder)
        paths = {}
        for part, name in FILES.items():
            candidates = [path / full for path in folders for full in (f"{name}.gz", name)]
            paths[part] = next((path for path in candidates if path.is_file()), candidates[0])
        return paths

    def read_images(self, path: Path) -> NDArray[np.uint8]:
        """Read the images of an idx3 file, ``[n, 28, 28]``.

        Raises:
            InputError: If the file is damaged or not one of this data set.
        """
        images = self._read(path, 3)
        require(
            images.shape[1:] == (28, 28),
            f"{path}: images of {images.shape[1]} x {images.shape[2]} pixels, not 28 x 28: "
            f"this is not a file of {self.title}",
        )
        return images

    def read_labels(self, path: Path) -> NDArray[np.int64]:
        """Read the classes of an idx1 file, ``[n]``.

        Raises:
            InputError: If the file is damaged or not one of this data set.
        """
        labels = self._read(path, 1)
        require(
            int(labels.max()) < _CLASSES,
            f"{path}: label {labels.max()} is not a class from 0 to {_CLASSES - 1}; {self._advice}",
        )
        return labels.astype(np.int64)

    @property
    def _advice(self) -> str:
        """What to do about a file that cannot be read."""
        command = f"srfca data get {self.name}"
        return f"the file is damaged or another one: get it again with '{command}'"

    def _parse(self, paths: dict[str, Path]) -> dict[str, NDArray[Any]]:
        """Read the four files, and check that there are as many labels as images."""
        arrays: dict[str, NDArray[Any]] = {
            part: self.read_images(path) if part.endswith("_x") else self.read_labels(path)
            for part, path in paths.items()
        }
        for split in ("train", "test"):
            x, y = len(arrays[f"{split}_x"]), len(arrays[f"{split}_y"])
            require(
                x == y,
                f"{paths[f'{split}_x']} has {x} images, but {paths[f'{split}_y']} has {y} labels: "
                "they do not belong together",
            )
        return arrays

    def _read(self, path: Path, dimensions: int) -> NDArray[np.uint8]:
        """Read an idx file, gzipped or not."""
        try:
            with path.open("rb") as file:
                zipped = file.read(2) == b"\x1f\x8b"
                size = file.seek(0, 2)
                file.seek(0)
                if not zipped:
                    return _read_idx(file, dimensions, size)
                with gzip.open(file) as content:
                    return _read_idx(content, dimensions, size * _MAX_GZIP_RATIO)
        except (OSError, EOFError, zlib.error, struct.error, InputError) as error:
            problem = str(error) or type(error).__name__
            raise InputError(f"{path}: {problem}; {self._advice}") from error

    def _expected_files(self, folder: Path) -> ExpectedFiles:
        """Yield the four files with their readers."""
        for part, path in self.expected_paths(folder).items():
            yield path, self.read_images if part.endswith("_x") else self.read_labels


def _read_idx(
    file: IO[bytes] | gzip.GzipFile, dimensions: int, max_length: int
) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes that has at most ``max_length`` bytes.

    Raises:
        InputError: If it is not such a file; the message says what is wrong with it.
    """
    magic, expected = file.read(4), bytes([0, 0, 8, dimensions])
    require(magic == expected, f"begins with {magic.hex(' ')}, not with {expected.hex(' ')}")
    shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
    length = int(np.prod([int(n) for n in shape], dtype=object))
    require(length > 0, "has nothing in it")
    too_short = f"is shorter than the {length} bytes that its header announces"
    require(length <= max_length, too_short)
    content = file.read(length)
    while len(content) < length and (chunk := file.read(length - len(content))):
        content += chunk
    require(len(content) == length, too_short)
    require(not file.read(1), f"is longer than the {length} bytes that its header announces")
    return np.frombuffer(content, np.uint8).reshape(shape)
