"""Check the site that was built: links inside of it, titles, texts of images, headings.

    python docs/website/check.py FOLDER    # exit code 1 if something is wrong

Nothing outside of the folder is opened, and no network is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What matters of a page.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.language = ""
        self.title = ""
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str]] = []
        self.headings: list[int] = []
        self._in_title = False
        self._in_article = False
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag says."""
        values = {name: value or "" for name, value in attrs}
        if tag == "html":
            self.language = values.get("lang", "")
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "title" and not self.title:
            self._in_title = True
        if tag == "article":
            self._in_article = True
        if tag == "img":
            self.images.append(values)
        if self._in_article and len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            self.headings.append(int(tag[1]))
        for name in ("href", "src"):
            if values.get(name):
                self.links.append(values[name])

    def handle_endtag(self, tag: str) -> None:
        """Note where the title and the article end."""
        self._in_title = self._in_title and tag != "title"
        self._in_article = self._in_article and tag != "article"

    def handle_data(self, data: str) -> None:
        """Note the title."""
        if self._in_title:
            self.title += data


def problems(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the site in a folder."""
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        yield f"{folder} has no pages"
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        yield from (f"{name}: {problem}" for problem in of_page(page))
        for link in page.links:
            problem = broken(link, path, pages)
            if problem:
                yield f"{name}: {problem}"


def of_page(page: Page) -> Iterator[str]:
    """Yield what is wrong with a page by itself."""
    if not page.language:
        yield "has no language"
    if not page.title.strip():
        yield "has no title"
    for image in page.images:
        if not image.get("alt", "").strip() or image["alt"] == image.get("src"):
            yield f"the image {image.get('src')} has no text for those who cannot see it"
    if page.headings and page.headings.count(1) != 1:
        yield f"has {page.headings.count(1)} first headings"
    for before, after in zip(page.headings, page.headings[1:], strict=False):
        if after > before + 1:
            yield f"a heading of level {after} follows one of level {before}"
    for identifier in sorted({i for i in page.ids if page.ids.count(i) > 1}):
        yield f"the id {identifier!r} is there more than once"


def broken(link: str, path: Path, pages: dict[Path, Page]) -> str:
    """Return what is wrong with a link of a page; nothing if it works, or leads outside."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.exists():
        return f"the link {link} leads nowhere"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        return f"the link {link} leads to a place that is not on the page"
    return ""


def main() -> int:
    """Check a folder, and print what is wrong."""
    folder = Path(sys.argv[1])
    found = list(problems(folder))
    for line in found:
        print(line, file=sys.stderr)
    number = len(list(folder.rglob("*.html")))
    print(f"{number} pages checked, {len(found)} problems")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
