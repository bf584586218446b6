"""The error for invalid user input, the warning for doubtful runs, and helpers."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real

_MAX_LISTED = 50
"""Choices that an error lists."""


class InputError(ValueError):
    """Invalid user input; the message names it and says what is allowed.

    Examples:
        >>> from srfca import LocalTraining
        >>> try:
        ...     LocalTraining(steps=0)
        ... except InputError as error:
        ...     print(error)
        steps must be at least 1, not 0
    """


class SrfcaWarning(UserWarning):
    """A run that is valid but doubtful, by its settings or by its outcome.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", SrfcaWarning)  # a doubtful run stops here
    """


def unknown(kind: str, name: object, choices: Iterable[str]) -> InputError:
    """Return an error for a name that does not exist, with the nearest one that does.

    >>> unknown("experiment", "rotated-digit", ["synthetic", "rotated-digits"])
    InputError("unknown experiment 'rotated-digit': did you mean 'rotated-digits'?")
    """
    choices = list(choices)
    closest = get_close_matches(str(name), choices, n=1, cutoff=0.6)
    more = f" and {len(choices) - _MAX_LISTED} more" if len(choices) > _MAX_LISTED else ""
    listed = f"choose from {', '.join(choices[:_MAX_LISTED])}{more}"
    hint = f"did you mean {closest[0]!r}?" if closest else listed
    return InputError(f"unknown {kind} {str(name)!r}: {hint}")


def require(condition: bool, message: str) -> None:
    """Raise an ``InputError`` with this message unless the condition holds."""
    if not condition:
        raise InputError(message)


def require_positive(**sizes: int) -> None:
    """Raise an ``InputError`` that names the first size that is no integer, or below 1."""
    for name, size in sizes.items():
        require(is_integer(size), f"{name} must be an integer, not {size!r}")
        require(size >= 1, f"{name} must be at least 1, not {size}")


def require_seed(seed: int) -> None:
    """Raise an ``InputError`` unless a seed is an integer from 0 to 2**63 - 1."""
    require(
        is_integer(seed) and 0 <= seed < 2**63,
        f"seed must be an integer from 0 to 2**63 - 1, not {seed!r}",
    )


def is_integer(value: object) -> bool:
    """Return whether a value is an integer: neither a float such as 3.0, nor a bool, nor a tensor.

    >>> [is_integer(value) for value in (3, 3.0, True, "3")]
    [True, False, False, False]
    """
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether a value is a real number, not a bool.

    >>> [is_number(value) for value in (3, 3.0, True, "3")]
    [True, True, False, False]
    """
    return isinstance(value, Real) and not isinstance(value, bool)


def describe(error: Exception) -> str:
    """Return the type and the first line of an error's message.

    >>> describe(KeyError("a"))
    "KeyError: 'a'"
    """
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
