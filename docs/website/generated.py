"""Write the pages that are generated: the API, and copies of files outside of docs/."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from website import api

DOCS = Path(__file__).resolve().parents[1]
FOLDER = "_generated"
OUTSIDE = {
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "benchmarks/README.md": "benchmarks",
    "benchmarks/RESULTS.md": "benchmark_results",
    "examples/third_party/README.md": "third_party",
}
"""Pages of the site that are copies of files outside of docs/."""


def write() -> None:
    """Write all generated pages; those that are the same as before are left alone."""
    pages = {f"api/{name}": page for name, page in api.pages().items()}
    pages |= {name: copy_of(path) for path, name in OUTSIDE.items()}
    for name, text in pages.items():
        path = DOCS / FOLDER / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
    for path in (DOCS / FOLDER).rglob("*.md"):
        if path.relative_to(DOCS / FOLDER).with_suffix("").as_posix() not in pages:
            path.unlink()


def copy_of(source: str) -> str:
    """Return a file outside of docs/ with links as they are in the folder of generated pages."""
    text = (DOCS.parent / source).read_text("utf-8")

    def moved(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[0]))
        if target in OUTSIDE:
            return f"{OUTSIDE[target]}.md"
        return posixpath.relpath(target, f"docs/{FOLDER}")

    return re.sub(r"(?<=\]\()(?!https?:|#|mailto:)[\w./-]+(?=[)#])", moved, text)
