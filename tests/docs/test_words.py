"""The words of the sources and the documentation: tools/words.py finds nothing to replace."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.markdown import ROOT, run_python


def test_no_catch_all_names_or_private_phrases_are_left(tmp_path: Path) -> None:
    run_python([str(ROOT / "tools" / "words.py"), "--check"], tmp_path)


def test_the_count_sees_names_words_and_phrases(monkeypatch: object, tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import words
    finally:
        sys.path.pop(0)
    page = tmp_path / "page.py"
    page.write_text('def told(who):\n    """Goes on for so many steps."""\n    return who\n')
    words.ROOT = tmp_path
    kinds = [place.kind for place in words.places_in(page)]
    words.ROOT = ROOT
    assert kinds.count("name") == 3
    assert kinds.count("phrase") == 2
