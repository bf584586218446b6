"""How pages become pages of the site, and the check of what was built; ``make docs`` builds it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.markdown import ROOT
from tests.docs.test_docstrings import classes, functions, public_parts

DOCS = ROOT / "docs"
PAGE = """<!DOCTYPE html><html lang="en"><head><title>t</title></head><body>
<article><h1 id="top">T</h1>{}</article></body></html>"""


@pytest.fixture
def website(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package in docs/ can be imported, as docs/conf.py does it."""
    monkeypatch.syspath_prepend(str(DOCS))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "website"]:
        del sys.modules[name]


def module(name: str) -> ModuleType:
    return import_module(f"website.{name}")


@pytest.mark.usefixtures("website")
def test_a_section_page_gets_a_toctree_of_its_links() -> None:
    text = "# S\n\n- [One](one.md): about [two](two.md)\n- [Three](three.md)\n"
    complete = module("pages").complete
    assert complete("how_to", text, {}).endswith(
        "```{toctree}\n:hidden:\n\nOne <one>\nThree <three>\n```\n"
    )
    assert complete("own_data", text, {}) == text
    assert "tutorials\nhow_to\nreference\nexplanation" in complete("index", text, {})


@pytest.mark.usefixtures("website")
def test_a_slot_is_filled_when_its_page_is_there() -> None:
    complete = module("pages").complete
    assert complete("data", "a\n<!-- when there: [X](no_page.md) -->", {}) == "a\n"
    assert complete("data", "a\n<!-- when there: [X](answer.md) -->", {}) == "a\n[X](answer.md)"


@pytest.mark.usefixtures("website")
def test_generated_parts_and_copies_take_their_places() -> None:
    complete = module("pages").complete
    assert complete("api", "a\n<!-- site: api -->\n", {"api": "PART"}).startswith("a\nPART\n")
    text = "[c](../CHANGELOG.md) [e](../examples/own_data.py)"
    assert complete("stability", text, {}) == text.replace("../CHANGELOG", "_generated/changelog")
    text = "[d](../../CHANGELOG.md#x)"
    assert complete("methods/ifca", text, {}) == "[d](../_generated/changelog.md#x)"


@pytest.mark.usefixtures("website")
def test_a_copy_of_a_file_has_links_that_fit_its_new_place() -> None:
    copy = module("generated").copy_of("CHANGELOG.md")
    assert "](../sr_fca.md" in copy or "](../" in copy
    assert "](docs/" not in copy


@pytest.mark.usefixtures("website")
def test_the_reference_has_every_command_experiment_and_data_set() -> None:
    reference = module("reference")
    commands = reference.commands()
    for name in ("srfca run", "srfca compare", "srfca data get", "srfca flower new"):
        assert f"\n## {name}\n" in f"\n{commands}"
    assert "| `--seed N` | Decides the data" in commands
    experiments = reference.experiments()
    assert "| `rotated-digits` | 1,797 real 8x8 digits" in experiments
    assert "| `rotated_digits` |" in experiments


@pytest.mark.usefixtures("website")
def test_every_public_name_is_in_the_api_once() -> None:
    pytest.importorskip("flwr")
    pytest.importorskip("ray")
    pages = module("api").pages()
    assert "autoclass:: srfca.methods.Result" in pages["srfca.methods"]
    assert "autoclass:: srfca.methods.SRFCA" in pages["srfca.methods"]
    assert "## Monitor\n" in pages["srfca.callbacks"] + pages["srfca.methods"]
    assert "autofunction:: srfca.parameters.constrained" in pages["srfca.parameters"]
    text = "".join(pages.values())
    assert text.count("## Monitor\n") == 1


@pytest.mark.usefixtures("website")
def test_everything_public_and_nothing_else_is_in_the_api() -> None:
    api = module("api")
    described = set[int]()
    for name in re.findall(r"auto(?:class|function):: (\S+)", "".join(api.pages().values())):
        parent, _, last = name.rpartition(".")
        described.add(id(getattr(import_module(parent), last)))
    public = {id(part.item) for part in (*functions(), *classes())}
    assert described == public
    assert api.public_parts() == public_parts()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="#top">x</a><img src="a.png" alt="A">', ""),
        ('<a href="https://example.org/nowhere">x</a>', ""),
        ('<a href="b.html">x</a>', "the link b.html leads nowhere"),
        ('<a href="#b">x</a>', "leads to a place that is not on the page"),
        ('<img src="a.png">', "has no text for those who cannot see it"),
        ("<h3>x</h3>", "a heading of level 3 follows one of level 1"),
        ("<h1>x</h1>", "has 2 first headings"),
        ('<p id="top">x</p>', "the id 'top' is there more than once"),
    ],
)
@pytest.mark.usefixtures("website")
def test_the_check_of_the_site_sees_what_is_wrong(body: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "index.html").write_text(PAGE.format(body))
    found = list(module("check").problems(tmp_path))
    assert (len(found) == 1 and problem in found[0]) if problem else not found
