"""Ways to damage a file."""

from __future__ import annotations

from hypothesis import strategies as st


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
