"""The one error for what a caller can mend."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Something given to srfca is wrong; the message names it and says what is allowed."""


def unknown(kind: str, name: object, known: Iterable[str]) -> InputError:
    """An error for a name that does not exist, with the nearest one that does.

    >>> unknown("experiment", "rotated-digit", ["synthetic", "rotated-digits"])
    InputError("unknown experiment 'rotated-digit': did you mean 'rotated-digits'?")
    """
    known = list(known)
    near = get_close_matches(str(name), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
    return InputError(f"unknown {kind} {str(name)!r}: {hint}")


def require(condition: bool, message: str) -> None:
    """Raise an InputError with this message unless the condition holds."""
    if not condition:
        raise InputError(message)


def require_positive(**sizes: int) -> None:
    """Raise an InputError that names the first size below 1."""
    for name, size in sizes.items():
        require(size >= 1, f"{name} must be at least 1, not {size}")
