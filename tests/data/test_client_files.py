from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray
from pyarrow import parquet

from srfca import ClientData, data
from srfca.errors import InputError
from tests.data.damage import damaged, read_or_refuse

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)).astype(np.float32)
Y = np.arange(12) % 2
CLIENT = np.array(["b", "a", "c"] * 4)
SPLIT = np.array(["train"] * 9 + ["test"] * 3)


def arrays(**changes: Any) -> dict[str, Any]:
    """The arrays of three clients, with changes; None removes an array."""
    changed = {"x": X, "y": Y, "client": CLIENT} | changes
    return {name: array for name, array in changed.items() if array is not None}


def write_npz(path: Path, **changes: Any) -> Path:
    np.savez(path, **arrays(**changes))
    return path


def write_table(path: Path, columns: dict[str, Any]) -> Path:
    parquet.write_table(pyarrow.table(columns), path, write_page_checksum=True)
    return path


def check_clients(loaded: ClientData, x: NDArray[Any] = X) -> None:
    """Compare with the clients of ``arrays(split=SPLIT)``."""
    assert loaded.test is not None
    for part, rows in ((loaded.train, slice(0, 9)), (loaded.test, slice(9, 12))):
        for i, name in enumerate(loaded.client_ids):
            selected = CLIENT[rows] == name
            np.testing.assert_array_equal(part.of(i)[0], x[rows][selected])
            assert part.of(i)[1].tolist() == Y[rows][selected].tolist()


@pytest.mark.parametrize("split", [SPLIT, SPLIT == "test", (SPLIT == "test").astype(np.uint8)])
def test_clients_of_an_npz_file(tmp_path: Path, split: NDArray[Any]) -> None:
    cluster = np.where(CLIENT == "a", "left", "right")
    loaded = data.load(write_npz(tmp_path / "own.npz", split=split, cluster=cluster))
    assert loaded.client_ids == ("b", "a", "c"), "in the order of their first samples"
    check_clients(loaded)
    assert loaded.truth is not None
    assert loaded.truth.labels.tolist() == [0, 1, 0]
    assert loaded.train.x.dtype == torch.float32
    assert loaded.train.y.dtype == torch.int64


def test_client_ids_can_be_numbers_and_images_stay_bytes(tmp_path: Path) -> None:
    x = RNG.integers(0, 256, (12, 4, 4), dtype=np.uint8)
    loaded = data.load(write_npz(tmp_path / "own.npz", x=x, client=np.repeat([10, 9, -1], 4)))
    assert loaded.client_ids == ("10", "9", "-1")
    assert loaded.train.sizes.tolist() == [4, 4, 4]
    assert loaded.train.x.dtype == torch.uint8
    assert loaded.test is None
    assert loaded.truth is None


def test_other_byte_orders_are_read(tmp_path: Path) -> None:
    loaded = data.load(
        write_npz(tmp_path / "own.npz", x=X.astype(">f8"), y=Y.astype(">i2"), split=SPLIT)
    )
    check_clients(loaded, X.astype(np.float64))
    whole = np.arange(36, dtype=">i4").reshape(12, 3)
    check_clients(data.load(write_npz(tmp_path / "own.npz", x=whole, split=SPLIT)), whole)


def test_a_table_has_lists_or_feature_columns(tmp_path: Path) -> None:
    columns = {"client": CLIENT, "y": Y, "split": SPLIT}
    check_clients(
        data.load(write_table(tmp_path / "lists.parquet", columns | {"x": X.tolist()})), X
    )
    shaped = {"x": X.reshape(-1, 3, 1).tolist(), "client": pyarrow.array(CLIENT)}
    shaped["client"] = shaped["client"].dictionary_encode()
    loaded = data.load(write_table(tmp_path / "shaped.parquet", columns | shaped))
    check_clients(loaded, X.reshape(-1, 3, 1))
    features = {name: X[:, i] for i, name in enumerate(["width", "x", "__index_level_0__"])}
    wide = write_table(tmp_path / "wide.parquet", features | columns)
    check_clients(data.load(wide, standardize=False), X[:, :2])
    standardized = data.load(wide).train.x
    assert standardized.mean(0).abs().max() < 1e-5, "features of a table are standardized"
    indexed = pyarrow.table(columns | {"number": np.arange(12), "width": X[:, 0]})
    metadata = json.dumps({"index_columns": ["number", "client"], "columns": []})
    path = tmp_path / "INDEXED.PARQUET"
    parquet.write_table(indexed.replace_schema_metadata({"pandas": metadata}), path)
    check_clients(data.load(path, standardize=False), X[:, :1])


def test_features_of_a_folder_are_matched_by_name(tmp_path: Path) -> None:
    write_table(tmp_path / "a.parquet", {"hot": [1.0, 2.0], "wet": [5.0, 6.0], "y": [0, 1]})
    write_table(tmp_path / "b.parquet", {"y": [0, 1], "wet": [7.0, 8.0], "hot": [3.0, 4.0]})
    loaded = data.load(tmp_path, standardize=False)
    assert loaded.train.x.tolist() == [[1.0, 5.0], [2.0, 6.0], [3.0, 7.0], [4.0, 8.0]]
    write_table(tmp_path / "c.parquet", {"y": [0, 1], "wet": [7.0, 8.0], "cold": [3.0, 4.0]})
    with pytest.raises(
        InputError, match=r"c.parquet: has features wet, cold, but other .*hot, wet"
    ):
        data.load(tmp_path)


def test_unprintable_file_names_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "caf\udce9.npz", x=X, y=Y)
    with pytest.raises(InputError, match="is no name for a client"):
        data.load(tmp_path)


def test_flat_inputs_and_column_targets_are_reshaped(tmp_path: Path) -> None:
    loaded = data.load(write_npz(tmp_path / "flat.npz", x=X[:, 0], y=Y[:, None]))
    assert loaded.train.x.shape == (12, 1)
    assert loaded.train.y.shape == (12,)
    values = data.load(write_npz(tmp_path / "values.npz", y=Y[:, None] + 0.5))
    assert values.train.y.shape == (12, 1)


def test_a_folder_has_a_file_for_each_client(tmp_path: Path) -> None:
    a, b, c = (name == CLIENT for name in "abc")
    columns = {"x": X[a].tolist(), "y": Y[a], "split": SPLIT[a], "cluster": [True] * 4}
    write_table(tmp_path / "a.parquet", columns)
    train, test = b & (SPLIT == "train"), b & (SPLIT == "test")
    pairs = {"x": X[train], "y": Y[train], "x_test": X[test], "y_test": Y[test]}
    np.savez(tmp_path / "b.npz", cluster=np.array(False), **pairs)
    split, cluster = SPLIT[c] == "test", np.zeros(4, bool)
    np.savez(tmp_path / "c.npz", x=X[c], y=Y[c], split=split, cluster=cluster)
    (tmp_path / ".hidden.npz").write_bytes(b"no")
    (tmp_path / "README.txt").write_text("not data")
    loaded = data.load(tmp_path)
    assert loaded.client_ids == ("a", "b", "c")
    check_clients(loaded)
    assert loaded.truth is not None
    assert loaded.truth.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "has no x, but y, client"),
        ({"y": None}, "has no column 'y', but x, client: name the target column with target="),
        ({"client": None}, r"has no column 'client', but x, y: .* \(--client on the command line"),
        ({"clinet": CLIENT}, "unknown column 'clinet': did you mean 'client'"),
        ({"x_test": X, "y_test": Y}, "unknown column 'x_test'"),
        ({"y": Y[:11]}, r"different lengths: 12 \(x, client\), 11 \(y\)"),
        ({"client": CLIENT[:11]}, r"different lengths: 12 \(x, y\), 11 \(client\)"),
        ({"client": X}, r"'client' must have one entry.*\(12, 3\)"),
        ({"split": X}, r"'split' must have one entry.*\(12, 3\)"),
        ({"cluster": X}, r"'cluster' must have one entry.*\(12, 3\)"),
        ({"x": np.float32(1)}, "x is one number"),
        ({"x": X[:0], "y": Y[:0], "client": CLIENT[:0]}, "there are no rows"),
        ({"client": X[:, 0]}, "it must be strings or whole numbers, not float32"),
        ({"x": X.astype(object)}, "Object arrays cannot be loaded"),
        ({"x": X.astype(complex)}, "'x' holds complex128, not numbers"),
        ({"x": np.where(X[4, 1] == X, np.nan, X)}, r"table of 12 rows: 'x' \(1\). Fill them in"),
        ({"x": np.where(X[4, 1] == X, np.inf, X)}, "'x' has 1 infinite value: correct"),
        ({"y": Y.astype(float)}, r"'y' has 2 different whole numbers \(0.0, 1.0; .*target_kind="),
        ({"split": np.where(SPLIT == "test", "tset", SPLIT)}, "not 'tset' as at client 'b'"),
        ({"split": np.arange(12)}, "or 0 and 1 for testing, not 2 as at client 'c'"),
        (
            {"split": X[:, 0]},
            "'split' must be 'train' or 'test', or 0 and 1 for testing, not float",
        ),
        ({"split": np.where(CLIENT == "a", Y, 0)}, "client 'b' has no test samples, but other"),
        ({"split": np.where(CLIENT == "a", 1, Y)}, "client 'a' has no training samples"),
        ({"cluster": X[:, 0]}, "'cluster' must be strings or whole numbers, not float32"),
        ({"cluster": Y}, "client 'b' is in cluster 0 and in 1"),
    ],
)
def test_errors_of_an_npz_file_say_what_is_wrong(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write_npz(tmp_path / "own.npz", **changes)
    with pytest.raises(InputError, match=message) as error:
        data.load(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": [[1.0]] * 11 + [[1.0, 2.0]]}, "column 'x' has lists of 1 to 2 entries"),
        ({"x": [[1.0]] * 11 + [None]}, r"'x' \(1\)"),
        ({"x": [[1.0]] * 11 + [[None]]}, "column 'x' has arrays with missing values"),
        ({"note": CLIENT}, "unknown column 'note'"),
        ({"x": None}, "there are no features"),
    ],
)
def test_errors_of_a_table_say_what_is_wrong(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    columns = arrays(x=X.tolist()) | changes
    columns = {name: column for name, column in columns.items() if column is not None}
    path = write_table(tmp_path / "own.parquet", columns)
    with pytest.raises(InputError, match=message) as error:
        data.load(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no .csv, .parquet or .npz file"),
        ({"a": {"client": CLIENT}}, "a.npz: has a column 'client'"),
        ({"a": {"x_test": X}}, "a.npz: has x_test, but not both"),
        ({"a": {"x_test": X, "y_test": Y, "split": Y}}, "a.npz: has x_test as well as split"),
        ({"a": {"x_test": X[:, :1], "y_test": Y}}, r"x has samples of shape \(3,\), but x_test"),
        ({"a": {"x": X[:0], "y": Y[:0]}}, "a.npz: has no samples"),
        ({"a": {}, "b": {"x": X[:, :2]}}, r"client 'b'.*shape \(2,\), but client 'a' has \(3,\)"),
        ({"a": {"cluster": 1}, "b": {}}, "client 'b' has no cluster, but other"),
        ({"a": {"x_test": X, "y_test": Y}, "b": {}}, "client 'b' has no test samples"),
    ],
)
def test_errors_of_a_folder_say_what_is_wrong(
    tmp_path: Path, files: dict[str, dict[str, Any]], message: str
) -> None:
    for name, changes in files.items():
        columns: dict[str, Any] = {"x": X, "y": Y} | changes
        np.savez(tmp_path / f"{name}.npz", **columns)
    with pytest.raises(InputError, match=message) as error:
        data.load(tmp_path)
    assert str(error.value).startswith(str(tmp_path))


def test_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there is no file or folder nowhere"):
        data.load("nowhere")
    (tmp_path / "own.txt").write_text("x,y\n")
    with pytest.raises(InputError, match=r"own.txt: must be a .csv, .parquet or .npz file"):
        data.load(tmp_path / "own.txt")
    for name in ("own.npz", "own.parquet"):
        (tmp_path / name).write_text("x,y\n")
        with pytest.raises(InputError, match=f"{name}: cannot be read as"):
            data.load(tmp_path / name)
    write_table(tmp_path / "a.parquet", {"x": X.tolist(), "y": Y})
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    (tmp_path / "own.npz").unlink()
    with pytest.raises(InputError, match="two files of client 'a'"):
        data.load(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs pyarrow.*srfca\[parquet\]"):
        data.load(tmp_path / "a.parquet")


def npz_content(compressed: bool) -> bytes:
    out = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(out, allow_pickle=False, **arrays(split=SPLIT))
    return out.getvalue()


@given(content=damaged(npz_content(compressed=True)) | damaged(npz_content(compressed=False)))
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_refused_or_read_correctly(tmp_path: Path, content: bytes) -> None:
    loaded = read_or_refuse(data.load, tmp_path / "own.npz", content)
    if loaded is not None:
        check_clients(loaded)
