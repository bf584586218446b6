"""MNIST: the four idx files, gzipped or not."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.loaders import registry
from srfca.data.loaders.images import Images
from srfca.data.loaders.store import cached, data_folder
from srfca.errors import InputError, require

_FILES = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}
_GZIP_AT_MOST = 1100
"""How much longer than a gzip file its content can be: deflate's limit is 1032."""


def load(folder: Path | str | None = None) -> Images:
    """All images ``[N, 28, 28]``, 0 to 255 with white ink on black, with their digits."""
    folder = data_folder(folder)
    paths = find(folder)
    arrays = cached(folder, "mnist", list(paths.values()), lambda: _parse(paths))
    return Images(**arrays)


def find(folder: Path) -> dict[str, Path]:
    """The four files by the part of Images that they hold."""
    paths = located(folder)
    absent = [path.name for path in paths.values() if not path.is_file()]
    if absent:
        raise registry.missing(registry.data_set("mnist"), absent, folder)
    return paths


def located(folder: Path) -> dict[str, Path]:
    """Where the four files are, or where they should be."""
    homes = registry.data_set("mnist").searched(folder)
    paths = {}
    for part, name in _FILES.items():
        places = [home / full for home in homes for full in (f"{name}.gz", name)]
        paths[part] = next((path for path in places if path.is_file()), places[0])
    return paths


def read_images(path: Path) -> NDArray[np.uint8]:
    """The images of an idx3 file: ``[N, 28, 28]``."""
    images = _read(path, 3)
    require(
        images.shape[1:] == (28, 28),
        f"{path}: images of {images.shape[1]} x {images.shape[2]} pixels, not 28 x 28: "
        "this is not a file of MNIST",
    )
    return images


def read_labels(path: Path) -> NDArray[np.int64]:
    """The digits of an idx1 file: ``[N]``."""
    labels = _read(path, 1)
    require(int(labels.max()) <= 9, f"{path}: label {labels.max()} is not a digit; {_AGAIN}")
    return labels.astype(np.int64)


_AGAIN = "the file is damaged or another one: get it again with 'srfca data get mnist'"


def _parse(paths: dict[str, Path]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {
        part: read_images(path) if part.endswith("_x") else read_labels(path)
        for part, path in paths.items()
    }
    for part in ("train", "test"):
        x, y = len(arrays[f"{part}_x"]), len(arrays[f"{part}_y"])
        require(
            x == y,
            f"{paths[f'{part}_x']} has {x} images, but {paths[f'{part}_y']} has {y} labels: "
            "they do not belong together",
        )
    return arrays


def _read(path: Path, dimensions: int) -> NDArray[np.uint8]:
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
            size = file.seek(0, 2)
            file.seek(0)
            if not zipped:
                return _idx(file, path, dimensions, size)
            with gzip.open(file) as content:
                return _idx(content, path, dimensions, size * _GZIP_AT_MOST)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise InputError(f"{path}: {str(error) or type(error).__name__}; {_AGAIN}") from error


def _idx(
    file: IO[bytes] | gzip.GzipFile, path: Path, dimensions: int, most: int
) -> NDArray[np.uint8]:
    """The content of an idx file of unsigned bytes that is at most ``most`` bytes long."""
    magic, wanted = file.read(4), bytes([0, 0, 8, dimensions])
    require(
        magic == wanted,
        f"{path}: begins with {magic.hex(' ')}, not with {wanted.hex(' ')}; {_AGAIN}",
    )
    shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
    length = int(np.prod([int(n) for n in shape], dtype=object))
    require(length > 0, f"{path}: has nothing in it; {_AGAIN}")
    problem = f"{path}: is shorter than the {length} bytes that it announces; {_AGAIN}"
    require(length <= most, problem)
    content = file.read(length)
    while len(content) < length and (more := file.read(length - len(content))):
        content += more
    require(len(content) == length, problem)
    require(not file.read(1), f"{path}: is longer than the {length} bytes announced; {_AGAIN}")
    return np.frombuffer(content, np.uint8).reshape(shape)
