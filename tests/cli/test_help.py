"""Help: every command has examples that it accepts."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator

import click
import pytest
import typer.main

from srfca.cli.app import app
from srfca.cli.examples import EXAMPLES
from srfca.experiments import config
from srfca.federation.middleware.attacks import ATTACKS
from srfca.methods.registry import method_of
from tests.cli.command import srfca


def commands(command: click.Command, path: str = "srfca") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, f"{path} {name}")


ROOT = typer.main.get_command(app)
LINES = [(path, line) for path, examples in EXAMPLES.items() for _, line in examples]


def test_every_command_has_examples() -> None:
    assert {path for path, _ in commands(ROOT)} == set(EXAMPLES)


@pytest.mark.parametrize("line", [line for _, line in LINES])
def test_examples_use_existing_commands_options_and_values(line: str) -> None:
    command, arguments, path = ROOT, shlex.split(line)[1:], "srfca"
    while isinstance(command, click.Group) and not arguments[0].startswith("-"):
        path += f" {arguments[0]}"
        command, arguments = command.commands[arguments[0]], arguments[1:]
    if command is ROOT:
        assert arguments[0] in {option for p in ROOT.params for option in p.opts}
        return
    values = command.make_context(path, list(arguments)).params
    if "options" not in values and path.split()[1] in ("run", "compare", "tune", "stress"):
        assert values["name"] is None or values["name"] in config.names()
    for key in str(values.get("methods") or values.get("method") or "sr-fca").split(","):
        method_of(key)
    if values.get("attacks"):
        assert values["attacks"] in ATTACKS


@pytest.mark.parametrize("path", EXAMPLES)
def test_help_ends_with_the_examples(path: str) -> None:
    done = srfca(*path.split()[1:], "--help")
    assert done.returncode == 0, done.stderr
    text = done.stdout.partition("\nExamples:\n")[2]
    for what, line in EXAMPLES[path]:
        assert f"  # {what}\n  {line}\n" in text
    assert "\\" not in done.stdout, "nothing is escaped for a terminal"
    assert "..." not in done.stdout.partition("Commands:")[2], "summaries fit in one line"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_help_in_a_terminal_has_a_panel_of_examples() -> None:
    import pty

    os.environ.setdefault("TERM", "xterm")
    pieces: list[bytes] = []

    def read(descriptor: int) -> bytes:
        pieces.append(os.read(descriptor, 65536))
        return pieces[-1]

    code = "from srfca.cli.app import main; import sys; sys.argv = ['srfca', 'list', '-h']; main()"
    assert pty.spawn([sys.executable, "-c", code], read) == 0
    text = b"".join(pieces).decode()
    assert "Examples" in text
    assert "srfca list --json" in text
