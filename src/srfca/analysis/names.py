"""Lists of names that are short enough to read."""

from __future__ import annotations

from collections.abc import Sequence


def short_list(names: Sequence[str], limit: int = 8) -> str:
    """Return names, the first ones if there are more than ``limit``.

    >>> short_list(["ann", "bob", "cy"]), short_list(["ann", "bob", "cy"], limit=2)
    ('ann, bob, cy', 'ann, bob and 1 more')
    """
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])} and {len(names) - limit:,} more"


def count_of(count: int, word: str) -> str:
    """Return a number and a word, in the plural where it belongs.

    >>> count_of(1, "client"), count_of(3000, "client")
    ('1 client', '3,000 clients')
    """
    return f"{count:,} {word}{'s' * (count != 1)}"


def signed(value: float, form: str) -> str:
    """Return a number with its sign; one that is rounded to 0 has none.

    >>> signed(3.21, ".1f"), signed(-0.04, ".1f"), signed(-0.5, ".1f")
    ('+3.2', '0.0', '-0.5')
    """
    text = format(value, f"+{form}")
    return text[1:] if float(text) == 0 else text


def percent(probability: float) -> str:
    """Return a probability in percent; nothing is certain.

    >>> percent(0.973), percent(0.999), percent(0.001)
    ('97%', '>99%', '<1%')
    """
    if probability > 0.995:
        return ">99%"
    return "<1%" if probability < 0.005 else f"{probability:.0%}"
