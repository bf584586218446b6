"""Follow tutorials word for word, each in a new folder, and compare what is printed.

    python tools/tutorials.py                            # all tutorials
    python tools/tutorials.py docs/own_data.md           # one page, or several
    python tools/tutorials.py --fresh docs/own_data.md   # and in a new environment

A page is followed from top to bottom, as a reader would:

- a Python block runs, in one session for the whole page;
- with the comment ``<!-- file: NAME -->`` on the line before it, a block is a file to write;
- in other blocks, a line that begins with ``$`` is a command, and what follows is its output;
- a block without a language that follows a Python block is what that one prints.

Every line of output that the page shows must be printed, except for its numbers, which depend on
the machine a little; a line ``...`` stands for any lines. A block after the comment
``<!-- not run: REASON -->`` is left out. ``pip install`` runs in a new environment only (--fresh),
where srfca is installed from this repository.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = (
    "docs/tutorial_demo.md",
    "docs/own_data.md",
    "docs/tutorial_flights.md",
    "docs/tutorial_network.md",
    "docs/tutorial_flower.md",
)
MARK = "\x1e"
"""Printed before each step, to tell the outputs of steps apart."""


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    Args:
        page: Where it is.
        line: The number of its first line.
        language: What follows the opening fence; empty if nothing does.
        comment: The HTML comment on the line before it, if any.
        text: What is in it.
    """

    page: str
    line: int
    language: str
    comment: str
    text: str

    @property
    def skipped(self) -> bool:
        """Whether the page says that it does not run."""
        return self.comment.startswith("not run: ")

    @property
    def commands(self) -> list[tuple[int, str]]:
        """Commands, with their lines: what follows a ``$``, joined where lines end in a backslash."""
        joined = self.text.replace("\\\n", " " * 2)
        lines = enumerate(joined.splitlines(), self.line)
        return [(number, line[2:].strip()) for number, line in lines if line.startswith("$ ")]


@dataclass(frozen=True)
class Step:
    """Something to do, and the lines that the page says it prints."""

    block: Block
    kind: str  # "python", "file" or "command"
    text: str
    shown: tuple[str, ...]


def blocks(page: str) -> list[Block]:
    """Return the code blocks between fences of a page, in their order."""
    result, comment, fence, lines, start = [], "", "", [], 0
    for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1):
        if fence:
            if line.strip() == "```":
                result.append(Block(page, start, fence[3:], comment, "\n".join(lines) + "\n"))
                fence = comment = ""
            else:
                lines.append(line)
        elif line.lstrip().startswith("```"):
            fence, lines, start = line.strip(), [], number + 1
        else:
            match = re.fullmatch(r"<!-- (.*) -->", line.strip())
            comment = match[1] if match else ""
    return result


def steps(page: str) -> Iterator[Step]:
    """Yield what a reader of the page does."""
    everything = [block for block in blocks(page) if not block.skipped]
    for position, block in enumerate(everything):
        after = everything[position + 1] if position + 1 < len(everything) else None
        if block.comment.startswith("file: "):
            yield Step(block, "file", block.text, ())
        elif block.language == "python":
            is_output = after is not None and not after.language and not after.commands
            shown = after.text.splitlines() if after is not None and is_output else []
            yield Step(block, "python", block.text, tuple(shown))
        elif not block.language:
            yield from command_steps(block)


def command_steps(block: Block) -> Iterator[Step]:
    """Yield the commands of a block, each with its output."""
    command, shown = "", list[str]()
    for line in [*block.text.replace("\\\n", "").splitlines(), "$ "]:
        if line.startswith("$ "):
            if command:
                yield Step(block, "command", command, tuple(shown))
            command, shown = line[2:].strip(), []
        elif command:
            shown.append(line)


def script(page: str, installs: bool = False) -> str:
    """Return a Python program that does the steps of a page in the current folder.

    Args:
        page: The page.
        installs: Whether ``pip install`` runs.
    """
    lines = list[str]()
    for step in steps(page):
        lines.append(f"print({MARK!r}, flush=True)")
        match step.kind:
            case "file":
                name = step.block.comment.removeprefix("file: ")
                lines.append(f"write_file({name!r}, {step.text!r})")
            case "python":
                code = "\n" * (step.block.line - 1) + step.text
                lines.append(f"exec(compile({code!r}, {page!r}, 'exec'), names)")
            case _ if "pip install" in step.text and not installs:
                pass
            case _:
                lines.append(f"run_command({step.text!r})")
    return PREAMBLE + "".join(f"    {line}\n" for line in lines)


PREAMBLE = '''
import os, shlex, subprocess, sys
from pathlib import Path

def write_file(name, text):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)

def run_command(line):
    """Run a command of the page; srfca in this process, which has imported torch already."""
    words = shlex.split(line, comments=True)
    if words[0] != "srfca" or words[1] == "flower":
        subprocess.run(line, shell=True, check=True, executable="/bin/bash")
        return
    from srfca.cli.app import main
    before, sys.argv = sys.argv, words
    sys.path.insert(0, "")
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{line}: exit code {end.code}") from None
    finally:
        sys.argv = before

if __name__ == "__main__":  # processes of srfca import this file again
    names = {"__name__": "__main__"}
'''


def follow(page: str, folder: Path, python: str = sys.executable, installs: bool = False) -> str:
    """Do the steps of a page in a folder, and check what they print.

    Args:
        page: The page.
        folder: A new folder.
        python: The interpreter.
        installs: Whether ``pip install`` runs.

    Returns:
        What was printed.

    Raises:
        AssertionError: If a step fails, or if the page shows a line that no step printed.
    """
    programs = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")])
    env = {**os.environ, "PATH": programs, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    if installs:
        env.pop("PYTHONPATH", None)  # srfca is the one that is installed
    (folder / ".page.py").write_text(script(page, installs), "utf-8")
    done = subprocess.run(
        [python, ".page.py"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{page}: {done.stderr[-2000:]}"
    outputs = done.stdout.split(f"{MARK}\n")[1:]
    for step, output in zip(steps(page), outputs, strict=True):
        if "pip install" not in step.text or installs:
            missing = missing_lines(step.shown, output)
            assert not missing, (
                f"{page}, block in line {step.block.line}: the page shows {missing[0]!r}; "
                f"it is not in what was printed:\n{output}"
            )
    return done.stdout


def missing_lines(shown: Sequence[str], output: str) -> list[str]:
    """Return the lines that a page shows, and that were not printed, apart from numbers."""
    printed = {words(line) for line in output.splitlines()}
    return [line for line in shown if line.strip() != "..." and words(line) not in printed]


def words(line: str) -> str:
    r"""Return a line without its numbers, and with single spaces.

    >>> words("| SR-FCA |   95.52 ± 1.2 |")
    '| SR-FCA | # ± # |'
    """
    return re.sub(r"[\s-]+", " ", re.sub(r"[-+]?\d[\d,]*(\.\d+)?(e-?\d+)?", "#", line)).strip()


def new_environment(folder: Path) -> str:
    """Make an environment with srfca from this repository, and return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*install, "torch"], check=True)
    subprocess.run([*install, str(ROOT)], check=True)
    return python


def main() -> int:
    """Follow the pages, and say which ones work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("pages", nargs="*", default=TUTORIALS)
    parser.add_argument("--fresh", action="store_true", help="also make a new environment")
    arguments = parser.parse_args()
    failed = 0
    for page in arguments.pages:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "work"
            folder.mkdir()
            try:
                python = new_environment(Path(name) / "env") if arguments.fresh else sys.executable
                follow(page, folder, python, arguments.fresh)
                print(f"{page}: works as printed", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{page}: FAILED\n{error}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
