"""Values from TOML and from the command line, converted to the types of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from srfca.errors import InputError
from srfca.parameters import choices

_TYPES: Mapping[type, str] = {
    NoneType: "'none'",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple: "a list of whole numbers",
}
"""Types that a value can be converted to, the strictest first, with their names in messages."""


def parse(value: Any, annotation: Any, name: str) -> Any:
    """Convert a value to what a type annotation asks for.

    Args:
        value: A string from the command line, or what a TOML file holds.
        annotation: The type of the parameter. Of a union, the strictest type that fits is taken.
            Annotations that are none of None, bool, int, float, str, tuples and literals are
            ignored, unless there is nothing else: then the value's looks decide.
        name: What error messages call the value.

    Returns:
        The converted value.

    Raises:
        InputError: If the value is of none of the types; the message says what is allowed.

    Examples:
        >>> parse("0.5", float | str, "threshold"), parse("auto", float | str, "threshold")
        (0.5, 'auto')
        >>> parse("64,32", tuple[int, ...], "hidden"), parse("none", int | None, "batch_size")
        ((64, 32), None)
    """
    allowed = choices(annotation)
    if isinstance(value, str) and value.strip() in allowed:
        return value.strip()
    types = _types(annotation)
    if not types and not allowed:
        types = [bool, int, float, str]
    for kind in types:
        try:
            return _convert(value, kind)
        except (ValueError, TypeError):
            continue
    raise _not_allowed(value, name, types, allowed)


def _types(annotation: Any) -> list[type]:
    """Return the plain types of an annotation, the strictest first."""
    union = get_origin(annotation) in (Union, UnionType)
    parts = get_args(annotation) if union else (annotation,)
    present = {get_origin(part) or part for part in parts}
    return [kind for kind in _TYPES if kind in present]


def _convert(value: Any, kind: type) -> Any:
    """Convert a value to one type, or raise a ``ValueError`` or ``TypeError``."""
    text = value.strip().lower() if isinstance(value, str) else None
    if kind is NoneType:
        return None if text == "none" else _reject()
    if kind is bool:
        if isinstance(value, bool):
            return value
        return {"true": True, "false": False}[text] if text in ("true", "false") else _reject()
    if isinstance(value, bool):
        return _reject()
    if kind is tuple:
        items = text.strip("[]()").split(",") if text is not None else value
        return tuple(int(item) for item in items if str(item).strip())
    if kind is int:
        return int(text) if text is not None else value if isinstance(value, int) else _reject()
    if kind is float:
        return float(value)
    return str(value)


def _reject() -> Any:
    raise ValueError


def _not_allowed(value: Any, name: str, types: list[type], allowed: tuple[str, ...]) -> InputError:
    """Return an error that says what is allowed, and the choice that is nearest to the value."""
    wanted = [_TYPES[kind] for kind in types]
    if allowed:
        wanted.append(f"one of {', '.join(allowed)}" if len(allowed) > 1 else repr(allowed[0]))
    closest = get_close_matches(str(value), allowed, n=1, cutoff=0.6)
    hint = f": did you mean {closest[0]!r}?" if closest else ""
    return InputError(f"{name} must be {' or '.join(wanted)}, not {value!r}{hint}")
