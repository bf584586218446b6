"""Search spaces of parameters, declared by methods and searched by ``srfca tune``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``.

    Args:
        low: The least.
        high: The largest.
        log: Whether factors count, rather than differences.
        integer: Whether they are whole numbers.
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False


@dataclass(frozen=True)
class Percentages:
    """Whole percentages from ``low`` to ``high``, as ``"30%"``, or a word.

    Args:
        low: The least.
        high: The largest.
        word: What the parameter may be instead of a percentage, if anything.
    """

    low: int
    high: int
    word: str | None = None


@dataclass(frozen=True)
class Choices:
    """Some strings."""

    values: tuple[str, ...]


SearchSpace: TypeAlias = Range | Percentages | Choices
