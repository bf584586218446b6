"""Which models a client still has of those it received or trained: the newest few."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 32
"""Models on a shelf."""
BYTES = 64 * 2**20
"""What they may take: Flower carries a client's state from message to message."""


class Shelf:
    """Names of models, the oldest first. Server and client each keep one, by the same rule.

    >>> shelf = Shelf(row_bytes=4, most=2)
    >>> shelf.put(["a", "b", "a", "c"])
    >>> shelf.names
    ['a', 'c']
    """

    def __init__(self, row_bytes: int, names: Iterable[str] = (), most: int = MOST) -> None:
        self.names = list(names)
        self._room = max(2, min(most, BYTES // row_bytes))

    def put(self, names: Iterable[str]) -> None:
        """Add models, or make them the newest; the oldest go."""
        for name in names:
            if name in self.names:
                self.names.remove(name)
            self.names.append(name)
        del self.names[: -self._room]
