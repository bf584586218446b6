"""Load MNIST from its four idx files, gzipped or not."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.loaders.cache import cached, data_folder
from srfca.data.loaders.images import Images
from srfca.data.loaders.publication import (
    Download,
    ExpectedFiles,
    Publication,
    register_publication,
)
from srfca.errors import InputError, require

_FILES = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}
"""File names by the field of ``Images`` that they hold."""
_HASHES = {
    "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_MAX_GZIP_RATIO = 1100
"""Upper bound of a gzip file's compression ratio: deflate's limit is 1032."""
_ADVICE = "the file is damaged or another one: get it again with 'srfca data get mnist'"


def load(folder: Path | str | None = None) -> Images:
    """Load all images ``[n, 28, 28]``, white ink on black, with their digits.

    Args:
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.

    Raises:
        InputError: If a file is missing or damaged; the message names it.
    """
    folder = data_folder(folder)
    paths = find(folder)
    arrays = cached(folder, "mnist", list(paths.values()), lambda: _parse(paths))
    return Images(**arrays)


def find(folder: Path) -> dict[str, Path]:
    """Return the four files by the field of ``Images`` that they hold.

    Raises:
        InputError: If a file is missing.
    """
    paths = expected_paths(folder)
    missing = [path.name for path in paths.values() if not path.is_file()]
    if missing:
        raise PUBLICATION.missing_files_error(missing, folder)
    return paths


def expected_paths(folder: Path) -> dict[str, Path]:
    """Return where the four files are, or should be."""
    folders = PUBLICATION.search_folders(folder)
    paths = {}
    for part, name in _FILES.items():
        candidates = [path / full for path in folders for full in (f"{name}.gz", name)]
        paths[part] = next((path for path in candidates if path.is_file()), candidates[0])
    return paths


def read_images(path: Path) -> NDArray[np.uint8]:
    """Read the images of an idx3 file, ``[n, 28, 28]``.

    Raises:
        InputError: If the file is damaged or not one of MNIST's.
    """
    images = _read(path, 3)
    require(
        images.shape[1:] == (28, 28),
        f"{path}: images of {images.shape[1]} x {images.shape[2]} pixels, not 28 x 28: "
        "this is not a file of MNIST",
    )
    return images


def read_labels(path: Path) -> NDArray[np.int64]:
    """Read the digits of an idx1 file, ``[n]``.

    Raises:
        InputError: If the file is damaged or not one of MNIST's.
    """
    labels = _read(path, 1)
    require(int(labels.max()) <= 9, f"{path}: label {labels.max()} is not a digit; {_ADVICE}")
    return labels.astype(np.int64)


def _parse(paths: dict[str, Path]) -> dict[str, NDArray[Any]]:
    """Read the four files, and check that there are as many labels as images."""
    arrays: dict[str, NDArray[Any]] = {
        part: read_images(path) if part.endswith("_x") else read_labels(path)
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


def _read(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an idx file, gzipped or not."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
            size = file.seek(0, 2)
            file.seek(0)
            if not zipped:
                return _read_idx(file, path, dimensions, size)
            with gzip.open(file) as content:
                return _read_idx(content, path, dimensions, size * _MAX_GZIP_RATIO)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise InputError(f"{path}: {str(error) or type(error).__name__}; {_ADVICE}") from error


def _read_idx(
    file: IO[bytes] | gzip.GzipFile, path: Path, dimensions: int, max_length: int
) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes that has at most ``max_length`` bytes."""
    magic, expected = file.read(4), bytes([0, 0, 8, dimensions])
    require(
        magic == expected,
        f"{path}: begins with {magic.hex(' ')}, not with {expected.hex(' ')}; {_ADVICE}",
    )
    shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
    length = int(np.prod([int(n) for n in shape], dtype=object))
    require(length > 0, f"{path}: has nothing in it; {_ADVICE}")
    too_short = f"{path}: is shorter than the {length} bytes that its header announces; {_ADVICE}"
    require(length <= max_length, too_short)
    content = file.read(length)
    while len(content) < length and (chunk := file.read(length - len(content))):
        content += chunk
    require(len(content) == length, too_short)
    require(
        not file.read(1),
        f"{path}: is longer than the {length} bytes that its header announces; {_ADVICE}",
    )
    return np.frombuffer(content, np.uint8).reshape(shape)


def _expected_files(folder: Path) -> ExpectedFiles:
    """Yield the four files with their readers."""
    for part, path in expected_paths(folder).items():
        yield path, read_images if part.endswith("_x") else read_labels


PUBLICATION = register_publication(
    Publication(
        name="mnist",
        title="MNIST",
        subfolders=("MNIST/raw", "mnist", "MNIST", ""),
        files=tuple(_HASHES),
        source=_URL,
        expected_files=_expected_files,
        downloads=tuple(
            Download(f"{_URL}{name}", f"MNIST/raw/{name}", hash_) for name, hash_ in _HASHES.items()
        ),
        hashes=_HASHES,
    )
)
