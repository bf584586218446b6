from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import code_blocks, run_python


@pytest.mark.parametrize("page", ["docs/answer.md", "docs/newcomers.md"])
def test_python_blocks_run_as_printed(page: str, tmp_path: Path) -> None:
    blocks = [code for _, code in code_blocks(page, "python")]
    printed = run_python(["-c", "\n".join(blocks)], tmp_path)
    assert "cluster" in printed


def test_the_files_of_the_answer_are_written(tmp_path: Path) -> None:
    code = code_blocks("docs/answer.md", "python")[0][1]
    assert "SR-FCA found 4 clusters of 10, 10, 10, 10 clients." in run_python(
        ["-c", code], tmp_path
    )
    assert {path.name for path in tmp_path.iterdir()} == {"clusters.csv", "analysis.json"}
