"""Parameters of dataclasses, with constraints that are declared once, beside the field."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from math import isnan
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from srfca.errors import InputError, unknown

_CONSTRAINT = "srfca.constraint"


@dataclass(frozen=True)
class Constraint:
    """The range of a number."""

    at_least: float | None = None
    more_than: float | None = None
    at_most: float | None = None
    less_than: float | None = None

    def allows(self, value: float) -> bool:
        """Tell whether a number is in the range."""
        return (
            not isnan(value)
            and (self.at_least is None or value >= self.at_least)
            and (self.more_than is None or value > self.more_than)
            and (self.at_most is None or value <= self.at_most)
            and (self.less_than is None or value < self.less_than)
        )

    def __str__(self) -> str:
        """Return what is allowed, to follow "must be".

        >>> str(Constraint(at_least=1)), str(Constraint(more_than=0, at_most=1))
        ('at least 1', 'in (0, 1]')
        """
        low = self.at_least if self.more_than is None else self.more_than
        high = self.at_most if self.less_than is None else self.less_than
        if high is None:
            if self.more_than is None:
                return f"at least {low:g}"
            return "positive" if low == 0 else f"more than {low:g}"
        if low is None:
            return f"at most {high:g}" if self.less_than is None else f"less than {high:g}"
        opening, closing = "[("[self.more_than is not None], "])"[self.less_than is not None]
        return f"in {opening}{low:g}, {high:g}{closing}"


def constrained(
    default: Any = MISSING,
    *,
    at_least: float | None = None,
    more_than: float | None = None,
    at_most: float | None = None,
    less_than: float | None = None,
) -> Any:
    """Declare a dataclass field whose numbers must lie in a range.

    ``check_parameters`` enforces it. None and strings pass where the field's type allows them.

    >>> @dataclass
    ... class Options:
    ...     k: int = constrained(2, at_least=1)
    >>> check_parameters(Options(k=0))
    Traceback (most recent call last):
    srfca.errors.InputError: k must be at least 1, not 0
    """
    constraint = Constraint(at_least, more_than, at_most, less_than)
    if default is MISSING:
        return field(metadata={_CONSTRAINT: constraint})
    return field(default=default, metadata={_CONSTRAINT: constraint})


def check_parameters(options: Any, prefix: str = "") -> None:
    """Check the fields of a dataclass against their constraints and ``Literal`` types.

    Args:
        options: The dataclass.
        prefix: What error messages put before a field's name.

    Raises:
        InputError: For the first value that is not allowed.
    """
    hints = _hints(type(options))
    for each in fields(options):
        name, value = f"{prefix}{each.name}", getattr(options, each.name)
        kinds = _alternatives(hints[each.name])
        if isinstance(value, str):
            _check_choice(name, value, kinds)
        elif value is not None or NoneType not in kinds:
            _check_number(name, value, each, NoneType in kinds)


def choices(annotation: Any) -> tuple[str, ...]:
    """Return the strings that a ``Literal`` type, alone or in a union, allows."""
    literals = [kind for kind in _alternatives(annotation) if get_origin(kind) is Literal]
    return tuple(value for literal in literals for value in get_args(literal))


def constraint_of(parameter: Field[Any]) -> Constraint | None:
    """Return the constraint of a field, None if it has none."""
    constraint: Constraint | None = parameter.metadata.get(_CONSTRAINT)
    return constraint


def _check_choice(name: str, value: str, kinds: tuple[Any, ...]) -> None:
    if str in kinds:
        return
    allowed = [text for kind in kinds for text in choices(kind)]
    if value not in allowed:
        raise unknown(name, value, allowed)


def _check_number(name: str, value: Any, parameter: Field[Any], optional: bool) -> None:
    constraint = constraint_of(parameter)
    if constraint is None or isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not constraint.allows(value):
        none = " or None" if optional else ""
        raise InputError(f"{name} must be {constraint}{none}, not {value}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    union = get_origin(annotation) in (Union, UnionType)
    return get_args(annotation) if union else (annotation,)
