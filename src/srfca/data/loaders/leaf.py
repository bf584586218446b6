"""Read LEAF's json files as a stream, with only one user's samples in memory at a time.

A file holds ``users``, ``num_samples`` and ``user_data``: for each user ``x`` and ``y``. FEMNIST's
``x`` are images of 784 numbers from 0 to 1 (1 is white), Shakespeare's strings of 80 characters.

Pixels are stored as bytes if every number is k/255, rounded to four or more decimals, which is how
LEAF writes them; this loses nothing. Otherwise all pixels are stored as float32.

Users are in the order of the training files. Users without training data are dropped, since they
could not take part; users without test data have no test samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ijson
import numpy as np
from numpy.typing import NDArray

from srfca.data.loaders import letters
from srfca.data.loaders.publication import Publication
from srfca.data.loaders.users import Users, UserSamples
from srfca.errors import InputError, require

PIXELS = 28 * 28
CLASSES = 62
"""Number of FEMNIST's classes: ten digits, then capital letters, then small letters."""
_ADVICE = "the file is damaged, or is not one of LEAF's"
_MAX_ROUNDING = 255 * 0.5e-4 + 1e-6
"""Maximum distance of 255 times a pixel from an integer, if it is rounded to four decimals."""


@dataclass(frozen=True)
class Layout:
    """The form of a data set's samples.

    Args:
        decode: Converts a user's ``x`` and ``y`` from json to arrays; raises ``ValueError`` if they
            are invalid.
        shape: The shape of an input.
        min_length: Minimum length of a sample in json, in bytes.
        gap: Number of samples that can be counted for a user without being in the file.
    """

    decode: Callable[[Any, Any], tuple[NDArray[Any], NDArray[np.int64]]]
    shape: tuple[int, ...]
    min_length: int
    gap: int = 0


class Files(NamedTuple):
    """The files of a data set: LEAF's training and test files, or else tables."""

    train: list[Path]
    test: list[Path]
    tables: list[Path]


def find(publication: Publication, folder: Path, *patterns: str) -> Files:
    """Return LEAF's files of a data set, or its tables if there are none.

    Args:
        publication: The data set.
        folder: The data folder.
        *patterns: Patterns of the tables' names.

    Raises:
        InputError: If there are neither, or training files without test files.
    """
    folders = publication.search_folders(folder)
    for path in folders:
        train, test = (sorted((path / split).glob("*.json")) for split in ("train", "test"))
        if train and not test:
            raise publication.missing_files_error(["test/*.json"], folder)
        if train:
            return Files(train, test, [])
    matches = (sorted(path.glob(pattern)) for path in folders for pattern in patterns)
    tables = next(filter(None, matches), None)
    if tables is None:
        raise publication.missing_files_error(publication.files[:1], folder)
    return Files([], [], tables)


def read(train: Sequence[Path], test: Sequence[Path], layout: Layout) -> Users:
    """Read the users of training and test files, matched by name.

    Args:
        train: The training files.
        test: The test files.
        layout: The form of the samples.

    Raises:
        InputError: If a file is damaged or inconsistent; the message names it.
    """
    train_names, train_samples = read_samples(train, layout)
    test_names, test_samples = read_samples(test, layout)
    trained = np.flatnonzero(train_samples.sizes)
    require(len(trained) > 0, f"{train[0].parent}: no user has training data; {_ADVICE}")
    names = [train_names[user] for user in trained]
    if len(trained) < len(train_names):
        train_samples = train_samples.take(trained)
    if names != test_names:
        test_samples = _reorder(test_samples, test_names, names)
    if train_samples.x.dtype != test_samples.x.dtype:
        train_samples, test_samples = (
            UserSamples(_as_float(samples.x), samples.y, samples.sizes)
            for samples in (train_samples, test_samples)
        )
    return Users(tuple(names), train_samples, test_samples)


def read_samples(files: Sequence[Path], layout: Layout) -> tuple[list[str], UserSamples]:
    """Read the users of some files and their samples.

    Args:
        files: LEAF's json files.
        layout: The form of the samples.

    Returns:
        The names of the users, and their samples.

    Raises:
        InputError: If a file is damaged or inconsistent; the message names it.
    """
    counts = [_declared_counts(path) for path in files]
    total = sum(sum(by_user.values()) for by_user in counts)
    _check_total(files, layout, total, num_users=sum(len(by_user) for by_user in counts))
    x: NDArray[Any] = np.empty((total, *layout.shape), np.uint8)
    y = np.empty(total, np.int64)
    sizes: dict[str, int] = {}
    filled = 0
    for path, expected in zip(files, counts, strict=True):
        for name, user_x, user_y in _iterate_users(path, expected, layout):
            require(name not in sizes, f"{path}: user {name!r} is there twice; {_ADVICE}")
            size = sizes[name] = len(user_y)
            if user_x.dtype != x.dtype and x.dtype == np.uint8:
                x = _as_float(x)
            rows = slice(filled, filled + size)
            x[rows] = user_x if user_x.dtype == x.dtype else _as_float(user_x)
            y[rows] = user_y
            filled += size
        missing = expected.keys() - sizes.keys()
        if missing:
            raise InputError(
                f"{path}: user {min(missing)!r} has no entry in 'user_data'; {_ADVICE}"
            )
    return list(sizes), UserSamples(
        x[:filled], y[:filled], np.array(list(sizes.values()), np.int64)
    )


def _check_total(files: Sequence[Path], layout: Layout, total: int, num_users: int) -> None:
    """Require that the files are long enough for the declared number of samples."""
    maximum = sum(path.stat().st_size for path in files) // layout.min_length
    maximum += layout.gap * num_users
    if total > maximum:
        raise InputError(
            f"{files[0].parent}: 'num_samples' counts {total} samples, but the files have room "
            f"for {maximum} at most; {_ADVICE}"
        )


def _iterate_users(
    path: Path, expected: dict[str, int], layout: Layout
) -> Iterator[tuple[str, NDArray[Any], NDArray[np.int64]]]:
    """Yield each user's samples, checked; skip users without samples that are not declared."""
    for name, content in _stream(path, ijson.kvitems, "user_data"):
        context = f"{path}: user {name!r}"
        require(
            isinstance(content, dict) and {"x", "y"} <= content.keys(),
            f"{context} has no 'x' and 'y'; {_ADVICE}",
        )
        try:
            x, y = layout.decode(content["x"], content["y"])
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"{context}: {error}; {_ADVICE}") from error
        require(len(x) == len(y), f"{context}: {len(x)} inputs but {len(y)} targets; {_ADVICE}")
        if name not in expected and len(y) == 0:
            continue
        require(name in expected, f"{context} is not in 'users'; {_ADVICE}")
        require(
            expected[name] - len(y) in (0, layout.gap),
            f"{context} has {len(y)} samples, but 'num_samples' says {expected[name]}; {_ADVICE}",
        )
        yield name, x, y


def _declared_counts(path: Path) -> dict[str, int]:
    """Return how many samples a file declares for each user."""
    users, counts = (_read_value(path, key) for key in ("users", "num_samples"))
    require(
        isinstance(users, list)
        and all(isinstance(user, str) for user in users)
        and len(set(users)) == len(users),
        f"{path}: 'users' is not a list of different names; {_ADVICE}",
    )
    require(
        isinstance(counts, list)
        and len(counts) == len(users)
        and all(type(count) is int and count >= 0 for count in counts),
        f"{path}: 'num_samples' is not a list of {len(users)} counts; {_ADVICE}",
    )
    return dict(zip(users, counts, strict=True))


def _read_value(path: Path, key: str) -> Any:
    """Return the value of a top-level key, None if it is missing."""
    return next(_stream(path, ijson.items, key), None)


def _stream(path: Path, parse: Callable[..., Iterator[Any]], prefix: str) -> Iterator[Any]:
    """Yield what a parser finds in a file; its errors become ``InputError``."""
    try:
        with path.open("rb") as file:
            yield from parse(file, prefix, use_float=True)
    except (ijson.JSONError, UnicodeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: {_first_line(error)}; {_ADVICE}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message: the parser adds an extract of the file."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _reorder(samples: UserSamples, names: list[str], order: list[str]) -> UserSamples:
    """Return the samples of the users in ``order``, none for users that are not in ``names``."""
    index = {name: user for user, name in enumerate(names)}
    sizes = np.array(
        [samples.sizes[index[name]] if name in index else 0 for name in order], np.int64
    )
    present = samples.take([index[name] for name in order if name in index])
    return UserSamples(present.x, present.y, sizes)


def _decode_images(x: Any, y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Convert a user's images and classes from json."""
    classes = _as_numbers(y, "y", "iu", 1).astype(np.int64)
    if len(classes) and not (classes.min() >= 0 and classes.max() < CLASSES):
        raise ValueError(f"a class is not in 0 to {CLASSES - 1}")
    pixels = _as_numbers(x, "x", "fiu", 2).astype(np.float64)
    if pixels.shape[1] != PIXELS:
        raise ValueError(f"images of {pixels.shape[1]} pixels, not {PIXELS}")
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise ValueError("a pixel is not in 0 to 1")
    scaled = 255 * pixels
    levels = np.rint(scaled)
    lossless = bool((np.abs(scaled - levels) <= _MAX_ROUNDING).all())
    stored = levels.astype(np.uint8) if lossless else pixels.astype(np.float32)
    return stored.reshape(-1, 28, 28), classes


def _as_numbers(values: Any, name: str, kinds: str, dimensions: int) -> NDArray[Any]:
    """Return nested lists as an array of these kinds of numbers and dimensions."""
    if values == []:
        return np.empty((0, PIXELS)[:dimensions], np.int64)
    array = np.array(values)
    if array.ndim != dimensions or array.dtype.kind not in kinds:
        raise ValueError(f"{name!r} is not a list of {'numbers' if dimensions == 1 else 'images'}")
    return array


def _decode_text(x: Any, y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Convert a user's windows and next characters from json."""
    for name, strings, length in (("x", x, letters.WINDOW), ("y", y, 1)):
        if not isinstance(strings, list):
            raise ValueError(f"{name!r} is not a list")
        if not all(isinstance(text, str) and len(text) == length for text in strings):
            raise ValueError(f"{name!r} has an entry that is not a string of length {length}")
    windows = letters.encode("".join(x)).reshape(-1, letters.WINDOW)
    return windows, letters.encode("".join(y)).astype(np.int64)


def _as_float(x: NDArray[Any]) -> NDArray[np.float32]:
    """Return bytes as floats in [0, 1]; floats unchanged."""
    return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x


IMAGES = Layout(_decode_images, (28, 28), 2 * PIXELS)
"""FEMNIST: images ``[n, 28, 28]``, bytes or floats in [0, 1], and classes 0 to 61."""
TEXT = Layout(_decode_text, (letters.WINDOW,), letters.WINDOW, letters.GAP)
"""Shakespeare: windows ``[n, 80]`` and next characters, as indices of the alphabet.

LEAF's counts of test samples include the windows that it drops after the training windows.
"""
