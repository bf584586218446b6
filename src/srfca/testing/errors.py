"""The error of checks."""

from __future__ import annotations


class CheckError(AssertionError):
    """A federation, or a method, does not do what it should; the message names the check.

    Examples:
        >>> try:
        ...     require_check(1 + 1 == 3, "counting: 2 is not 3")
        ... except CheckError as error:
        ...     print(error)
        counting: 2 is not 3
    """


def require_check(condition: bool, message: str) -> None:
    """Raise a ``CheckError`` with this message unless the condition holds."""
    if not condition:
        raise CheckError(message)
