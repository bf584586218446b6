"""The Python blocks of the pages on the theory and on the literal algorithm run as printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import code_blocks, run_python

PAGES = {
    "docs/theory.md": ["Separations(eps1=0.2", "1.5", "[0.333"],
    "docs/methods/sr_fca_literal.md": ["True"],
}


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run_as_printed(page: str, tmp_path: Path) -> None:
    [(_, code)] = code_blocks(page, "python")
    printed = run_python(["-c", code], tmp_path).splitlines()
    assert len(printed) == len(PAGES[page])
    for line, expected in zip(printed, PAGES[page], strict=True):
        assert line.startswith(expected)
