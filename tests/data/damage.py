"""Ways to damage a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hypothesis import strategies as st

from srfca.errors import InputError

T = TypeVar("T")


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw content that is truncated, extended, or has a few bits flipped."""
    match draw(st.sampled_from(["truncated", "extended", "flipped"])):
        case "truncated":
            return content[: draw(st.integers(0, len(content) - 1))]
        case "extended":
            return content + draw(st.binary(min_size=1, max_size=9))
    changed = bytearray(content)
    for bit in draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=3)):
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def read_or_refuse(read: Callable[[Path], T], path: Path, content: bytes) -> T | None:
    """Read a file with this content; return None if an ``InputError`` names the file."""
    path.write_bytes(content)
    try:
        return read(path)
    except InputError as error:
        if str(path) not in str(error) and str(path.parent) not in str(error):
            raise AssertionError(f"does not name the file: {error}") from error
        return None
