"""Count catch-all names and private phrases in the sources and the documentation.

    python tools/words.py             # what is left, by place, and the total
    python tools/words.py --check     # exit code 1 if there is more than ALLOWED

Names are identifiers of Python code: variables, parameters, functions, attributes, keyword
arguments. Words and phrases are looked for in the text of docs, docstrings, comments and messages.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("who", "found", "own", "known", "told", "some", "mine", "theirs", "here", "asked", "whole")
"""Identifiers that do not say what they hold."""
WORDS = (
    "who", "told", "mine", "theirs", "silent", "go on", "goes on", "bear", "bears", "mend", "mends",
    "mended", "besides", "anew", "as of", "whoever",
)  # fmt: skip
"""Words of prose that usually stand for a plainer one."""
OF_THE = re.compile(r"^\s+\*{0,2}\w+: Of\b")
"""The description of an argument that does not say what it is: ``name: Of the run.``"""
PHRASES = (
    "tells nobody", "is told of", "goes without it", "is not so", "its own affair", "at the least",
    "can mend", "the house", "who does not answer", "as of every method", "so many", "as it is",
    "is heard", "optimiser", "personalis", "normalis", "initialis", "maximis", "minimis",
    "neighbour", "centre", "labelled", "behaviour", "colour", "vectoris", "randomis", "recognis",
)  # fmt: skip
"""Phrases of a private language, and British spelling."""
ALLOWED = {
    # Keys of random draws: their text decides every draw, so a change would change all results.
    ("src/srfca/methods/_common/finetune.py", "personalis"),
    ("src/srfca/methods/fedsoft.py", "centre"),
}
"""Places and words that stay, each for the reason above it."""


class Place(NamedTuple):
    """One occurrence."""

    path: str
    line: int
    word: str
    kind: str


def main() -> int:
    """Print what is left."""
    places = [place for path in files() for place in places_in(path)]
    left = [place for place in places if (place.path, place.word) not in ALLOWED]
    for place in left:
        print(f"{place.path}:{place.line}: {place.kind} {place.word!r}")
    counts = Counter(place.kind for place in left)
    kinds = ", ".join(f"{counts[kind]} {kind}s" for kind in ("name", "word", "phrase"))
    print(f"{len(left)} left ({kinds}); {len(places) - len(left)} stay for a reason")
    return int("--check" in sys.argv and bool(left))


def files() -> Iterator[Path]:
    """Yield the sources and the documentation."""
    yield from sorted((ROOT / "src").rglob("*.py"))
    pages = sorted((ROOT / "docs").rglob("*.md"))
    yield from (page for page in pages if "/_" not in page.as_posix())  # _build, _generated
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "examples").rglob("*.ipynb"))


def places_in(path: Path) -> Iterator[Place]:
    """Yield the occurrences in one file."""
    text, name = path.read_text(), str(path.relative_to(ROOT))
    if path.suffix == ".py":
        for identifier, line in identifiers(text):
            if identifier.strip("_") in NAMES:
                yield Place(name, line, identifier, "name")
    for number, line_text in enumerate(text.splitlines(), 1):
        prose = line_text.lower()
        for word in WORDS:
            if re.search(rf"\b{word}\b", prose) and name != "docs/glossary.md":
                yield Place(name, number, word, "word")
        if path.suffix == ".py" and OF_THE.match(line_text):
            yield Place(name, number, ": Of", "phrase")
        for phrase in PHRASES:
            if re.search(rf"\b{phrase}", prose):
                yield Place(name, number, phrase, "phrase")


def identifiers(source: str) -> Iterator[tuple[str, int]]:
    """Yield the identifiers that a Python file defines or uses, with their lines."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.keyword(arg=str(name)):
                yield name, node.value.lineno
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno


if __name__ == "__main__":
    sys.exit(main())
