"""Complete pages while Sphinx reads them, so that their sources stay plain Markdown.

- A section page lists its pages; the toctree is made of these links, in their order.
- ``<!-- site: NAME -->`` is replaced by what the site generates under this name.
- A link to a file outside of docs/ becomes one to its copy in the site.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from website import generated

SECTIONS = ("index", "tutorials", "how_to", "reference", "explanation", "methods/README", "api")
"""Pages whose lists and tables of links are the navigation."""
_ENTRY = re.compile(r"^(?:- |\| )(?:\*\*)?\[[^\]]*\]\(([\w./]+)\.md\)", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()[\w./-]+(?=[)#])")


def complete(name: str, text: str, parts: Mapping[str, str]) -> str:
    """Return a page as Sphinx reads it.

    Args:
        name: Of the page: its path in docs/ without the ending.
        text: The page.
        parts: Generated parts by name.
    """
    text = re.sub(r"<!-- site: (\w+) -->", lambda match: parts[match[1]], text)
    if not name.startswith(generated.FOLDER):
        text = _LINK.sub(lambda match: _in_the_site(name, match[0]), text)
    if name in SECTIONS:
        text += toctree(_ENTRY.findall(text))
    return text


def toctree(pages: list[str]) -> str:
    r"""Return a hidden toctree.

    >>> toctree(["a"])
    '\n```{toctree}\n:hidden:\n\na\n```\n'
    """
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def link_pages(lines: list[str]) -> None:
    """Make links of the pages that a docstring names, such as docs/own_data.md."""
    for number, line in enumerate(lines):
        lines[number] = re.sub(r"\bdocs/([\w/]+)\.md\b", r":doc:`/\1`", line)


def _in_the_site(page: str, target: str) -> str:
    """Return the address of a link, in the site if the site has a copy of the file."""
    folder = posixpath.dirname(f"docs/{page}")
    copy = generated.OUTSIDE.get(posixpath.normpath(posixpath.join(folder, target)))
    if copy is None:
        return target
    return posixpath.relpath(f"docs/{generated.FOLDER}/{copy}.md", folder)
