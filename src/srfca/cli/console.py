"""Printing: styled in a terminal, plain when piped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNLIMITED = 10_000
"""Columns of a console that never wraps."""


def show_error(message: str) -> None:
    """Print a message to standard error, after the name of the program."""
    if not sys.stderr.isatty():
        print(f"srfca: {message}", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    text = Text.assemble(("srfca: ", "bold red"), message)
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)


def show(content: Table | str, style: str | None = None) -> None:
    """Print to standard output.

    In a terminal, text is styled, and the cells of tables are wrapped at spaces. A table whose
    columns do not fit even so is wider than the terminal: no number is ever cut. When piped, each
    line of a table is one line.
    """
    from rich.console import Console

    if sys.stdout.isatty():
        width = None if isinstance(content, str) else _fit(Console(), content)
        Console(highlight=False, markup=False, width=width).print(content, style=style)
    elif isinstance(content, str):
        print(content)
    else:
        plain = Console(width=_UNLIMITED, color_system=None, markup=False)
        with plain.capture() as captured:
            plain.print(content)
        lines = (line.rstrip() for line in captured.get().splitlines())
        print("\n".join(line for line in lines if line), end="\n\n")


def fits(table: Table) -> bool:
    """Return whether a table fits the terminal, no cell wrapped; when piped, any table does."""
    from rich.console import Console

    console = Console()
    unlimited = console.options.update(width=_UNLIMITED)
    width = console.measure(table, options=unlimited).maximum
    return not sys.stdout.isatty() or width <= console.width


def _fit(console: Console, table: Table) -> int:
    """Set the widths of a table's columns, and return the width of a console that holds it.

    Each column is at least as wide as its longest word. What is left of the terminal goes to the
    narrowest columns first, until they hold their longest cell in one line.
    """
    unlimited = console.options.update(width=_UNLIMITED)
    limits = []
    for column in table.columns:
        cells = [console.measure(c, options=unlimited) for c in (column.header, *column.cells)]
        longest = max(cell.maximum for cell in cells)
        limits.append((longest if column.no_wrap else max(c.minimum for c in cells), longest))
    widths = [minimum for minimum, _ in limits]
    frame = 2 * len(widths) + 1
    for _ in range(console.width - frame - sum(widths)):
        growing = [i for i, (_, longest) in enumerate(limits) if widths[i] < longest]
        if not growing:
            break
        widths[min(growing, key=lambda i: widths[i])] += 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    return max(console.width, sum(widths) + frame)
