from __future__ import annotations

from pathlib import Path

import pytest

from srfca.data.loaders.publication import PUBLICATIONS, Publication, register_publication
from srfca.errors import InputError


def test_published_hashes_are_md5() -> None:
    for publication in PUBLICATIONS.items().values():
        for published in publication.hashes.values():
            assert published.startswith("md5:")
            assert len(published) == 36


def test_a_loader_registers_its_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PUBLICATIONS, "_items", PUBLICATIONS.items())
    letters = Publication("letters", "Letters", ("a", ""), ("x",), "nowhere", lambda folder: [])
    assert register_publication(letters) is PUBLICATIONS["letters"]
    assert letters.search_folders(Path("data")) == [Path("data/a"), Path("data")]
    with pytest.raises(InputError, match="Letters: x is not in data/a or data; get it: nowhere"):
        raise letters.missing_files_error(["x"], Path("data"))
    with pytest.raises(InputError, match="must be a Publication, not of type int"):
        PUBLICATIONS["srfca.data.loaders.leaf:PIXELS"]
