"""The tables and the code of docs/privacy.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srfca import SRFCA
from srfca.distances import DISTANCES
from srfca.methods import all_methods
from tests.docs.markdown import code_blocks, run_python
from tools import disclosure

PAGE = disclosure.PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", DISTANCES)
def test_the_page_says_what_a_distance_reveals(name: str) -> None:
    assert disclosure.distance_line(name) in PAGE


@pytest.mark.parametrize("kind", all_methods(), ids=lambda kind: kind.key)
def test_the_page_says_what_a_method_reveals(kind: Any) -> None:
    assert disclosure.method_line(kind) in PAGE


def test_class_counts_are_not_asked_for_if_that_is_forbidden() -> None:
    local = replace(disclosure.LOCAL, steps=10)
    method = SRFCA(local=local, ask_class_counts=False, trial_steps=0, refine_steps=0)
    revealed = disclosure.record(method, disclosure.skewed()).revealed
    assert "losses" in revealed
    assert "class counts" not in revealed
    asking = replace(method, ask_class_counts=True)
    assert "class counts" in disclosure.record(asking, disclosure.skewed()).revealed


def test_the_code_runs(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    [(_, code)] = code_blocks("docs/privacy.md", "python")
    assert "Privacy: epsilon" in run_python(["-c", code], tmp_path)
