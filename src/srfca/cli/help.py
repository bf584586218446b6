"""Help that ends with examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperGroup

from srfca.cli.examples import EXAMPLES

if TYPE_CHECKING:
    from click import Context, HelpFormatter


class Command(TyperCommand):
    """A command whose help ends with its examples."""

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the help, then the examples."""
        super().format_help(ctx, formatter)
        _add_examples(ctx, formatter, self.rich_markup_mode is not None)


class Group(TyperGroup):
    """A group of commands whose help ends with its examples."""

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the help, then the examples."""
        super().format_help(ctx, formatter)
        _add_examples(ctx, formatter, self.rich_markup_mode is not None)


def _add_examples(ctx: Context, formatter: HelpFormatter, styled: bool) -> None:
    """Print a panel of examples in a terminal; else add them to plain help.

    Plain help is also rid of backslashes: typer escapes brackets even if nothing interprets them.
    """
    examples = EXAMPLES.get(ctx.command_path, [])
    if styled:
        _print_panel(examples)
        return
    formatter.buffer[:] = [text.replace("\\[", "[") for text in formatter.buffer]
    if examples:
        formatter.write("\nExamples:\n")
        formatter.write("\n".join(f"  # {what}\n  {line}\n" for what, line in examples))


def _print_panel(examples: list[tuple[str, str]]) -> None:
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    if not examples:
        return
    text = Text("\n\n")
    lines = [Text.assemble((what, "dim"), f"\n{line}") for what, line in examples]
    panel = Panel(text.join(lines), title="Examples", title_align="left", border_style="dim")
    Console(highlight=False).print(panel)
