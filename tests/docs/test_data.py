from __future__ import annotations

from pathlib import Path

from tests.docs.markdown import code_blocks, run_python


def test_python_blocks_of_the_data_page_run_as_printed(tmp_path: Path) -> None:
    blocks = [code for _, code in code_blocks("docs/data.md", "python")]
    printed = run_python(["-c", "\n".join(blocks)], tmp_path)
    assert printed.count("ClientData(") == len(blocks)
