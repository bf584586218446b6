from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from srfca.errors import InputError
from srfca.json_files import read_json, write_json

CONTENT = {"labels": [0, 1, -1], "loss": float("inf"), "nested": {"a": None, "b": (1, 2.5)}}


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(path, CONTENT, 3)
    assert read_json(path, 3, "run it again") == {**CONTENT, "nested": {"a": None, "b": [1, 2.5]}}
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert read_json(path, 3, "run it again")["labels"] == [0, 1, -1], "only the layout changed"


def test_flipped_bits_are_noticed_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(path, CONTENT, 3)
    intact, expected = path.read_bytes(), read_json(path, 3, "")
    for position in range(0, 8 * len(intact), 5):
        content = bytearray(intact)
        content[position // 8] ^= 1 << position % 8
        path.write_bytes(content)
        with suppress(InputError):
            assert read_json(path, 3, "") == expected


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, "\xff", '{"labels": []}'])
def test_what_is_no_such_file_is_damaged(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text, "latin-1")
    with pytest.raises(InputError, match=r"run\.json is damaged: .*: run it again"):
        read_json(path, 3, "run it again")


def test_edits_other_names_and_other_formats_are_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "run.json", tmp_path / "result.json"
    write_json(path, CONTENT, 3)
    other.write_bytes(path.read_bytes())
    with pytest.raises(InputError, match="checksum does not match, or it was edited"):
        read_json(other, 3, "")
    with pytest.raises(InputError, match="format 3 is not the 4 that this version reads"):
        read_json(path, 4, "")
    path.write_text(path.read_text().replace("-1", "1"))
    with pytest.raises(InputError, match="checksum does not match, or it was edited"):
        read_json(path, 3, "")
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "missing.json", 3, "")
