"""The code of docs/drift.md."""

from __future__ import annotations

from typing import Any

from tests.docs.markdown import ROOT, code_blocks


def test_the_code_runs() -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    for _, code in code_blocks("docs/drift.md", "python"):
        exec(code, namespace)
    assert namespace["move"]["why"] == "fits another cluster"
    alarm = str(namespace["alarm"])
    page = (ROOT / "docs" / "drift.md").read_text()
    start = alarm.partition(": with a loss")[0]
    assert start in page
