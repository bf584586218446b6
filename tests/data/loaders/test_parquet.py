from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from PIL import Image
from pyarrow import csv, parquet

from srfca.data.loaders import femnist, letters, shakespeare
from srfca.data.loaders.parquet import read_femnist, read_shakespeare
from srfca.errors import InputError
from tests.data.damage import damaged, read_or_refuse

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (31, 28, 28), dtype=np.uint8)
CLASSES = RNG.integers(0, 62, 31)
WRITERS = ["f2", "f1", "f2"] * 10 + ["f3"]


def picture(pixels: Any, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def images(**changes: Any) -> dict[str, Any]:
    return {
        "image": [{"bytes": picture(pixels), "path": None} for pixels in PIXELS],
        "writer_id": WRITERS,
        "hsf_id": [0] * 31,
        "character": CLASSES.tolist(),
    } | changes


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path, **options)
    return path


def test_images_are_grouped_by_writer_and_split(tmp_path: Path) -> None:
    columns = images()
    for i, span in enumerate((slice(0, 20), slice(20, None))):
        part = {name: column[span] for name, column in columns.items()}
        write(tmp_path / "femnist" / f"train-0000{i}-of-00002.parquet", part, row_group_size=7)
    users = femnist.load(tmp_path)
    assert users.names == ("f1", "f2", "f3")
    assert users.train.sizes.tolist() == [9, 18, 1]
    assert users.test.sizes.tolist() == [1, 2, 0]
    for i, name in enumerate(users.names):
        rows = [j for j, writer in enumerate(WRITERS) if writer == name]
        splits = [users.train.of(i), users.test.of(i)]
        read = {(x.tobytes(), int(y)) for pair in splits for x, y in zip(*pair, strict=True)}
        assert read == {(PIXELS[j].tobytes(), int(CLASSES[j])) for j in rows}
    np.testing.assert_array_equal(femnist.load(tmp_path).test.x, users.test.x)


TEXT = "".join(RNG.choice(list(letters.ALPHABET.replace("\n", "")), 700))


def windows(count: int = 500, **changes: Any) -> dict[str, Any]:
    role = {
        "x": [TEXT[i : i + 80] for i in range(count)],
        "y": [TEXT[i + 80] for i in range(count)],
    }
    both = {name: [value for value in column for _ in range(2)] for name, column in role.items()}
    return {"character_id": ["ROMEO", "NONE"] * count} | both | changes


@pytest.mark.parametrize("kind", ["parquet", "client_id", "csv"])
def test_windows_are_grouped_by_role_and_split_in_order(tmp_path: Path, kind: str) -> None:
    columns = windows()
    if kind == "client_id":
        columns["client_id"] = columns.pop("character_id")
    path = tmp_path / "shakespeare" / ("shakespeare.csv" if kind == "csv" else "train.parquet")
    write(path, columns)
    if kind == "csv":
        csv.write_csv(pyarrow.table(columns), path)
    users = shakespeare.load(tmp_path, min_samples=400)
    assert users.names == ("NONE", "ROMEO")
    assert users.train.sizes.tolist() == [400, 400]
    assert users.test.sizes.tolist() == [21, 21]
    x, y = users.train.of(1)
    assert letters.decode(x[8]) == TEXT[8:88]
    x, y = users.test.of(1)
    assert letters.decode(x[-1]) == TEXT[499:579]
    assert letters.ALPHABET[y[-1]] == TEXT[579]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"writer_id": [None, *WRITERS[1:]]}, "column writer_id has None"),
        ({"character": [62, *CLASSES[1:].tolist()]}, "column character has 62"),
        ({"character": ["a"] * 31}, "column character has 'a'"),
        ({"image": [{"bytes": picture(PIXELS[0, :27])}] * 31}, "28 x 27 pixels"),
        ({"image": [{"bytes": picture(PIXELS[0])[:-40]}] * 31}, "damaged"),
        ({"image": [{"bytes": picture(PIXELS[0], "BMP")}] * 31}, "damaged"),
        ({"image": [{"path": "a.png"}] * 31}, "without 'bytes'"),
        ({"image": [{"bytes": None}] * 31}, "without 'bytes'"),
    ],
)
def test_invalid_images_are_refused(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = write(tmp_path / "file.parquet", images(**change))
    with pytest.raises(InputError, match=problem) as error:
        read_femnist([path])
    assert str(path) in str(error.value)


def test_invalid_text_is_refused(tmp_path: Path) -> None:
    short = windows(3)
    short["x"][2] = short["x"][2][1:]
    path = write(tmp_path / "file.parquet", short)
    with pytest.raises(InputError, match=r"file.parquet: column x .* length 80"):
        read_shakespeare([path])
    with pytest.raises(InputError, match=r"no column image, but character_id, x, y"):
        read_femnist([path])
    with pytest.raises(InputError, match="no rows"):
        read_shakespeare([write(path, windows(0, character_id=pyarrow.array([], "string")))])
    (tmp_path / "shakespeare.csv").write_bytes(b"character_id,x,y\na,b\n\xff")
    with pytest.raises(InputError, match=r"shakespeare.csv: cannot be read"):
        read_shakespeare([tmp_path / "shakespeare.csv"])


@pytest.mark.parametrize(("module", "package"), [("pyarrow", "pyarrow"), ("PIL.Image", "pillow")])
def test_errors_name_missing_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    path = write(tmp_path / "file.parquet", images())
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"needs {package}: .*srfca\[parquet\]"):
        read_femnist([path])


def table(columns: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), out, write_page_checksum=True)
    return out.getvalue()


@given(content=damaged(table({name: column[:6] for name, column in images().items()})))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_table_of_images_is_refused_or_valid(tmp_path: Path, content: bytes) -> None:
    users = read_or_refuse(lambda path: read_femnist([path]), tmp_path / "file.parquet", content)
    if users is not None:
        assert users.train.x.shape[1:] == (28, 28)
        assert len(users.train.x) == users.train.sizes.sum() == len(users.train.y)


@given(content=damaged(table(windows(6))))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_table_of_text_is_refused_or_valid(tmp_path: Path, content: bytes) -> None:
    users = read_or_refuse(
        lambda path: read_shakespeare([path]), tmp_path / "file.parquet", content
    )
    if users is not None:
        assert users.train.x.shape[1:] == (80,)
        assert users.train.x.max() < 80
