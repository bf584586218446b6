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
    """The content cut short, made longer, or with a few bits flipped."""
    match draw(st.sampled_from(["cut", "grown", "flipped"])):
        case "cut":
            return content[: draw(st.integers(0, len(content) - 1))]
        case "grown":
            return content + draw(st.binary(min_size=1, max_size=9))
    changed = bytearray(content)
    for place in draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=3)):
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def attempt(read: Callable[[Path], T], path: Path, content: bytes) -> T | None:
    """What is read from a file with this content, or None where it is refused by name."""
    path.write_bytes(content)
    try:
        return read(path)
    except InputError as error:
        if str(path) not in str(error) and str(path.parent) not in str(error):
            raise AssertionError(f"does not name the file: {error}") from error
        return None
