"""Complete pages while Sphinx reads them, so that their sources stay plain Markdown.

- A section page lists its pages; the toctree is made of these links, in their order.
- ``<!-- site: NAME -->`` is replaced by what the site generates under this name.
- ``<!-- when there: LINE -->`` is the line if the page that it links exists.
- A link to a file outside of docs/ becomes one to its copy in the site.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence

from website import generated

INDEX = {"index": ("tutorials", "how_to", "reference", "explanation")}
"""The start page, and the sections."""
SECTIONS = ("tutorials", "how_to", "reference", "explanation", "api")
"""Pages whose lists and tables of links are the navigation."""
METHODS = "methods/README"
_ENTRY = re.compile(r"^(?:- |\| )\[([^\]]*)\]\(([\w./]+)\.md\)", re.MULTILINE)
_SLOT = re.compile(r"<!-- when there: (.*\]\(([\w./]+)\.md\).*) -->")
_LINK = re.compile(r"(?<=\]\()[\w./-]+(?=[)#])")


def complete(name: str, text: str, parts: Mapping[str, str]) -> str:
    """Return a page as Sphinx reads it.

    Args:
        name: Name of the page: its path in docs/ without the ending.
        text: The page.
        parts: Generated parts by name.
    """
    if name in INDEX:
        return text + toctree(INDEX[name])
    text = _SLOT.sub(lambda match: match[1] if _exists(name, match[2]) else "", text)
    text = re.sub(r"<!-- site: (\w+) -->", lambda match: parts[match[1]], text)
    if not name.startswith(generated.FOLDER):
        text = _LINK.sub(lambda match: _in_the_site(name, match[0]), text)
    if name == METHODS:
        text += toctree([page for _, page in _ENTRY.findall(text)])  # by the names of the methods
    if name in SECTIONS:
        text += toctree([f"{title} <{page}>" for title, page in _ENTRY.findall(text)])
    return text


def toctree(pages: Sequence[str]) -> str:
    r"""Return a hidden toctree.

    >>> toctree(["a"])
    '\n```{toctree}\n:hidden:\n\na\n```\n'
    """
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def link_pages(lines: list[str]) -> None:
    """Make links of the pages that a docstring names, such as docs/own_data.md."""
    for number, line in enumerate(lines):
        lines[number] = re.sub(r"\bdocs/([\w/]+)\.md\b", _link, line)


def _exists(name: str, target: str) -> bool:
    """Tell whether there is a page, from its address in another one."""
    return (generated.DOCS / posixpath.dirname(name) / f"{target}.md").exists()


def _link(match: re.Match[str]) -> str:
    """Return a link to a page, if there is one."""
    exists = (generated.DOCS / f"{match[1]}.md").exists()
    return f":doc:`/{match[1]}`" if exists else match[0]


def _in_the_site(page: str, target: str) -> str:
    """Return the address of a link, in the site if the site has a copy of the file."""
    folder = posixpath.dirname(f"docs/{page}")
    copy = generated.OUTSIDE.get(posixpath.normpath(posixpath.join(folder, target)))
    if copy is None:
        return target
    return posixpath.relpath(f"docs/{generated.FOLDER}/{copy}.md", folder)
