"""Every code block of the documentation: Python runs, commands and settings can be read.

Python blocks run as printed, page by page, each page in its own folder and session. A block that
cannot run has the comment ``<!-- not run: REASON -->`` on the line before it. Commands are compared
with what the program, the scripts and the Makefile take; those that are a part of a tutorial
(``$ srfca ...``) also run, see tools/tutorials.py.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from tools.tutorials import TUTORIALS, blocks, follow

from srfca.cli.app import app
from srfca.errors import InputError
from srfca.experiments import config
from srfca.experiments.paper.plan import load_rows
from srfca.methods.registry import method_key, method_of
from tests.docs.markdown import ROOT

PAGES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("", "docs", "docs/methods", "benchmarks", "examples/third_party")
    for path in sorted((ROOT / folder).glob("*.md"))
]
ELSEWHERE = {
    *TUTORIALS, "README.md", "docs/add_a_method.md", "docs/data.md", "docs/models.md",
    "docs/newcomers.md", "docs/robustness.md", "docs/theory.md", "docs/methods/sr_fca_literal.md",
}  # fmt: skip
"""Pages whose Python blocks other tests run."""
METHOD_PAGES = [page for page in PAGES if page.startswith("docs/methods/")]
REST = [page for page in PAGES if page not in METHOD_PAGES]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
ON_EXPERIMENTS = ("run", "compare", "tune", "stress")
"""Commands that take the name of an experiment."""
OF_THE_EXAMPLE = "fedavgm"
"""The method of the package in examples/third_party, which is not installed here."""


def has_python(page: str) -> bool:
    return any(block.language == "python" and not block.skipped for block in blocks(page))


@pytest.mark.parametrize(
    "pages", [METHOD_PAGES, REST[::2], REST[1::2]], ids=["methods", "half", "other half"]
)
def test_python_blocks_run_as_printed(pages: list[str], tmp_path: Path) -> None:
    """One process for many pages, because importing torch takes seconds."""
    chosen = [page for page in pages if page not in ELSEWHERE and has_python(page)]
    assert not follow(chosen, tmp_path)


def test_pages_that_run_elsewhere_exist() -> None:
    assert set(PAGES) >= ELSEWHERE


@pytest.mark.parametrize("page", PAGES)
def test_commands_can_be_read(page: str) -> None:
    for line, command in commands(page):
        try:
            check_command(shlex.split(command, comments=True))
        except (AssertionError, ValueError, InputError, click.ClickException) as error:
            text = error.format_message() if isinstance(error, click.ClickException) else error
            pytest.fail(f"{page}, line {line}: {command}\n{text}")


@pytest.mark.parametrize("page", PAGES)
def test_settings_can_be_read(page: str) -> None:
    for block in blocks(page):
        if block.language == "toml" and not block.skipped:
            tomllib.loads(block.text)
        if block.language == "json" and not block.skipped:
            json.loads(block.text)


def commands(page: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of code blocks, fenced or indented, that are commands."""
    start = re.compile(r"(?:\$ )?((?:[A-Z_]+=\S+ )*(?:srfca|python|make|pip) .*)")
    joined = re.sub(r"\\\n *", " ", (ROOT / page).read_text("utf-8"))
    language, fenced, skipped = "", False, False
    for number, line in enumerate(joined.splitlines(), 1):
        if line.startswith("```"):
            fenced, language = not fenced, line[3:].strip()
        elif line.startswith("<!-- not run: "):
            skipped = True
        elif fenced and language in ("", "text", "console", "bash") and not skipped:
            match = start.fullmatch(line)
            if match:
                yield number, re.sub(r"^(?:[A-Z_]+=\S+ )*", "", match[1])
        elif not fenced:
            skipped = skipped and not line.strip()
            match = start.fullmatch(line[4:]) if line.startswith("    ") else None
            if match:
                yield number, re.sub(r"^(?:[A-Z_]+=\S+ )*", "", match[1])


def check_command(words: list[str]) -> None:
    """Check that a command is one that a user can give."""
    program, *rest = words
    for end in (";", "|", "&&"):
        if end in rest:
            rest = rest[: rest.index(end)]
    if program == "make":
        assert all(word in TARGETS or "=" in word or "/" in word for word in rest), "no such target"
    elif program == "pip":
        extras = re.findall(r"srfca\[([\w,]+)\]", " ".join(rest))
        for name in ",".join(extras).split(",") if extras else []:
            assert name in PYPROJECT["project"]["optional-dependencies"], f"no extra {name!r}"
    elif program == "python" and rest[0] == "-m":
        assert find_spec(rest[1]) is not None, f"no module {rest[1]!r}"
    elif program == "python":
        script = ROOT / rest[0]
        assert script.exists(), f"no script {rest[0]!r}"
        for flag in (word for word in rest if word.startswith("--")):
            name = flag.partition("=")[0]
            assert name in script.read_text("utf-8") or name[2:].replace("-", "_") in all_scripts()
    else:
        check_srfca(rest)


def all_scripts() -> str:
    """Return the sources of all benchmarks, which share options."""
    return "".join(path.read_text("utf-8") for path in (ROOT / "benchmarks").glob("*.py"))


def check_srfca(words: list[str]) -> None:
    """Check that ``srfca`` takes the words, and that experiments, methods and settings exist."""
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command, info_name="srfca")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, child, words = command.resolve_command(context, words)
        assert child is not None
        command, context = child, click.Context(child, info_name=name, parent=context)
    if isinstance(command, click.Group) or {"-h", "--help"} & set(words):
        return
    context = command.make_context(command.name, list(words))
    options = context.params
    known = {"all", OF_THE_EXAMPLE}
    keys = [key for key in methods_of(options) if not is_class(key) and key not in known]
    if command.name == "reproduce":
        assert set(keys) <= set(load_rows())
        return
    for key in keys:
        method_of(method_key(key))
    if command.name in ON_EXPERIMENTS and is_preset(options.get("name")):
        left_out = ("KEY", OF_THE_EXAMPLE, "my_module")
        assignments = [value for value in options["set_"] or [] if not value.startswith(left_out)]
        config.load(options["name"]).with_methods(map(method_key, keys)).set(assignments)


def is_preset(name: object) -> bool:
    """Return whether a name is of an experiment that comes with srfca, and not a file or NAME."""
    return isinstance(name, str) and name == name.lower() and not name.endswith(".toml")


def methods_of(options: dict[str, Any]) -> list[str]:
    """Return the methods that a command names."""
    several = str(options.get("methods") or "")
    return [key for key in [*several.split(","), str(options.get("method") or "")] if key]


def is_class(key: str) -> bool:
    """Return whether a method is given by its class."""
    return ":" in key and key.split(":")[1][:1].isupper()
