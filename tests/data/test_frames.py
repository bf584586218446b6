"""Client data from tables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import ClientData, InputError, Partition
from srfca.data.inference import MAX_CATEGORIES
from tests.docs.markdown import run_python

MAKERS: dict[str, Callable[[Any], Any]] = {
    "dict": dict, "pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table,
}  # fmt: skip
COLUMNS: dict[str, Any] = {
    "shop": ["b", "a", "b", "a", "c", "c"],
    "age": [20, 30, 40, 50, 60, 70],
    "member": [True, False, True, True, False, False],
    "city": ["Ulm", "Bonn", "Ulm", "Ulm", "Bonn", "Rom"],
    "buys": ["yes", "no", "no", "yes", "no", "perhaps"],
}


def load(**changes: Any) -> ClientData:
    """Load the table with changed columns; None removes one."""
    options = {name: changes.pop(name) for name in [*changes] if name not in COLUMNS}
    table = {name: column for name, column in (COLUMNS | changes).items() if column is not None}
    return ClientData.from_frame(table, **({"client": "shop", "target": "buys"} | options))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_same_clients_from_every_kind_of_table(make: Any) -> None:
    data = ClientData.from_frame(make(COLUMNS), client="shop", target="buys")
    assert data.client_ids == ("b", "a", "c"), "in the order of their first rows"
    schema = data.schema
    assert schema is not None
    assert schema.features == ("age", "member", "city")
    assert schema.inputs == ("age", "member", "city=Bonn", "city=Rom", "city=Ulm")
    assert schema.classes == ("no", "perhaps", "yes")
    assert (schema.client, schema.target, schema.target_kind) == ("shop", "buys", "classes")
    assert data.train.sizes.tolist() == [2, 2, 2]
    assert data.train.y.tolist() == [2, 0, 0, 2, 0, 1]
    ages = torch.tensor([20.0, 40, 30, 50, 60, 70])
    ages = (ages - 45) / ages.std(correction=0)
    assert torch.allclose(data.train.x[:, 0], ages)
    assert data.train.x[:, 1:].tolist() == [
        [1, 0, 0, 1], [1, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0],
    ]  # fmt: skip
    assert data.train.x.dtype == torch.float32
    assert data.test is None
    assert data.truth is None


def test_the_schema_encodes_the_table_as_the_clients_have_it() -> None:
    data = load()
    assert data.schema is not None
    order = np.argsort(["bac".index(shop) for shop in COLUMNS["shop"]], kind="stable")
    assert torch.equal(data.schema.encode(COLUMNS)[order.copy()], data.train.x)
    labels = data.schema.decode(data.train.y)
    assert labels.tolist() == [COLUMNS["buys"][row] for row in order]


def test_features_are_chosen_and_ordered() -> None:
    data = load(features=["member", "age"], standardize=False, city=None)
    assert data.train.x.tolist()[0] == [1, 20]
    assert data.schema is not None
    assert data.schema.mean == ()
    assert load(features="age").train.x.shape == (6, 1)


def test_categories_dates_and_nullable_columns_of_data_frames() -> None:
    frame = pd.DataFrame(COLUMNS).astype({"city": "category", "buys": "category", "age": "Int64"})
    frame["day"] = pd.to_datetime(["2020-01-01"] * 6)
    frame["empty"] = pd.array([None] * 6, dtype="Int64")
    features = ["age", "member", "city"]
    arguments: dict[str, Any] = {"client": "shop", "target": "buys"}
    data = ClientData.from_frame(frame, features=features, **arguments)
    assert torch.equal(data.train.x, load().train.x)
    assert data.train.y.tolist() == load().train.y.tolist()
    polars = pl.from_pandas(frame).with_columns(pl.col("shop").cast(pl.Categorical))
    again = ClientData.from_frame(polars, features=features, **arguments)
    assert again.fingerprint() == data.fingerprint()
    for table in (frame, polars):
        with pytest.raises(InputError, match=r"'empty' \(6\)"):
            ClientData.from_frame(table, **arguments)
        with pytest.raises(InputError, match=r"'day' holds dates or times .*an hour, a weekday"):
            ClientData.from_frame(table, features=["day"], **arguments)


def test_values_are_standardized_over_the_training_rows() -> None:
    rng = np.random.default_rng(0)
    table = {
        "site": np.repeat([3, 1], 50),
        "a": rng.normal(100, 5, 100),
        "same": np.full(100, 0.1),
        "y": rng.normal(-40, 3, 100),
    }
    data = ClientData.from_frame(table, client="site", target="y", test=0.2, seed=1)
    assert data.client_ids == ("3", "1")
    assert data.test is not None
    assert (data.train.sizes.tolist(), data.test.sizes.tolist()) == ([40, 40], [10, 10])
    assert data.train.x[:, 0].mean() == pytest.approx(0, abs=1e-5)
    assert data.train.x[:, 0].std(correction=0) == pytest.approx(1, abs=1e-5)
    assert data.train.x[:, 1].abs().max() < 1e-5, "a constant feature is not blown up"
    assert data.train.y.std(correction=0) == pytest.approx(1, abs=1e-5)
    assert data.schema is not None
    values = np.concatenate([data.schema.decode(part.y) for part in (data.train, data.test)])
    np.testing.assert_allclose(np.sort(values), np.sort(table["y"]), rtol=1e-5)
    plain = ClientData.from_frame(table, client="site", target="y", standardize=False)
    assert plain.train.y.tolist() == table["y"].astype(np.float32).tolist()


def test_test_rows_are_drawn_by_the_seed_and_the_client() -> None:
    table = {"c": np.repeat(["p", "q"], 20), "a": np.arange(40), "y": np.arange(40) % 2}

    def drawn(rows: slice, seed: int = 0) -> list[float]:
        part = {name: column[rows] for name, column in table.items()}
        data = ClientData.from_frame(
            part, client="c", target="y", test=0.3, standardize=False, seed=seed
        )
        assert data.test is not None
        return sorted(data.test.x[:, 0].tolist())

    both = drawn(slice(None))
    assert len(both) == 12
    assert both == drawn(slice(0, 20)) + drawn(slice(20, 40)), "whichever other clients there are"
    assert both != drawn(slice(None), seed=1)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(-5, 5)), min_size=1),
    st.integers(0, 3),
)
def test_rows_are_grouped_as_in_a_plain_loop(rows: list[tuple[int, bool, int]], odd: int) -> None:
    rows = [(client, False, client) for client in {row[0] for row in rows} | {odd}] + rows
    table: dict[str, list[Any]] = {
        "client": [f"c{client}" for client, _, _ in rows],
        "split": ["test" if test else "train" for _, test, _ in rows],
        "group": [client % 2 for client, _, _ in rows],
        "a": [value for _, _, value in rows],
        "y": [float(row) for row in range(len(rows))],
    }
    clients = list(dict.fromkeys(table["client"]))
    tested = {client for client, test, _ in rows if test}
    arguments: dict[str, Any] = {"client": "client", "target": "y", "standardize": False}
    arguments |= {"test": "split", "cluster": "group", "target_kind": "values"}
    if tested and len(tested) < len(clients):
        with pytest.raises(InputError, match="has no test samples, but other clients have"):
            ClientData.from_frame(table, **arguments)
        return
    data = ClientData.from_frame(table, **arguments)
    assert list(data.client_ids) == clients
    assert data.truth is not None
    groups = [int(name[1:]) % 2 for name in clients]
    assert data.truth.misclustering(Partition(np.array(groups))) == 0
    for position, name in enumerate(clients):
        for samples, test in ((data.train, False), (data.test, True)):
            expected = [v for c, t, v in rows if f"c{c}" == name and t == test]
            if samples is not None:
                assert samples.of(position)[0].flatten().tolist() == expected


@pytest.mark.parametrize(
    ("buys", "kind", "classes"),
    [
        ([1, 5, 1, 5, 9, 9], None, (1, 5, 9)),
        ([True, False] * 3, None, (False, True)),
        ([0.0, 1.0] * 3, "classes", (0, 1)),
        ([0.5, 1.5] * 3, "classes", (0.5, 1.5)),
        ([0.5, 1.0] * 3, None, ()),
        ([0.0, 1.0] * 3, "values", ()),
        ([1, 0] * 3, "values", ()),
        ([True, False] * 3, "values", ()),
    ],
)
def test_what_a_target_is(buys: list[Any], kind: Any, classes: tuple[Any, ...]) -> None:
    data = load(buys=buys, target_kind=kind)
    assert data.schema is not None
    assert data.schema.classes == classes
    assert data.schema.target_kind == ("classes" if classes else "values")
    assert data.train.y.is_floating_point() == (not classes)


def test_many_whole_numbers_are_classes_only_without_gaps() -> None:
    n = 60
    table = {"c": [0, 1] * (n // 2), "a": np.arange(n), "y": np.arange(n)}
    data = ClientData.from_frame(table, client="c", target="y")
    assert data.schema is not None
    assert data.schema.classes == tuple(range(n))
    with pytest.raises(InputError, match=r"60 different whole numbers .18, 19, 20, .*int64"):
        ClientData.from_frame(table | {"y": np.arange(n) + 18}, client="c", target="y")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"client": "store"}, "unknown column 'store'"),
        ({"client": "shops"}, "unknown column 'shops': did you mean 'shop'"),
        ({"target": "buy"}, "unknown column 'buy': did you mean 'buys'"),
        ({"features": ["aeg"]}, "unknown column 'aeg': did you mean 'age'"),
        ({"features": ["buys"]}, "'buys' cannot be a feature"),
        ({"features": ["age", "age"]}, "'age' is named twice"),
        ({"target": "shop"}, "'shop' is named for two purposes"),
        ({"test": "buys"}, "'buys' is named for two purposes"),
        ({"features": []}, "there are no features"),
        ({"age": [1, 2, None, 3, None, 4], "city": [None] * 6},
         r"2 columns of a table of 6 rows: 'age' \(2\), 'city' \(6\). Fill them in, choose other"),
        ({"buys": ["a", None] * 3}, r"'buys' \(3\)"),
        ({"shop": [1.0, 2.0] * 3}, "'shop' names the client of each row.* not float64: convert"),
        ({"shop": [True, False] * 3}, "strings or whole numbers, not bool"),
        ({"buys": ["a"] * 6}, "'buys' has the same class or value in every row"),
        ({"buys": [5.5] * 6}, "'buys' has the same class or value in every row"),
        ({"buys": [5.0] * 6, "target_kind": "values"}, "'buys' has the same class or value"),
        ({"city": ["2024-01-31", "2024-02-01 12:30:00"] * 3}, "'city' holds dates, such as '2024-"),
        ({"city": ["31.1.2024", "1.2.2024"] * 3}, "'city' holds dates, .*--features on the comm"),
        ({"city": ["1/31/2024 10:15", "2/1/2024 9:00"] * 3}, "'city' holds dates"),
        ({"buys": [0.0, 1.0] * 3}, r"'buys' has 2 different whole numbers \(0.0, 1.0; type float"
         r".* target_kind='classes' or target_kind='values' \(--target-kind"),
        ({"target_kind": "values"}, "'buys' holds strings, which are classes"),
        ({"target_kind": "class"}, "unknown target_kind 'class': did you mean 'classes'"),
        ({"test": 1.5}, r"must be in \(0, 1\), not 1.5"),
        ({"test": "age"}, "'age' must be 'train' or 'test', or 0 and 1 for testing, not 20 as at "
         "client 'b'"),
        ({"test": "city"}, "not 'Ulm' as at client 'b'"),
        ({"test": 0.5, "shop": ["a", "b", "b", "b", "b", "b"]}, "client 'a' has one row"),
        ({"test": 0.5, "shop": ["a", "b", "c", "b", "b", "b"]}, "2 clients, such as 'a', have one"),
        ({"cluster": "city"}, "client 'a' is in cluster 'Bonn' and in 'Ulm': it must be in one"),
        ({"age": [[1, 2]] * 6}, "'age' holds arrays, so it must be the only feature"),
        ({"age": [["a"]] * 6, "features": ["age"]}, "arrays of strings"),
        ({"test": "member"}, "client 'b' has no training samples"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(**changes)


def test_an_index_is_no_column() -> None:
    indexed = pd.DataFrame(COLUMNS).set_index("shop")
    with pytest.raises(InputError, match=r"'shop' is the index of the table.*reset_index"):
        ClientData.from_frame(indexed, client="shop", target="buys")


def test_a_table_without_rows_and_names_as_features_are_refused() -> None:
    empty: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    with pytest.raises(InputError, match="there are no rows"):
        ClientData.from_frame(pd.DataFrame(empty), client="shop", target="buys")
    n = MAX_CATEGORIES + 1
    table = {"c": ["a"] * n, "name": [f"n{i}" for i in range(n)], "y": np.arange(n) % 2}
    with pytest.raises(InputError, match=f"'name' has {n} different strings, such as 'n0'"):
        ClientData.from_frame(table, client="c", target="y")


def test_a_column_of_arrays_is_not_standardized_unless_asked_for() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 2, 3), dtype=np.uint8)
    table = {"c": [0, 1] * 3, "image": images, "y": [0, 1, 1, 0, 0, 1]}
    plain = ClientData.from_frame(table, client="c", target="y")
    assert plain.train.x.dtype == torch.uint8
    assert plain.train.x.shape == (6, 2, 3)
    scaled = ClientData.from_frame(table, client="c", target="y", standardize=True)
    assert scaled.train.x.dtype == torch.float32
    assert scaled.train.x.mean(0).abs().max() < 1e-5
    assert scaled.schema is not None
    assert torch.equal(scaled.schema.encode({"image": images[::2]}), scaled.train.of(0)[0])


def test_a_hugging_face_dataset_is_read_through_its_arrow_table() -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict(COLUMNS)
    data = ClientData.from_frame(dataset, client="shop", target="buys")
    assert data.fingerprint() == load().fingerprint()
    chosen = dataset.select([0, 1, 2, 3])  # an index over the same table
    part = ClientData.from_frame(chosen, client="shop", target="buys")
    assert part.client_ids == ("b", "a")
    labels = datasets.ClassLabel(names=["no", "yes"])
    named = datasets.Dataset.from_dict(
        {"c": [0, 0, 1, 1], "a": [1, 2, 3, 4], "y": [1, 0, 1, 0]},
        datasets.Features(
            {"c": datasets.Value("int64"), "a": datasets.Value("int64"), "y": labels}
        ),
    )
    schema = ClientData.from_frame(named, client="c", target="y").schema
    assert schema is not None
    assert schema.classes == ("no", "yes")


def test_no_library_of_tables_is_imported_unless_it_is_given(tmp_path: Any) -> None:
    code = (
        "import sys; from srfca import ClientData\n"
        "table = {'c': [0, 1] * 3, 'a': range(6), 'y': [0, 1] * 3}\n"
        "ClientData.from_frame(table, client='c', target='y')\n"
        "print({'pandas', 'polars', 'pyarrow', 'datasets'} & set(sys.modules))"
    )
    assert run_python(["-c", code], tmp_path) == "set()\n"
    assert "pandas" in sys.modules


def test_an_index_that_pandas_has_written_is_no_feature() -> None:
    frame = pd.DataFrame(COLUMNS, index=[7, 7, 9, 3, 4, 4])
    arrow = pa.Table.from_pandas(frame)
    assert "__index_level_0__" in arrow.column_names
    options: dict[str, Any] = {"client": "shop", "target": "buys"}
    expected = ClientData.from_frame(frame, **options)
    assert torch.equal(ClientData.from_frame(arrow, **options).train.x, expected.train.x)
    named = ClientData.from_frame(arrow, features=["__index_level_0__", "age"], **options)
    assert named.train.x.shape[1] == 2


def test_several_tables_are_refused() -> None:
    for table in (pd.DataFrame(COLUMNS), pl.DataFrame(COLUMNS), pa.table(COLUMNS)):
        with pytest.raises(InputError, match=r"several tables: give one of them, such as dataset"):
            ClientData.from_frame({"train": table}, client="shop", target="buys")
