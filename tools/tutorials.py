"""Follow tutorials word for word, each in a new folder, and compare what is printed.

    python tools/tutorials.py                            # all tutorials
    python tools/tutorials.py docs/own_data.md           # one page, or several
    python tools/tutorials.py --numbers                  # and print lines whose numbers differ
    python tools/tutorials.py --fresh docs/own_data.md   # and in a new environment

A page is followed from top to bottom, as a reader would:

- a Python block runs, in one session for the whole page;
- with the comment ``<!-- file: NAME -->`` on the line before it, a block is a file to write;
- in other blocks, a line that begins with ``$`` is a command, and what follows is its output;
- a block without a language that follows a Python block is what that one prints.

Every line of output that the page shows must be printed, except for its numbers, which depend on
the machine a little; a line ``...`` stands for any lines. A block after the comment
``<!-- not run: REASON -->`` is left out. With --fresh, all that the page installs by ``pip`` is
installed into a new environment first, srfca from this repository; otherwise it has to be there.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = (
    "docs/tutorial_demo.md",
    "docs/own_data.md",
    "docs/tutorial_flights.md",
    "docs/tutorial_network.md",
    "docs/tutorial_flower.md",
    "docs/tutorial_ray.md",
)
MARK = "\x1e"
"""Printed before each step, to tell the outputs of steps apart."""
PAGE, FAILED = "\x1d", "\x1c"
"""Printed before each page, and before the error of one that failed."""
IGNORED = (
    "-W", "ignore:the local algorithm",  # PerformanceWarning: some methods train client by client
    "-W", "ignore::DeprecationWarning:flwr",
)  # fmt: skip
"""Warnings that are no errors while pages are followed."""


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

    def follows(self, other: Block) -> bool:
        """Return whether there is nothing but an empty line between another block and this one."""
        return self.line - 1 == other.line + other.text.count("\n") + 2

    @property
    def commands(self) -> list[tuple[int, str]]:
        """Commands, with their lines: what follows a ``$``; a backslash joins two lines."""
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
    result: list[Block] = []
    lines: list[str] = []
    comment, fence, start = "", "", 0
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
            shown: list[str] = []
            if after and not after.language and not after.commands and after.follows(block):
                shown = after.text.splitlines()
            yield Step(block, "python", block.text, tuple(shown))
        elif not block.language:
            yield from command_steps(block)


def command_steps(block: Block) -> Iterator[Step]:
    """Yield the commands of a block, each with its output."""
    command, shown = "", list[str]()
    for line in [*block.text.replace("\\\n", "").splitlines(), "$ "]:
        if line.startswith("$ "):
            if command and not command.startswith("pip "):
                yield Step(block, "command", command, tuple(shown))
            command, shown = line[2:].strip(), []
        elif command:
            shown.append(line)


def script(pages: Sequence[str]) -> str:
    """Return a Python program that does the steps of pages, each in a folder of its own."""
    lines = [PREAMBLE]
    for page in pages:
        lines.append(f"@page({page!r})\ndef follow(names):\n    pass")
        for step in steps(page):
            lines.append(f"    print({MARK!r}, flush=True)")
            match step.kind:
                case "file":
                    name = step.block.comment.removeprefix("file: ")
                    lines.append(f"    write_file({name!r}, {step.text!r})")
                case "python":
                    code = "\n" * (step.block.line - 1) + step.text
                    lines.append(f"    exec(compile({code!r}, {page!r}, 'exec'), names)")
                case _:
                    lines.append(f"    run_command({step.text!r})")
    return "\n".join(lines) + "\n"


PREAMBLE = '''
import os, shlex, shutil, subprocess, sys, traceback
from pathlib import Path

FOLDER = Path(__file__).parent

def page(name):
    """Follow a page in a new folder; a page that fails does not end the others."""
    def run(follow):
        if __name__ != "__main__":  # processes of srfca import this file again
            return
        folder = FOLDER / name.removesuffix(".md").replace("/", "-")
        folder.mkdir()
        os.chdir(folder)
        print(PAGE + name, flush=True)
        try:
            follow({"__name__": "__main__"})
        except BaseException:
            print(FAILED + traceback.format_exc(), flush=True)
    return run

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
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{line}: exit code {end.code}") from None
    finally:
        sys.argv = before

sys.path[0] = ""  # the current folder
'''
PREAMBLE = f"PAGE, FAILED = {PAGE!r}, {FAILED!r}\n{PREAMBLE}"


def follow(pages: Sequence[str], folder: Path, python: str = sys.executable) -> dict[str, str]:
    """Do the steps of pages, and check what they print.

    Args:
        pages: The pages.
        folder: A new folder; each page has a folder in it.
        python: The interpreter; another one than this does not see the sources of this repository.

    Returns:
        What is wrong with each page that fails.
    """
    outputs = run_pages(pages, folder, python)
    problems = {page: problem(page, outputs[page]) for page in pages}
    return {page: text for page, text in problems.items() if text}


def run_pages(pages: Sequence[str], folder: Path, python: str) -> dict[str, str]:
    """Do the steps of pages, and return all that each of them prints, and the error if it fails."""
    programs = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")])
    env = {
        **os.environ,
        "PATH": programs,
        "FLWR_HOME": str(folder / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    if python != sys.executable:
        env.pop("PYTHONPATH", None)
    program = folder / "follow_pages.py"
    program.write_text(script(pages), "utf-8")
    try:
        done = subprocess.run(
            [python, "-W", "error", *IGNORED, str(program)],
            cwd=folder, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        end_flower(folder)
    outputs = dict(part.split("\n", 1) for part in done.stdout.split(PAGE)[1:])
    return {page: outputs.get(page, FAILED + done.stderr) for page in pages}


def problem(page: str, printed: str) -> str:
    """Return what is wrong with a page, given all that it printed; nothing if it works."""
    printed, _, error = printed.partition(FAILED)
    if error:
        return f"{page} fails:\n{error[-3000:]}"
    for step, output in zip(steps(page), printed.split(f"{MARK}\n")[1:], strict=True):
        missing = missing_lines(step.shown, output)
        if missing:
            return (
                f"{page}, the block in line {step.block.line}: {missing[0]!r} is shown, but it is "
                f"not in what was printed:\n{output}"
            )
    return ""


def stale_lines(page: str, printed: str) -> list[str]:
    """Return the lines that a page shows with other numbers than were printed, spaces aside."""
    stale = []
    for step, output in zip(steps(page), printed.split(f"{MARK}\n")[1:], strict=True):
        exact = {" ".join(line.split()) for line in output.splitlines()}
        shown = (line for line in step.shown if line.strip() != "...")
        stale += [line for line in shown if " ".join(line.split()) not in exact]
    return stale


def end_flower(folder: Path) -> None:
    """End the processes that Flower has left in the background for the pages of a folder."""
    mark = f"FLWR_HOME={folder / 'flwr'}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


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


def requirements(page: str) -> list[list[str]]:
    """Return what each ``pip install`` of a page installs, with srfca from this repository."""
    text = (ROOT / page).read_text("utf-8")
    lines = re.findall(r"^(?:    |\$ )?pip install (.*)$", text, re.MULTILINE)
    return [
        [re.sub(r"^srfca(?=\[|$)", str(ROOT), word) for word in shlex.split(line, comments=True)]
        for line in lines
    ]


def new_environment(folder: Path, page: str) -> str:
    """Make an environment with what a page installs, and return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*install, "torch"], check=True)  # first, as in the Makefile
    for needed in requirements(page) or [[str(ROOT)]]:
        subprocess.run([*install, *needed], check=True)
    return python


def main() -> int:
    """Follow the pages, and say which ones work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("pages", nargs="*", default=TUTORIALS)
    parser.add_argument("--fresh", action="store_true", help="also make a new environment")
    parser.add_argument("--numbers", action="store_true", help="print lines of other numbers")
    arguments = parser.parse_args()
    failed = 0
    for page in arguments.pages:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            python = sys.executable
            if arguments.fresh:
                python = new_environment(folder / "env", page)
            printed = run_pages([page], folder, python)[page]
            wrong = problem(page, printed)
            failed += bool(wrong)
            print(wrong or f"{page}: works as printed", flush=True)
            if arguments.numbers and not wrong:
                print("\n".join(stale_lines(page, printed)), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
