"""Generated parts of the reference: the command line, experiments and data sets."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
import typer

from srfca.cli.app import app
from srfca.cli.examples import EXAMPLES
from srfca.data import DATASETS
from srfca.experiments import config
from srfca.report.markdown import table_line
from srfca.report.methods import summary_line


def commands() -> str:
    """Return all commands in Markdown: usage, what they do, options, examples."""
    return "\n".join(command(context) for context in contexts(typer.main.get_command(app)))


def contexts(
    start: click.Command, name: str = "srfca", parent: click.Context | None = None
) -> Iterator[click.Context]:
    """Yield the context of each command that does something, in the order of the help."""
    context = click.Context(start, parent=parent, info_name=name)
    if isinstance(start, click.Group):
        for key in start.list_commands(context):
            yield from contexts(start.commands[key], key, context)
    else:
        yield context


def command(context: click.Context) -> str:
    """Return the section of a command."""
    usage = " ".join(context.command.collect_usage_pieces(context))
    text = f"## {context.command_path}\n\n{paragraphs(context.command.help or '')}\n\n"
    text += f"```text\n{context.command_path} {usage}\n```\n\n"
    arguments = [p for p in context.command.params if isinstance(p, click.Argument)]
    options = [p for p in context.command.params if isinstance(p, click.Option) and not p.hidden]
    text += table_line(["argument or option", "meaning"]) + table_line(["---"] * 2)
    for argument in arguments:
        name = f"`{argument.make_metavar(context).strip('[]').removesuffix(']...')}`"
        text += table_line([name, plain(getattr(argument, "help", "") or "")])
    for option in options:
        text += table_line([option_name(option, context), plain(option.help or "")])
    examples = "\n".join(f"{line}    # {what}" for what, line in EXAMPLES[context.command_path])
    return f"{text}\n```text\n{examples}\n```\n"


def option_name(option: click.Option, context: click.Context) -> str:
    """Return how an option is written, with its value."""
    names = [f"`{name}`" for name in (*option.opts, *option.secondary_opts)]
    if not option.is_flag and not option.count:
        names[-1] = f"`{option.opts[-1]} {option.make_metavar(context)}`"
    return ", ".join(names)


def experiments() -> str:
    """Return tables of the presets and of the data sets, in Markdown."""
    heads = ["experiment", "what it is", "clusters", "data set", "model", "needs"]
    text = "## Experiments\n\n" + table_line(heads) + table_line(["---"] * len(heads))
    for name in config.names():
        preset = config.read(name)
        data, model = (preset.sections[part].get("name", "") for part in ("data", "model"))
        cells = [f"`{name}`", preset.description, preset.clusters, f"`{data}`", f"`{model}`"]
        text += table_line([*cells, preset.needs or ""])
    text += "\n## Data sets\n\n" + table_line(["key", "what it is", "parameters"])
    text += table_line(["---"] * 3)
    for key, dataset in sorted(DATASETS.items().items()):
        names = [f"`{name}`" for name in inspect.signature(dataset).parameters]
        text += table_line([f"`{key}`", summary_line(dataset, "`"), ", ".join(names)])
    return text


def plain(text: str) -> str:
    """Return a help text in one line that Markdown shows as it is written."""
    return " ".join(text.split()).replace("<", "\\<").replace("*", "\\*").replace("[", "\\[")


def paragraphs(text: str) -> str:
    """Return the paragraphs of a help text."""
    return "\n\n".join(plain(part) for part in inspect.cleandoc(text).split("\n\n"))
