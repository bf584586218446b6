"""The words of the sources and the documentation: tools/words.py finds nothing to replace."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, run_python


def test_no_catch_all_names_or_private_phrases_are_left(tmp_path: Path) -> None:
    run_python([str(ROOT / "tools" / "words.py"), "--check"], tmp_path)


def test_the_count_sees_names_words_and_phrases(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = spec_from_file_location("words", ROOT / "tools" / "words.py")
    assert spec is not None
    assert spec.loader is not None
    words = module_from_spec(spec)
    spec.loader.exec_module(words)
    monkeypatch.setattr(words, "ROOT", tmp_path)
    page = tmp_path / "page.py"
    page.write_text(
        'def told(who):\n    """Goes on for so many steps.\n\n'
        '    who: Of the run.\n    """\n    return who\n'
    )
    kinds = [place.kind for place in words.places_in(page)]
    assert kinds.count("name") == 3
    assert kinds.count("phrase") == 2
    assert kinds.count("word") == 5
