"""Markdown: lines of tables, and generated parts of documents."""

from __future__ import annotations

from collections.abc import Sequence

from srfca.errors import require


def table_line(cells: Sequence[str]) -> str:
    r"""Return a line of a table.

    >>> table_line(["a", "b|c"])
    '| a | b\\|c |\n'
    """
    escaped = (cell.replace("\n", " ").replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |\n"


def replace_generated(text: str, name: str, content: str) -> str:
    r"""Replace what stands between the markers of a generated part of a document.

    Args:
        text: The document.
        name: Name of the part; its markers are the comments ``NAME:begin`` and ``NAME:end``.
        content: What to put between them.

    Raises:
        InputError: If the document does not have each marker once.

    Examples:
        >>> replace_generated("a\n<!-- t:begin -->\nold\n<!-- t:end -->\nb", "t", "new\n")
        'a\n<!-- t:begin -->\nnew\n<!-- t:end -->\nb'
    """
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    for marker in (begin, end):
        require(text.count(marker) == 1, f"the document must have the line {marker.strip()!r} once")
    before, _, rest = text.partition(begin)
    return before + begin + content + end + rest.partition(end)[2]
