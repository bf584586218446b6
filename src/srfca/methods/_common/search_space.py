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
        divided_by: The name of a parameter searched before it: the bounds are of the product with
            it, for parameters whose product must stay in bounds.
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False
    divided_by: str | None = None


@dataclass(frozen=True)
class Layers:
    """Numbers of last layers: from 1 to ``most``, but not all layers of the model.

    Args:
        most: The largest.
    """

    most: int


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


SearchSpace: TypeAlias = Range | Layers | Percentages | Choices
