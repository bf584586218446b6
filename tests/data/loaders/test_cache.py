from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from srfca.data.loaders.cache import cached, data_folder
from srfca.errors import InputError


class Parser:
    """Counts how often it parses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls = 0

    def __call__(self) -> dict[str, NDArray[Any]]:
        self.calls += 1
        return {
            "x": np.frombuffer(self.path.read_bytes(), np.uint8),
            "names": np.array(["Zoë", "b"]),
            "none": np.empty((0, 3), np.float32),
        }


@pytest.fixture
def parser(tmp_path: Path, user_cache: Path) -> Parser:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "file"
    path.write_bytes(bytes(range(200)))
    return Parser(path)


def load(parser: Parser, name: str = "set") -> dict[str, NDArray[Any]]:
    return cached(parser.path.parent, name, [parser.path], parser)


def entries(folder: Path) -> list[Path]:
    return sorted((folder / ".srfca-cache").iterdir())


def test_data_folder_is_an_argument_a_variable_or_the_user_cache(
    tmp_path: Path, user_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SRFCA_DATA", raising=False)
    assert data_folder() == user_cache / "srfca"
    monkeypatch.setenv("SRFCA_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    assert data_folder("elsewhere") == Path("elsewhere")


def test_a_second_read_uses_the_cache(parser: Parser) -> None:
    first, second = load(parser), load(parser)
    assert parser.calls == 1
    for name, array in parser().items():
        for read in (first, second):
            assert read[name].dtype == array.dtype
            np.testing.assert_array_equal(read[name], array)


def test_writing_to_arrays_does_not_change_the_cache(parser: Parser) -> None:
    load(parser)["x"][:] = 0
    assert load(parser)["x"][7] == 7
    assert parser.calls == 1


@pytest.mark.parametrize("change", ["content", "time"])
def test_changed_files_are_parsed_again_and_replace_the_entry(parser: Parser, change: str) -> None:
    load(parser)
    if change == "content":
        parser.path.write_bytes(b"other")
    else:
        os.utime(parser.path, ns=(1, 1))
    np.testing.assert_array_equal(load(parser)["x"], np.frombuffer(parser.path.read_bytes(), "u1"))
    assert parser.calls == 2
    assert len(entries(parser.path.parent)) == 1


def test_entries_with_different_names_coexist(parser: Parser) -> None:
    for name in ("set", "set", "set-parquet", "set"):
        load(parser, name)
    assert parser.calls == 2


def test_a_damaged_entry_is_written_again(parser: Parser) -> None:
    load(parser)
    (entry,) = entries(parser.path.parent)
    names = sorted(path.name for path in entry.iterdir())
    damages = 0
    for name in names:
        content = (entry / name).read_bytes()
        for damaged in (b"", content[:-1], content[:-1] + bytes([content[-1] ^ 1]), None):
            if damaged == content or (name == "none.npy" and damaged == content[:-1]):
                continue
            (entry / name).unlink() if damaged is None else (entry / name).write_bytes(damaged)
            damages += 1
            assert load(parser)["x"][9] == 9
            assert parser.calls == 1 + damages, (name, damaged)
            assert sorted(path.name for path in entry.iterdir()) == names


def test_an_unfinished_entry_is_removed(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("srfca.data.loaders.cache._checksum", fail)
    with pytest.raises(KeyboardInterrupt):
        load(parser)
    monkeypatch.undo()
    assert entries(parser.path.parent) == []


def test_a_read_only_folder_is_cached_in_the_user_cache(parser: Parser, user_cache: Path) -> None:
    (parser.path.parent / ".srfca-cache").write_text("in the way")
    load(parser)
    load(parser)
    assert parser.calls == 1
    assert list(user_cache.rglob("x.npy"))


def test_data_is_read_without_any_cache(parser: Parser, user_cache: Path) -> None:
    (parser.path.parent / ".srfca-cache").write_text("in the way")
    user_cache.write_text("in the way too")
    assert load(parser)["x"][3] == 3
    assert load(parser)["x"][3] == 3
    assert parser.calls == 2


def test_files_that_change_during_parsing_are_refused(parser: Parser) -> None:
    def parse() -> dict[str, NDArray[Any]]:
        parser.path.write_bytes(b"more")
        return parser()

    with pytest.raises(InputError, match="changed while"):
        cached(parser.path.parent, "set", [parser.path], parse)


def test_errors_name_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        cached(tmp_path, "set", [tmp_path / "nowhere"], dict)
