"""Links between Markdown files, as GitHub shows them: files exist, and so do headings."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.markdown import ROOT

FOLDERS = ("", "docs", "docs/methods", "benchmarks", "examples", "examples/third_party")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    assert [link for link in links(path) if not leads_somewhere(path, link)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pictures_say_what_they_show(path: Path) -> None:
    """For those who cannot see them: in Markdown and in HTML."""
    text = without_code(path)
    assert re.findall(r"!\[\s*\]\([^)]*\)", text) == []
    pictures = re.findall(r"<img [^>]*>", text)
    assert [picture for picture in pictures if not re.search(r'alt="[^"]+"', picture)] == []


def test_every_page_is_in_the_navigation() -> None:
    """The section pages of the site list every page; so does the table of methods."""
    sections = ("index", "tutorials", "how_to", "reference", "explanation", "methods/README")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*.md")}
    pages |= {f"methods/{path.name}" for path in (ROOT / "docs/methods").glob("*.md")}
    listed = {"index.md"}
    for section in sections:
        path = ROOT / "docs" / f"{section}.md"
        for link in links(path, with_slots=True):
            target = (path.parent / link.partition("#")[0]).resolve()
            if target.is_relative_to(ROOT / "docs"):
                listed.add(target.relative_to(ROOT / "docs").as_posix())
    assert sorted(pages - listed) == []


def links(path: Path, with_slots: bool = False) -> list[str]:
    """Return the links of a file that stay in the repository.

    Args:
        path: The file.
        with_slots: Also those in comments ``when there: ...``, whose page may not exist.
    """
    text = without_code(path)
    if not with_slots:
        text = re.sub(r"<!-- when there: .* -->", "", text)
    found = [one or other for one, other in LINK.findall(text)]
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


def leads_somewhere(path: Path, link: str) -> bool:
    """Return whether a link has a file, and the file the heading."""
    place, _, fragment = link.partition("#")
    target = (path.parent / unquote(place)).resolve() if place else path
    if not target.exists():
        return False
    return not fragment or target.suffix != ".md" or fragment in anchors(target)


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a file, as GitHub makes them."""
    result: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", without_blocks(path), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        number = 0
        while (name := f"{anchor}-{number}" if number else anchor) in result:
            number += 1
        result.add(name)
    return result


@cache
def without_code(path: Path) -> str:
    """Return a file without its code blocks, and with a word for each code span."""
    return re.sub(r"`[^`\n]*`", "code", without_blocks(path))


@cache
def without_blocks(path: Path) -> str:
    """Return a file without its code blocks."""
    text = path.read_text("utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
