"""Files of comma-separated values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from srfca import data
from srfca.data.columns import read_columns
from srfca.errors import InputError

CSV = """dest,dep_delay,carrier,weekend,delay,note
IAH,2.5,UA,True,yes,a
MIA,-1,AA,False,no,b
IAH,4,AA,True,yes,c
MIA,3,UA,False,yes,d
"""


def write(path: Path, text: str = CSV) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_columns_are_named_on_loading(tmp_path: Path) -> None:
    path = write(tmp_path / "flights.csv")
    features = ["dep_delay", "carrier", "weekend"]
    loaded = data.load(path, client="dest", target="delay", features=features, standardize=False)
    assert loaded.client_ids == ("IAH", "MIA")
    assert loaded.train.x.tolist() == [[2.5, 0, 1, 1], [4, 1, 0, 1], [-1, 1, 0, 0], [3, 0, 1, 0]]
    assert loaded.train.y.tolist() == [1, 1, 0, 1]
    assert loaded.schema is not None
    assert loaded.schema.classes == ("no", "yes")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_cells_are_numbers_truth_values_or_strings(tmp_path: Path, delimiter: str) -> None:
    text = (
        "\ufeff|whole|real|zip|truth|text|gaps|word|big\n"
        "0|1|0.5|01234|true|a|1|x|1\n"
        "1|-2|1e3|99999|FALSE|7|NA||99999999999999999999\n"
    ).replace("|", delimiter)
    columns = read_columns(write(tmp_path / "a.csv", text))
    kinds = {name: column.dtype.kind for name, column in columns.items()}
    assert kinds == {
        "whole": "i", "real": "f", "zip": "U", "truth": "b", "text": "U", "gaps": "f",
        "word": "O", "big": "f",
    }, "the column without a name is the index of a data frame"  # fmt: skip
    assert columns["whole"].tolist() == [1, -2]
    assert columns["zip"].tolist() == ["01234", "99999"]
    assert columns["truth"].tolist() == [True, False]
    assert np.isnan(columns["gaps"][1])
    assert columns["word"].tolist() == ["x", None]


@pytest.mark.parametrize("cell", ["n/a", "#N/A", "<NA>"])
def test_missing_values_are_known_as_spreadsheets_write_them(tmp_path: Path, cell: str) -> None:
    columns = read_columns(write(tmp_path / "a.csv", f"a,b\n1,2\n{cell},3\n"))
    assert np.isnan(columns["a"]).tolist() == [False, True]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_in_another_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("client,y\nZürich,1\n".encode(encoding))
    with pytest.raises(InputError, match="is not encoded in UTF-8: save it again as UTF-8"):
        read_columns(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: its first line must have the names"),
        ("client,y,a\n1,0\n", "line 2 has 2 cells, but there are 3 columns"),
        ("client,a,a,y\n1,0,0,1\n", "two columns with the name 'a'"),
        ("client;a;y\n1;3,5;0\n", "'a' has numbers with a decimal comma"),
        ('client,y,a\n1,0,"x\n', "cannot be read as .csv"),
        ("client,y,a\n", "there are no rows"),
        ("client|y|a\n1|0|2\n", r"one column, 'client\|y\|a': columns must be separated by commas"),
        (
            "client,y,a\n1,0,\n2,1,3\n",
            r"missing values in 1 column of a table of 2 rows: 'a' \(1\)",
        ),
    ],
)
def test_errors_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "own.csv", text)
    with pytest.raises(InputError, match=message) as error:
        data.load(path)
    assert str(error.value).startswith(f"{path}: ")


def test_rows_with_missing_values_are_dropped_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "own.csv", "client,y,a,b\n1,0,,x\n2,1,3,y\n1,1,4,\n1,0,5,x\n2,0,6,y\n")
    loaded = data.load(path, missing="drop", standardize=False)
    assert loaded.train.x[:, 0].tolist() == [3, 6, 5], "the clients in the order of complete rows"
    assert loaded.client_ids == ("2", "1")
    only = data.load(path, features=["a"], missing="drop")
    assert len(only.train.x) == 4
    with pytest.raises(InputError, match="unknown missing 'dorp': did you mean 'drop'"):
        data.load(path, missing="dorp")  # type: ignore[arg-type]
    write(path, "client,y,a\n1,0,\n2,1,\n")
    with pytest.raises(InputError, match=r"every row has a missing value: 'a' \(2\)"):
        data.load(path, missing="drop")


def test_a_folder_of_csv_files(tmp_path: Path) -> None:
    write(tmp_path / "ulm.csv", "age,buys,city,cluster\n3,no,x,1\n4,yes,y,1\n,no,x,1\n")
    write(tmp_path / "bonn.csv", "city,buys,age,split,cluster\ny,yes,3,train,2\nx,no,7,test,2\n")
    arguments: dict[str, Any] = {"target": "buys", "standardize": False, "missing": "drop"}
    with pytest.raises(InputError, match="client 'ulm' has no test samples"):
        data.load(tmp_path, **arguments)
    write(tmp_path / "bonn.csv", "city,buys,age,cluster\ny,yes,3,2\nx,no,7,2\n")
    loaded = data.load(tmp_path, **arguments)
    assert loaded.client_ids == ("bonn", "ulm")
    assert loaded.train.x[:, loaded.schema.inputs.index("age")].tolist() == [3, 7, 3, 4]  # type: ignore[union-attr]
    assert loaded.truth is not None
    assert loaded.truth.num_clusters == 2
    drawn = data.load(tmp_path, test=0.5, **arguments)
    assert drawn.test is not None
    assert drawn.test.sizes.tolist() == [1, 1]
    with pytest.raises(InputError, match="the name of a file is the client: leave out client='c'"):
        data.load(tmp_path, client="c")
    write(tmp_path / "rome.csv", "city,buys,age,cluster\nz,yes,old,2\nz,no,young,2\n")
    with pytest.raises(InputError, match="'age' holds values of type float, int, str"):
        data.load(tmp_path, **arguments)


def test_test_rows_are_a_column_or_drawn_but_not_both(tmp_path: Path) -> None:
    path = write(tmp_path / "own.csv", "client,y,a,split\n1,0,1,0\n1,1,2,1\n1,1,3,0\n")
    assert data.load(path).test is not None
    with pytest.raises(InputError, match=r"has a column 'split' of test rows, but test=0.5 asks"):
        data.load(path, test=0.5)


cells = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-99, 99)
words = st.none() | st.text("abcäß ,;\"'\n", min_size=1, max_size=5)


@given(st.lists(st.tuples(cells, words), min_size=1, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_pandas_writes_is_read(tmp_path: Path, rows: list[tuple[Any, Any]]) -> None:
    frame = pd.DataFrame(rows, columns=["number", "word"])
    frame["last"] = 1
    frame.to_csv(tmp_path / "a.csv")
    columns = read_columns(tmp_path / "a.csv")
    assert list(columns) == ["number", "word", "last"]
    for read, (number, word) in zip(
        zip(columns["number"], columns["word"], strict=True), rows, strict=True
    ):
        assert (read[0] != read[0] or read[0] is None) if number is None else read[0] == number
        is_missing = read[1] is None or read[1] != read[1]
        assert is_missing if word is None else read[1] == word
