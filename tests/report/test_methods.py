"""Tables of methods, and the generated table of the documentation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from srfca.errors import InputError
from srfca.methods import METHODS, all_methods
from srfca.report.markdown import replace_generated
from srfca.report.methods import methods_markdown, short_citation
from tests.cli.command import srfca

ROOT = Path(__file__).parents[2]


def test_the_table_has_every_method_once() -> None:
    lines = methods_markdown().splitlines()
    assert len(lines) == 2 + len(METHODS.keys())
    for method in all_methods():
        [line] = [line for line in lines if line.startswith(f"| `{method.key}` ")]
        assert f"| `{method.__name__}` | {method.family} |" in line
        assert ("| given |" in line) == method.needs_k
        assert ("| needs the true clusters |" in line) == method.needs_truth
        assert method.paper.replace("|", "\\|") in line


def test_keys_link_to_their_pages() -> None:
    table = methods_markdown([METHODS["ifca"]], {"ifca": "ifca.md"})
    assert "| [`ifca`](ifca.md) | `IFCA` | clustering | given |" in table


def test_every_registered_method_has_a_short_citation() -> None:
    for method in all_methods():
        citation = short_citation(method.paper)
        assert len(citation) < 60, citation
    citation = short_citation(METHODS["one-shot-kmeans"].paper)
    assert citation.endswith("Harshvardhan et al., TMLR 2024")


def test_the_table_of_the_documentation_is_up_to_date() -> None:
    script = ROOT / "docs" / "make_tables.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_page_of_a_method_is_linked_in_the_table() -> None:
    readme = (ROOT / "docs" / "methods" / "README.md").read_text()
    for key in METHODS.keys():  # noqa: SIM118
        assert f"| [`{key}`](" in readme, "it has no page"


def test_the_command_prints_the_table() -> None:
    done = srfca("list", "--markdown")
    assert done.returncode == 0, done.stderr
    assert done.stdout == methods_markdown(all_methods())


@pytest.mark.parametrize("text", ["", "<!-- t:begin -->\n", "<!-- t:begin -->\n" * 2])
def test_a_document_without_markers_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"must have the line '<!-- t:(begin|end) -->' once"):
        replace_generated(text, "t", "new")
