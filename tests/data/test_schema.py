"""How a table becomes tensors, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import FedAvg, InputError, LocalTraining, Result, Simulation
from srfca.data import Schema
from srfca.federation import DropReplies
from srfca.models import linear
from tests import examples

COLUMNS: dict[str, list[Any]] = {
    "city": ["Ulm", "Bonn", "Ulm"],
    "unused": [None, None, None],
    "age": [50, 30, 40],
    "smokes": [True, False, True],
    "ill": ["yes", "no", "no"],
}
SCHEMA = Schema(
    features=("age", "city", "smokes"),
    client="hospital",
    target="ill",
    target_kind="classes",
    classes=("no", "yes"),
    categories={"city": ("Bonn", "Ulm")},
    mean=(40.0, 0.0, 0.0, 0.0),
    scale=(10.0, 1.0, 1.0, 1.0),
)
INPUTS = torch.tensor([[1.0, 0, 1, 1], [-1, 1, 0, 0], [0, 0, 1, 1]])
MAKERS = {"dict": dict, "pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_same_tensors_from_every_kind_of_table(make: Any) -> None:
    table = make(COLUMNS)
    assert torch.equal(SCHEMA.encode(table), INPUTS)
    assert SCHEMA.encode(table).dtype == torch.float32
    assert SCHEMA.encode_targets(table).tolist() == [1, 0, 0]
    assert SCHEMA.inputs == ("age", "city=Bonn", "city=Ulm", "smokes")


def test_categorical_columns_are_strings() -> None:
    frame = pd.DataFrame(COLUMNS).astype({"city": "category"})
    assert torch.equal(SCHEMA.encode(frame), INPUTS)
    polars = pl.DataFrame(COLUMNS).with_columns(pl.col("city").cast(pl.Categorical))
    assert torch.equal(SCHEMA.encode(polars), INPUTS)
    numbered = Schema(("room",), categories={"room": ("3", "4")})
    rooms = pd.DataFrame({"room": pd.Categorical([4, 3])})
    assert numbered.encode(rooms).tolist() == [[0, 1], [1, 0]]
    assert numbered.encode({"room": [4, 3]}).tolist() == [[0, 1], [1, 0]]


def test_decode_gives_classes_and_values_back() -> None:
    assert SCHEMA.decode(torch.tensor([[1, 0]])).tolist() == [["yes", "no"]]
    numbers = Schema(("a",), target_kind="classes", classes=(1, 5))
    assert numbers.decode(np.array([1, 0])).tolist() == [5, 1]
    values = Schema(("a",), target="y", target_mean=10.0, target_scale=4.0)
    table = {"a": [0.0, 1.0], "y": [10, 18]}
    assert values.encode_targets(table).tolist() == [0, 2]
    assert values.decode(values.encode_targets(table)).tolist() == [10, 18]
    assert Schema(("a",), target_kind="classes").decode([2]).tolist() == [2]
    with pytest.raises(InputError, match="labels must be from 0 to 1"):
        SCHEMA.decode([2])


def test_arrays_keep_their_shape_and_type() -> None:
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    tokens = Schema(("x",), shape=(2, 2), dtype="int64")
    assert tokens.encode({"x": images}).dtype == torch.int64
    assert torch.equal(tokens.encode({"x": images}), torch.arange(12).view(3, 2, 2))
    scaled = Schema(("x",), shape=(2, 2), mean=(1.0,) * 4, scale=(2.0,) * 4)
    assert torch.equal(scaled.encode({"x": images}), (torch.arange(12.0).view(3, 2, 2) - 1) / 2)
    lists = {"x": [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]}
    for make in MAKERS.values():
        assert torch.equal(tokens.encode(make(lists)), torch.arange(12).view(3, 2, 2))
    single = Schema(("x",), shape=(1,))
    assert single.encode({"x": [1, 2]}).tolist() == [[1], [2]]
    with pytest.raises(InputError, match=r"shape \(3,\), but those of the training data .* \(2, 2"):
        tokens.encode({"x": np.zeros((1, 3))})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": None}, "unknown column 'age'"),
        ({"age": [1.0, None, float("nan")]}, r"missing values in 1 column of a table of 3 rows: "
         r"'age' \(2\). Fill them in, choose .*, or leave these rows out with missing='drop'"),
        ({"age": np.ma.masked_array([1, 2, 3], [True, False, False])}, r"'age' \(1\)"),
        ({"age": ["1", "2", "3"]}, "column 'age' must be numbers, but holds strings, such as '1'"),
        ({"age": [1, 2, float("inf")]}, "column 'age' has 1 infinite value: correct"),
        ({"age": np.array(["2020-01-01"] * 3, "datetime64[D]")}, "'age' holds dates or times"),
        ({"age": [1, "a", 2]}, "'age' holds values of type int, str"),
        ({"age": [[1], [2], [3]]}, r"'age' holds arrays of shape \(1,\)"),
        ({"age": [[1], [2], [3, 4]]}, "'age' has lists of 1 to 2 entries"),
        ({"age": [1, 2]}, "columns have different lengths"),
        ({"age": 1}, "an entry for each row"),
        ({"city": ["Ulm", "Rom", "Bonn"]}, "1 values that are no category of the training data: "
         "'Rom'; known are 'Bonn', 'Ulm'"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    table = {k: v for k, v in (COLUMNS | change).items() if v is not None}
    with pytest.raises(InputError, match=message):
        SCHEMA.encode(table)


def test_all_columns_with_missing_values_are_named() -> None:
    frame = pd.DataFrame({**COLUMNS, "age": [None, 1, 2], "city": ["Ulm", None, None]})
    for table in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        with pytest.raises(InputError, match=r"2 columns .*: 'age' \(1\), 'city' \(2\)"):
            SCHEMA.encode(table)


def test_what_is_no_table_is_refused() -> None:
    for source, hint in [
        ("a.csv", "srfca.data.load reads files"),
        (pl.LazyFrame(COLUMNS), "collect"),
        ([1, 2], "a data frame"),
    ]:
        with pytest.raises(InputError, match=hint):
            SCHEMA.encode(source)
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(InputError, match="cannot be read"):
        Schema(("a",)).encode(twice)


def test_targets_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="no class of the training data: 'perhaps'; known are 'no"):
        SCHEMA.encode_targets(COLUMNS | {"ill": ["no", "perhaps", "yes"]})
    with pytest.raises(InputError, match="has no target"):
        Schema(("age",)).encode_targets(COLUMNS)
    with pytest.raises(InputError, match="must be numbers"):
        Schema(("age",), target="ill").encode_targets(COLUMNS)


@given(
    st.lists(st.text(max_size=3), unique=True, min_size=1, max_size=4),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    st.sampled_from([("a", "b"), (1, 2), (False, True), (0.5, 1.5), ()]),
)
def test_json_keeps_everything(
    names: list[str], numbers: list[float], classes: tuple[Any, ...]
) -> None:
    schema = Schema(
        tuple(names), "c", "t", "classes", classes, {names[0]: ("x", "y")},
        tuple(numbers), tuple(numbers), 1.5, 2.5, (2, 3), "uint8",
    )  # fmt: skip
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_other_json_is_refused() -> None:
    with pytest.raises(InputError, match="unknown part of a schema 'feature': did you mean 'feat"):
        Schema.from_json({"feature": ["a"]})
    for content in ({}, {"features": ["a"], "categories": 3}):
        with pytest.raises(InputError, match="this is not a schema"):
            Schema.from_json(content)


def test_a_result_carries_the_schema_of_its_data(tmp_path: Any) -> None:
    from dataclasses import replace

    schema = Schema(("a", "b", "c", "d"), target="y")
    data = replace(examples.regression([10] * 3), schema=schema)
    federation = Simulation(data, linear(4))
    method = FedAvg(local=LocalTraining(steps=2))
    result = method.fit(federation)
    assert result.schema == schema
    assert Result.load(result.save(tmp_path)).schema == schema
    assert method.fit(DropReplies(federation, 0.0)).schema == schema
    assert data.select(1).schema == schema
    without = method.fit(Simulation(examples.regression([10] * 3), linear(4)))
    assert without.schema is None
    assert Result.load(without.save(tmp_path / "without")).schema is None
