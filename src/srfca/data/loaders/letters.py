"""Text in the form of LEAF's Shakespeare: an alphabet of 80 symbols, windows of 80 characters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from srfca.data.loaders.users import Users, UserSamples

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's symbols, in LEAF's order."""
WINDOW = 80
"""Number of characters in a sample; the next character is the target."""
GAP = WINDOW - 1
"""Number of windows that LEAF drops between a role's training and test windows."""

_SUBSTITUTES = {"\u2018\u2019`": "'", "\u201c\u201d": '"', "\u2013\u2014": "-"}
"""Typographic characters, and the symbol that stands for them."""


def _code_table() -> NDArray[np.uint8]:
    """Return the alphabet's index of every code point below 0x2100, a space if it has none."""
    table = np.full(0x2100, ALPHABET.index(" "), np.uint8)
    for index, symbol in enumerate(ALPHABET):
        table[ord(symbol)] = index
    for characters, symbol in _SUBSTITUTES.items():
        table[[ord(character) for character in characters]] = ALPHABET.index(symbol)
    return table


_CODES = _code_table()


def encode(text: str) -> NDArray[np.uint8]:
    """Return the alphabet's index of every character, ``[len(text)]``.

    Typographic quotes and dashes become plain ones; characters that the alphabet lacks become
    spaces.

    Examples:
        >>> encode("To be—").tolist() == [ALPHABET.index(symbol) for symbol in "To be-"]
        True
    """
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    indices: NDArray[np.uint8] = _CODES[np.minimum(code_points, len(_CODES) - 1)]
    return indices


def decode(indices: NDArray[np.uint8]) -> str:
    """Return the text of indices of the alphabet.

    Examples:
        >>> decode(encode("To be"))
        'To be'
    """
    return "".join(ALPHABET[index] for index in indices)


def windows(text: NDArray[np.uint8], sizes: NDArray[np.int64], names: Sequence[str]) -> Users:
    """Cut the texts of roles into training and test windows.

    The first 80 % of a role's windows are for training. As in LEAF, test windows begin where a
    window shares at most one character with the targets of training windows.

    Args:
        text: The texts of all roles, concatenated, as indices of the alphabet.
        sizes: The length of each role's text.
        names: The names of the roles.

    Returns:
        The roles, with windows ``[n, 80]`` and next characters ``[n]``.
    """
    counts = np.maximum(sizes - WINDOW, 0)
    starts = np.cumsum(sizes) - sizes
    train = num_train_windows(counts)
    test = np.maximum(counts - train - GAP, 0)
    return Users(tuple(names), _cut(text, starts, train), _cut(text, starts + train + GAP, test))


def num_train_windows(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many of each role's windows are for training: 80 %, and at least one.

    Examples:
        >>> num_train_windows(np.array([0, 1, 10])).tolist()
        [0, 1, 8]
    """
    return np.minimum(np.maximum((4 * counts) // 5, 1), counts)


def _cut(
    text: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> UserSamples:
    """Return ``sizes[i]`` consecutive windows from ``starts[i]`` on, for each role i."""
    x = np.empty((int(sizes.sum()), WINDOW), np.uint8)
    y = np.empty(len(x), np.int64)
    filled = 0
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        if size:
            rows, characters = slice(filled, filled + size), text[start : start + size + WINDOW]
            x[rows] = sliding_window_view(characters[:-1], WINDOW)
            y[rows] = characters[WINDOW:]
            filled += size
    return UserSamples(x, y, sizes)
