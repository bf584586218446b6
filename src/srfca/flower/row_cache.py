"""Which rows a client still has, of those that it received or trained: the newest few."""

from __future__ import annotations

from collections.abc import Iterable

MAX_ROWS = 32
MAX_BYTES = 64 * 2**20
"""Limit on the bytes of cached rows: Flower sends a client's state with every message."""


class RowCache:
    """Names of cached rows, oldest first.

    The server and each client keep one by the same rule, so the server knows what a client has.

    Args:
        row_bytes: Bytes of a complete row. Partial rows count like complete ones.
        names: Names to start with, oldest first.
        max_rows: Largest number of rows.

    >>> cache = RowCache(row_bytes=4, max_rows=2)
    >>> cache.add(["a", "b", "a", "c"])
    >>> cache.names
    ['a', 'c']
    """

    def __init__(self, row_bytes: int, names: Iterable[str] = (), max_rows: int = MAX_ROWS) -> None:
        self.names = list(names)
        self._capacity = max(2, min(max_rows, MAX_BYTES // row_bytes))

    def add(self, names: Iterable[str]) -> None:
        """Add rows, or make them the newest; drop the oldest ones beyond the capacity."""
        for name in names:
            if name in self.names:
                self.names.remove(name)
            self.names.append(name)
        del self.names[: -self._capacity]
