"""Text as LEAF's Shakespeare has it: an alphabet of 80 symbols, windows of 80 characters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from srfca.data.loaders.users import Part, Users

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's symbols, in LEAF's order."""
WINDOW = 80
"""How many characters a sample shows; the next one is its target."""
GAP = WINDOW - 1
"""How many windows LEAF leaves out between a role's training and its test windows."""

_LIKE = {"\u2018\u2019`": "'", "\u201c\u201d": '"', "\u2013\u2014": "-"}
_TABLE = np.full(0x2100, ALPHABET.index(" "), np.uint8)
for _code, _symbol in enumerate(ALPHABET):
    _TABLE[ord(_symbol)] = _code
for _others, _symbol in _LIKE.items():
    _TABLE[[ord(_other) for _other in _others]] = ALPHABET.index(_symbol)


def encode(text: str) -> NDArray[np.uint8]:
    """The alphabet's index of every character: ``[len(text)]``.

    Typographic quotes and dashes count as plain ones, and what the alphabet lacks as a space.

    >>> encode("To be—").tolist() == [ALPHABET.index(symbol) for symbol in "To be-"]
    True
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    indices: NDArray[np.uint8] = _TABLE[np.minimum(codes, len(_TABLE) - 1)]
    return indices


def decode(codes: NDArray[np.uint8]) -> str:
    """The text of indices."""
    return "".join(ALPHABET[code] for code in codes)


def windows(text: NDArray[np.uint8], sizes: NDArray[np.int64], names: Sequence[str]) -> Users:
    """Training and test windows of roles, whose texts come one after another in ``text``.

    A role's first 80 % of windows are for training. Test windows begin where a window holds no
    more than one character that training has as a target, as in LEAF.
    """
    count = np.maximum(sizes - WINDOW, 0)
    start = np.cumsum(sizes) - sizes
    train = split(count)
    test = np.maximum(count - train - GAP, 0)
    return Users(tuple(names), _part(text, start, train), _part(text, start + train + GAP, test))


def split(count: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of each role's windows are for training: 80 %, and at least one of two."""
    return np.minimum(np.maximum((4 * count) // 5, 1), count)


def _part(text: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Part:
    x = np.empty((int(sizes.sum()), WINDOW), np.uint8)
    y = np.empty(len(x), np.int64)
    filled = 0
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        if size:
            rows, shown = slice(filled, filled + size), text[start : start + size + WINDOW]
            x[rows] = sliding_window_view(shown[:-1], WINDOW)
            y[rows] = shown[WINDOW:]
            filled += size
    return Part(x, y, sizes)
