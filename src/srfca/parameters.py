"""Parameters of dataclasses, with constraints that are declared once, beside the field."""

from __future__ import annotations

import sys
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from math import isnan
from numbers import Integral, Rational, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from srfca.errors import InputError, require, unknown

_CONSTRAINT = "srfca.constraint"
_LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Constraint:
    """The range of a number."""

    at_least: float | None = None
    more_than: float | None = None
    at_most: float | None = None
    less_than: float | None = None

    def allows(self, value: float) -> bool:
        """Return whether a number is in the range."""
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

    Args:
        default: Default of the field; without it the field must be given.
        at_least: The least allowed value.
        more_than: Values must be more than this.
        at_most: The largest allowed value.
        less_than: Values must be less than this.

    Returns:
        A ``dataclasses.field``.

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
    """Check the fields of a dataclass against their types, ``Literal`` ones too, and constraints.

    Args:
        options: The dataclass.
        prefix: What error messages put before a field's name.

    Raises:
        InputError: For the first value that is not allowed.
    """
    kind: Any = type(options)
    hints = _hints(kind)
    for parameter in fields(options):
        name, value = f"{prefix}{parameter.name}", getattr(options, parameter.name)
        kinds = _alternatives(hints[parameter.name])
        require(not _is_too_large(value), f"{name} must be a number below {_LARGEST:.0e}")
        if _accepts(value, kinds, constraint_of(parameter)):
            continue
        names = choices(hints[parameter.name])
        if names and not {int, float} & set(kinds):
            raise unknown(name, value, names)
        allowed = _describe(value, kinds, constraint_of(parameter))
        raise InputError(f"{name} must be {allowed}, not {value!r}")


def choices(annotation: Any) -> tuple[str, ...]:
    """Return the strings that a ``Literal`` type, alone or in a union, allows."""
    literals = [kind for kind in _alternatives(annotation) if get_origin(kind) is Literal]
    return tuple(value for literal in literals for value in get_args(literal))


def constraint_of(parameter: Field[Any]) -> Constraint | None:
    """Return the constraint of a field, None if it has none."""
    constraint: Constraint | None = parameter.metadata.get(_CONSTRAINT)
    return constraint


def _accepts(value: Any, kinds: tuple[Any, ...], constraint: Constraint | None) -> bool:
    """Return whether a field of these types may have a value."""
    if value is None:
        return NoneType in kinds
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, str):
        return str in kinds or any(value in choices(kind) for kind in kinds)
    if isinstance(value, Real):
        return _is_number_of(kinds, value) and (
            constraint is None or constraint.allows(float(value))
        )
    classes = tuple(kind for kind in kinds if isinstance(kind, type))
    unchecked = [kind for kind in kinds if kind not in classes and get_origin(kind) is not Literal]
    return isinstance(value, classes) or bool(unchecked)  # a callable, say, is not checked


def _is_too_large(value: Any) -> bool:
    """Return whether a number is beyond those of floating point."""
    is_exact = isinstance(value, Rational)
    return is_exact and not -_LARGEST <= value <= _LARGEST


def _is_number_of(kinds: tuple[Any, ...], value: Real) -> bool:
    return float in kinds or (int in kinds and isinstance(value, Integral))


def _describe(value: Any, kinds: tuple[Any, ...], constraint: Constraint | None) -> str:
    """Return what a field of these types may be, to follow "must be"."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    right_type = is_number and _is_number_of(kinds, value)
    words = []
    for kind in kinds:
        if kind in (int, float):
            number = "an integer" if kind is int else "a number"
            words.append(number if constraint is None or not right_type else str(constraint))
        elif kind is bool:
            words.append("True or False")
        elif get_origin(kind) is Literal:
            words += map(repr, get_args(kind))
        else:
            words.append("None" if kind is NoneType else f"a {getattr(kind, '__name__', kind)}")
    return " or ".join(dict.fromkeys(words))


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    union = get_origin(annotation) in (Union, UnionType)
    return get_args(annotation) if union else (annotation,)
