"""LEAF's json, read as a stream: beyond the result, one user's samples are in memory at a time.

A file holds ``users``, ``num_samples`` and ``user_data``: for each user ``x`` and ``y``. FEMNIST's
``x`` are images of 784 numbers from 0 to 1 (1 is white), Shakespeare's strings of 80 characters.

Pixels are stored as bytes where every number is k/255, rounded to four decimals or more, which is
how LEAF writes them; nothing is lost then. Where one is not, all pixels are stored as float32.

Users come in the order of the training files. Those with no training data are left out, since they
could not take part; those with no test data are kept, with no test samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ijson
import numpy as np
from numpy.typing import NDArray

from srfca.data.loaders import letters, registry
from srfca.data.loaders.users import Part, Users
from srfca.errors import InputError, require

PIXELS = 28 * 28
CLASSES = 62
"""FEMNIST's: ten digits, then capital, then small letters."""
_AGAIN = "the file is damaged, or is not one of LEAF's"
_ROUNDING = 255 * 0.5e-4 + 1e-6
"""How far 255 times a pixel can be from a whole number where it is rounded to four decimals."""


@dataclass(frozen=True)
class Layout:
    """What the samples of a data set look like."""

    decode: Callable[[Any, Any], tuple[NDArray[Any], NDArray[np.int64]]]
    """From a user's ``x`` and ``y`` in json to arrays; its ValueError says what is wrong."""
    shape: tuple[int, ...]
    length: int
    """The fewest bytes of json that a sample takes."""
    gap: int = 0
    """How many samples may be counted for a user without being there."""


Files = tuple[list[Path], list[Path], list[Path]]
"""Training files, test files, tables."""


def find(data: registry.DataSet, folder: Path, *tables: str) -> Files:
    """The training and the test files of a data set, or else its tables, by their patterns."""
    homes = data.searched(folder)
    for home in homes:
        train, test = (sorted((home / part).glob("*.json")) for part in ("train", "test"))
        if train and not test:
            raise registry.missing(data, ["test/*.json"], folder)
        if train:
            return train, test, []
    found = (sorted(home.glob(pattern)) for home in homes for pattern in tables)
    any_tables = next(filter(None, found), None)
    if any_tables is None:
        raise registry.missing(data, data.files[:1], folder)
    return [], [], any_tables


def read(train: Sequence[Path], test: Sequence[Path], layout: Layout) -> Users:
    """The users of these files, matched by name."""
    train_names, train_part = read_part(train, layout)
    test_names, test_part = read_part(test, layout)
    kept = np.flatnonzero(train_part.sizes)
    require(len(kept) > 0, f"{train[0].parent}: no user has training data; {_AGAIN}")
    names = [train_names[user] for user in kept]
    if len(kept) < len(train_names):
        train_part = train_part.take(kept)
    if names != test_names:
        test_part = _arranged(test_part, test_names, names)
    if train_part.x.dtype != test_part.x.dtype:
        train_part, test_part = (
            Part(_as_float(part.x), part.y, part.sizes) for part in (train_part, test_part)
        )
    return Users(tuple(names), train_part, test_part)


def read_part(files: Sequence[Path], layout: Layout) -> tuple[list[str], Part]:
    """The users of some files and their samples."""
    counts = [_counts(path) for path in files]
    total = sum(sum(of.values()) for of in counts)
    most = sum(path.stat().st_size for path in files) // layout.length
    most += layout.gap * sum(len(of) for of in counts)
    if total > most:
        raise InputError(
            f"{files[0].parent}: 'num_samples' counts {total} samples, but the files have room "
            f"for {most} at most; {_AGAIN}"
        )
    x: NDArray[Any] = np.empty((total, *layout.shape), np.uint8)
    y = np.empty(total, np.int64)
    sizes: dict[str, int] = {}
    filled = 0
    for path, expected in zip(files, counts, strict=True):
        for name, user_x, user_y in _samples(path, expected, layout):
            require(name not in sizes, f"{path}: user {name!r} is there twice; {_AGAIN}")
            size = sizes[name] = len(user_y)
            if user_x.dtype != x.dtype and x.dtype == np.uint8:
                x = _as_float(x)
            rows = slice(filled, filled + size)
            x[rows] = user_x if user_x.dtype == x.dtype else _as_float(user_x)
            y[rows] = user_y
            filled += size
        absent = expected.keys() - sizes.keys()
        if absent:
            raise InputError(f"{path}: user {min(absent)!r} has no entry in 'user_data'; {_AGAIN}")
    return list(sizes), Part(x[:filled], y[:filled], np.array(list(sizes.values()), np.int64))


def _samples(
    path: Path, expected: dict[str, int], layout: Layout
) -> Iterator[tuple[str, NDArray[Any], NDArray[np.int64]]]:
    """Each user's samples, checked; users that are counted nowhere and have none are left out."""
    for name, content in _stream(path, ijson.kvitems, "user_data"):
        where = f"{path}: user {name!r}"
        require(
            isinstance(content, dict) and {"x", "y"} <= content.keys(),
            f"{where} has no 'x' and 'y'; {_AGAIN}",
        )
        try:
            x, y = layout.decode(content["x"], content["y"])
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"{where}: {error}; {_AGAIN}") from error
        require(len(x) == len(y), f"{where}: {len(x)} inputs but {len(y)} targets; {_AGAIN}")
        if name not in expected and len(y) == 0:
            continue
        require(name in expected, f"{where} is not in 'users'; {_AGAIN}")
        require(
            expected[name] - len(y) in (0, layout.gap),
            f"{where} has {len(y)} samples, but 'num_samples' says {expected[name]}; {_AGAIN}",
        )
        yield name, x, y


def _counts(path: Path) -> dict[str, int]:
    """How many samples each user is said to have."""
    users, counts = (_value(path, key) for key in ("users", "num_samples"))
    require(
        isinstance(users, list)
        and all(isinstance(user, str) for user in users)
        and len(set(users)) == len(users),
        f"{path}: 'users' is not a list of different names; {_AGAIN}",
    )
    require(
        isinstance(counts, list)
        and len(counts) == len(users)
        and all(type(count) is int and count >= 0 for count in counts),
        f"{path}: 'num_samples' is not a list of {len(users)} counts; {_AGAIN}",
    )
    return dict(zip(users, counts, strict=True))


def _value(path: Path, key: str) -> Any:
    return next(_stream(path, ijson.items, key), None)


def _stream(path: Path, parse: Callable[..., Iterator[Any]], prefix: str) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            yield from parse(file, prefix, use_float=True)
    except (ijson.JSONError, UnicodeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: {_line(error)}; {_AGAIN}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _line(error: Exception) -> str:
    """The first line of an error's message: the parser adds an extract of the file."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _arranged(part: Part, have: list[str], want: list[str]) -> Part:
    """The samples of the users that are wanted, in their order."""
    place = {name: user for user, name in enumerate(have)}
    sizes = np.array([part.sizes[place[name]] if name in place else 0 for name in want], np.int64)
    rows = part.take([place[name] for name in want if name in place])
    return Part(rows.x, rows.y, sizes)


def _images(x: Any, y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    classes = _numbers(y, "y", "iu", 1).astype(np.int64)
    if len(classes) and not (classes.min() >= 0 and classes.max() < CLASSES):
        raise ValueError(f"a class is not in 0 to {CLASSES - 1}")
    pixels = _numbers(x, "x", "fiu", 2).astype(np.float64)
    if pixels.shape[1] != PIXELS:
        raise ValueError(f"images of {pixels.shape[1]} pixels, not {PIXELS}")
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise ValueError("a pixel is not in 0 to 1")
    scaled = 255 * pixels
    levels = np.rint(scaled)
    lossless = bool((np.abs(scaled - levels) <= _ROUNDING).all())
    stored = levels.astype(np.uint8) if lossless else pixels.astype(np.float32)
    return stored.reshape(-1, 28, 28), classes


def _numbers(values: Any, name: str, kinds: str, dimensions: int) -> NDArray[Any]:
    if values == []:
        return np.empty((0, PIXELS)[:dimensions], np.int64)
    array = np.array(values)
    if array.ndim != dimensions or array.dtype.kind not in kinds:
        raise ValueError(f"{name!r} is not a list of {'numbers' if dimensions == 1 else 'images'}")
    return array


def _text(x: Any, y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    for name, strings, length in (("x", x, letters.WINDOW), ("y", y, 1)):
        if not isinstance(strings, list):
            raise ValueError(f"{name!r} is not a list")
        if not all(isinstance(text, str) and len(text) == length for text in strings):
            raise ValueError(f"{name!r} has something that is not a string of length {length}")
    windows = letters.encode("".join(x)).reshape(-1, letters.WINDOW)
    return windows, letters.encode("".join(y)).astype(np.int64)


def _as_float(x: NDArray[Any]) -> NDArray[np.float32]:
    """Bytes as floats in 0..1; floats as they are."""
    return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x


IMAGES = Layout(_images, (28, 28), 2 * PIXELS)
"""FEMNIST: images ``[n, 28, 28]``, bytes or floats in 0..1, and classes 0 to 61."""
TEXT = Layout(_text, (letters.WINDOW,), letters.WINDOW, letters.GAP)
"""Shakespeare: windows ``[n, 80]`` and next characters, as indices of the alphabet.

LEAF's counts for test users include the windows that it leaves out after the training windows.
"""
