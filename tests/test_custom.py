from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray
from pyarrow import parquet
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from srfca import ClientData, data
from srfca.data.sources import Source, as_arrays
from srfca.errors import InputError
from srfca.experiments import custom, runner
from tests.data.damage import damaged, read_or_refuse
from tests.test_cli import srfca

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)).astype(np.float32)
Y = np.arange(12) % 2
CLIENT = np.array(["b", "a", "c"] * 4)
SPLIT = np.array(["train"] * 9 + ["test"] * 3)


def arrays(**changes: Any) -> dict[str, Any]:
    found = {"x": X, "y": Y, "client": CLIENT} | changes
    return {name: array for name, array in found.items() if array is not None}


def npz(path: Path, **changes: Any) -> Path:
    np.savez(path, **arrays(**changes))
    return path


def table(path: Path, columns: dict[str, Any]) -> Path:
    parquet.write_table(pyarrow.table(columns), path, write_page_checksum=True)
    return path


def check(made: ClientData, x: NDArray[Any] = X) -> None:
    """The clients of ``arrays(split=SPLIT)``, whatever way they came."""
    assert made.test is not None
    for part, rows in ((made.train, slice(0, 9)), (made.test, slice(9, 12))):
        for i, name in enumerate(made.client_ids):
            mine = CLIENT[rows] == name
            np.testing.assert_array_equal(part.of(i)[0], x[rows][mine])
            assert part.of(i)[1].tolist() == Y[rows][mine].tolist()


@pytest.mark.parametrize("split", [SPLIT, SPLIT == "test", (SPLIT == "test").astype(np.uint8)])
def test_a_file_of_arrays(tmp_path: Path, split: NDArray[Any]) -> None:
    cluster = np.where(CLIENT == "a", "left", "right")
    made = data.load(npz(tmp_path / "own.npz", split=split, cluster=cluster))
    assert made.client_ids == ("b", "a", "c"), "in the order of their first samples"
    check(made)
    assert made.truth is not None
    assert made.truth.labels.tolist() == [0, 1, 0]
    assert made.train.x.dtype == torch.float32
    assert made.train.y.dtype == torch.int64


def test_numbers_name_clients_and_images_stay_bytes(tmp_path: Path) -> None:
    x = RNG.integers(0, 256, (12, 4, 4), dtype=np.uint8)
    made = data.load(npz(tmp_path / "own.npz", x=x, client=np.repeat([10, 9, -1], 4)))
    assert made.client_ids == ("10", "9", "-1")
    assert made.train.sizes.tolist() == [4, 4, 4]
    assert made.train.x.dtype == torch.uint8
    assert made.test is None
    assert made.truth is None


def test_other_byte_orders_are_read(tmp_path: Path) -> None:
    made = data.load(npz(tmp_path / "own.npz", x=X.astype(">f8"), y=Y.astype(">i2"), split=SPLIT))
    check(made, X.astype(np.float64))


def test_a_table_with_lists_or_with_feature_columns(tmp_path: Path) -> None:
    columns = {"client": CLIENT, "y": Y, "split": SPLIT}
    check(data.load(table(tmp_path / "lists.parquet", columns | {"x": X.tolist()})), X)
    shaped = {"x": X.reshape(-1, 3, 1).tolist(), "client": pyarrow.array(CLIENT)}
    shaped["client"] = shaped["client"].dictionary_encode()
    made = data.load(table(tmp_path / "shaped.parquet", columns | shaped))
    check(made, X.reshape(-1, 3, 1))
    features = {name: X[:, i] for i, name in enumerate(["width", "x", "__index_level_0__"])}
    check(data.load(table(tmp_path / "wide.parquet", features | columns)), X[:, :2])
    indexed = pyarrow.table(columns | {"number": np.arange(12), "width": X[:, 0]})
    about = json.dumps({"index_columns": ["number", "client"], "columns": []})
    path = tmp_path / "INDEXED.PARQUET"
    parquet.write_table(indexed.replace_schema_metadata({"pandas": about}), path)
    check(data.load(path), X[:, :1])


def test_features_of_a_folder_are_joined_by_name(tmp_path: Path) -> None:
    table(tmp_path / "a.parquet", {"hot": [1.0, 2.0], "wet": [5.0, 6.0], "y": [0, 1]})
    table(tmp_path / "b.parquet", {"y": [0, 1], "wet": [7.0, 8.0], "hot": [3.0, 4.0]})
    made = data.load(tmp_path)
    assert made.train.x.tolist() == [[1.0, 5.0], [2.0, 6.0], [3.0, 7.0], [4.0, 8.0]]
    table(tmp_path / "c.parquet", {"y": [0, 1], "wet": [7.0, 8.0], "cold": [3.0, 4.0]})
    with pytest.raises(
        InputError, match=r"c.parquet: has features wet, cold, but other .*hot, wet"
    ):
        data.load(tmp_path)


def test_a_file_name_that_is_none_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "caf\udce9.npz", x=X, y=Y)
    with pytest.raises(InputError, match="is no name for a client"):
        data.load(tmp_path)


def test_flat_inputs_and_targets_in_a_column(tmp_path: Path) -> None:
    made = data.load(npz(tmp_path / "flat.npz", x=X[:, 0], y=Y[:, None]))
    assert made.train.x.shape == (12, 1)
    assert made.train.y.shape == (12,)
    values = data.load(npz(tmp_path / "values.npz", y=Y[:, None].astype(float)))
    assert values.train.y.shape == (12, 1)


def test_a_folder_has_a_file_for_each_client(tmp_path: Path) -> None:
    for name in "abc":
        train, test = ((name == CLIENT) & (part == SPLIT) for part in ("train", "test"))
        mine: dict[str, Any] = {"x": X[train], "y": Y[train], "cluster": name == "a"}
        if name == "a":
            every = name == CLIENT
            columns = {"x": X[every].tolist(), "y": Y[every], "split": SPLIT[every]}
            table(tmp_path / "a.parquet", columns | {"cluster": [True] * 4})
        elif name == "b":
            np.savez(tmp_path / "b.npz", x_test=X[test], y_test=Y[test], **mine)
        else:
            every = name == CLIENT
            split, cluster = SPLIT[every] == "test", np.zeros(4, bool)
            np.savez(tmp_path / "c.npz", x=X[every], y=Y[every], split=split, cluster=cluster)
    (tmp_path / ".hidden.npz").write_bytes(b"no")
    (tmp_path / "README.txt").write_text("not data")
    made = data.load(tmp_path)
    assert made.client_ids == ("a", "b", "c")
    check(made)
    assert made.truth is not None
    assert made.truth.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "has no x, but y, client"),
        ({"y": None}, "has no y, but x, client"),
        ({"client": None}, "has no client, but x, y"),
        ({"clinet": CLIENT}, "unknown array 'clinet': did you mean 'client'"),
        ({"x_test": X, "y_test": Y}, "unknown array 'x_test'"),
        ({"y": Y[:11]}, "x has 12 samples, but y has 11 entries"),
        ({"client": CLIENT[:11]}, "x has 12 samples, but client has 11 entries"),
        ({"client": CLIENT.reshape(3, 4)}, r"client must have one entry.*\(3, 4\)"),
        ({"x": np.float32(1)}, "x is one number"),
        ({"x": X[:0], "y": Y[:0], "client": CLIENT[:0]}, "has no samples"),
        ({"client": X[:, 0]}, "client must be strings or whole numbers, not float32"),
        ({"x": X.astype(object)}, "Object arrays cannot be loaded"),
        ({"x": X.astype(complex)}, "x must be numbers, not complex128"),
        ({"y": CLIENT}, "y must be numbers, not <U1"),
        ({"x": np.where(X[4, 1] == X, np.nan, X)}, "client 'a'.*NaN or an infinity in sample 1"),
        ({"split": np.where(SPLIT == "test", "tset", SPLIT)}, "not 'tset' as at client 'b'"),
        ({"split": np.arange(12)}, "or 0 and 1 for testing, not 2 as at client 'c'"),
        ({"split": X[:, 0]}, "split must be 'train' or 'test', or 0 and 1 for testing, not float"),
        ({"split": np.where(CLIENT == "a", 1, 0)}, "client 'b' has no test samples, but other"),
        ({"split": np.where(CLIENT == "a", 1, Y)}, "client 'a' has no training samples"),
        ({"cluster": X[:, 0]}, "cluster must be strings or whole numbers, not float32"),
        ({"cluster": Y}, "client 'b' is in cluster 0 and in 1"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = npz(tmp_path / "own.npz", **changes)
    with pytest.raises(InputError, match=message) as error:
        data.load(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": [[1.0]] * 11 + [[1.0, 2.0]]}, "column x has lists of 1 to 2 entries"),
        ({"x": [[1.0]] * 11 + [None]}, "column x has 1 empty cells"),
        ({"x": [[1.0]] * 11 + [[None]]}, "column x has 1 empty cells"),
        ({"note": CLIENT}, "unknown array 'note'"),
        ({"x": None, "note": CLIENT}, "note must be numbers"),
        ({"x": None}, "has no x, but y, client"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    columns = arrays(x=X.tolist()) | changes
    columns = {name: column for name, column in columns.items() if column is not None}
    path = table(tmp_path / "own.parquet", columns)
    with pytest.raises(InputError, match=message) as error:
        data.load(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no .npz or .parquet file"),
        ({"a": {"client": CLIENT}}, "a.npz: has a client of its own"),
        ({"a": {"x_test": X}}, "a.npz: has x_test, but not both"),
        ({"a": {"x_test": X, "y_test": Y, "split": Y}}, "a.npz: has x_test as well as split"),
        ({"a": {"x": X[:0], "y": Y[:0]}}, "a.npz: has no samples"),
        ({"a": {}, "b": {"x": X[:, :2]}}, r"client 'b'.*shape \(2,\), but client 'a' has \(3,\)"),
        ({"a": {"cluster": 1}, "b": {}}, "client 'b' has no cluster, but other"),
        ({"a": {"x_test": X, "y_test": Y}, "b": {}}, "client 'b' has no test samples"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(
    tmp_path: Path, files: dict[str, dict[str, Any]], message: str
) -> None:
    for name, changes in files.items():
        mine: dict[str, Any] = {"x": X, "y": Y} | changes
        np.savez(tmp_path / f"{name}.npz", **mine)
    with pytest.raises(InputError, match=message) as error:
        data.load(tmp_path)
    assert str(error.value).startswith(str(tmp_path))


def test_what_is_no_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there is no file or folder nowhere"):
        data.load("nowhere")
    (tmp_path / "own.csv").write_text("x,y\n")
    with pytest.raises(InputError, match=r"own.csv: must be a .npz or .parquet file"):
        data.load(tmp_path / "own.csv")
    for name in ("own.npz", "own.parquet"):
        (tmp_path / name).write_text("x,y\n")
        with pytest.raises(InputError, match=f"{name}: cannot be read as"):
            data.load(tmp_path / name)
    table(tmp_path / "a.parquet", {"x": X.tolist(), "y": Y})
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    (tmp_path / "own.npz").unlink()
    with pytest.raises(InputError, match="two files of client 'a'"):
        data.load(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs pyarrow.*srfca\[parquet\]"):
        data.load(tmp_path / "a.parquet")


def content(compressed: bool) -> bytes:
    out = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(out, allow_pickle=False, **arrays(split=SPLIT))
    return out.getvalue()


@given(content=damaged(content(compressed=True)) | damaged(content(compressed=False)))
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_refused_or_right(tmp_path: Path, content: bytes) -> None:
    made = attempt(data.load, tmp_path / "own.npz", content)
    if made is not None:
        check(made)


def test_a_list_of_arrays_that_hides_one_is_refused(tmp_path: Path) -> None:
    hiding = bytearray(content(compressed=False))
    entry = hiding.rfind(b"PK\1\2", 0, hiding.rfind(b"PK\1\2"))
    hiding[entry + 32] = 46 + len("split.npy")  # the next entry becomes a comment of this one
    (tmp_path / "own.npz").write_bytes(hiding)
    with pytest.raises(InputError, match="its end speaks of 4 arrays, but 3 are listed"):
        data.load(tmp_path / "own.npz")


def test_pairs_from_anything_that_yields_them() -> None:
    x, y = torch.as_tensor(X), torch.as_tensor(Y)

    class Endless(Dataset[tuple[Tensor, int]]):
        """Never says where it ends, as a Dataset need not."""

        def __getitem__(self, i: int) -> tuple[Tensor, int]:
            return x[i % 12], int(y[i % 12])

        def __len__(self) -> int:
            return 12

    class Stream(IterableDataset[tuple[Tensor, Tensor]]):
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            return zip(x, y, strict=True)

    whole = TensorDataset(x, y)
    sources: dict[str, Source] = {
        "arrays": (X, Y),
        "dataset": whole,
        "indexed": Endless(),
        "stream": Stream(),
        "batches": DataLoader(whole, batch_size=5),
        "samples": (pair for pair in zip(X, Y, strict=True)),
        "list": [(X[:5].tolist(), Y[:5].tolist()), (X[5:], Y[5:])],
    }
    made = ClientData.from_arrays(sources)
    for client in range(len(sources)):
        torch.testing.assert_close(made.train.of(client)[0], x)
        assert torch.equal(made.train.of(client)[1], y)


def test_a_dataset_yields_samples_even_where_they_look_like_batches() -> None:
    sequences = torch.arange(12).reshape(3, 4)
    x, y = as_arrays(TensorDataset(sequences, sequences + 1))
    assert x.shape == y.shape == (3, 4)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "there are no samples"),
        ([X, Y], r"must be a tuple \(x, y\) or yield such pairs, but there is a ndarray"),
        ((X, Y, Y), ".*but there is a tuple of 3"),
        (7, ".*but is a int"),
        ((X.astype(object), Y), "x must be numbers in a regular shape"),
        ([(X[0], 1), (X[1, :2], 1)], r"item 1 has x of shape \(2,\)"),
        ([(X[:3], Y[:3]), (X[:3], Y[:2])], r"item 1 has x of shape \(3, 3\) and y of shape \(2,\)"),
    ],
)
def test_sources_that_are_none(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"client 'ann', training data: {message}"):
        ClientData.from_arrays({"ann": source})


@dataclass(frozen=True)
class Picture:
    classes: int = 9
    channels: int = 3
    size: int = 32
    hidden: int = 5


@pytest.mark.parametrize(
    ("x", "sizes"),
    [
        (np.zeros((4, 8, 8)), {"channels": 1, "size": 8, "classes": 2}),
        (np.zeros((4, 2, 6, 6)), {"channels": 2, "size": 6, "classes": 2}),
    ],
)
def test_a_model_is_made_to_fit_the_data(x: NDArray[Any], sizes: dict[str, int]) -> None:
    assert custom.model_sizes(Picture, "cnn", ClientData.from_arrays([(x, [0, 1, 0, 1])])) == sizes


def test_outputs_fit_the_targets(tmp_path: Path) -> None:
    def outputs(y: Any, test: Any = None) -> int:
        held = None if test is None else [(X, test)]
        return custom.number_of_outputs(ClientData.from_arrays([(X, y)], held))

    assert outputs(Y) == 2
    assert outputs(Y, np.full(12, 4)) == 5, "a class that is only seen in testing counts"
    assert outputs(0 * Y) == 2, "a single output would be read as yes or no"
    assert outputs(X[:, 0]) == 1
    assert outputs(X) == 3
    for wrong in (Y - 1, Y + 30):
        with pytest.raises(InputError, match="classes are numbered from 0"):
            outputs(wrong)
    with pytest.raises(InputError, match="cnn takes square images"):
        custom.model_sizes(Picture, "cnn", ClientData.from_arrays([(X, Y)]))


def test_whole_numbers_are_inputs_like_others(tmp_path: Path) -> None:
    x = RNG.integers(0, 256, (12, 4, 4), dtype=np.uint8)
    experiment = custom.own(npz(tmp_path / "own.npz", x=x, split=SPLIT)).set(["hidden=7"])
    assert experiment.arguments("model") == {"inputs": 16, "hidden": (7,), "outputs": 2}
    fed = runner.federation(experiment, seed=0)
    assert fed.initial(0).shape == (16 * 7 + 7 + 7 * 2 + 2,)
    row = runner.run(experiment.set(["steps=2"]), "local", fed, seed=0).row()
    assert row["scored_on"] == "test"
    assert row["misclustering"] is None


def test_without_test_data_nor_validation_there_is_nothing_to_score_on(tmp_path: Path) -> None:
    experiment = custom.own(npz(tmp_path / "own.npz")).set(["validation=0", "steps=1"])
    with pytest.raises(InputError, match="nothing to score on"):
        runner.run(experiment, "local", runner.federation(experiment, 0), 0)


MODULE = """
from torch import nn
import torch

def network(): return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4))
def wrong(): return 3
def broken(): raise KeyError("no such layer")
ready, number = network(), 5
"""


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nets_a:nothing", "'nets_a' has nothing named 'nothing'"),
        ("nets_a:number", "must be a class or function that makes a torch.nn.Module, but is a int"),
        ("nets_a:ready", "but is a Sequential"),
        ("nets_a:wrong", "must make a torch.nn.Module, but makes a int"),
        ("nets_a:broken", "KeyError: 'no such layer' when it is called"),
        ("nets_b:network", "there is no module 'nets_b', neither in"),
        ("nets_c:network", "ZeroDivisionError: .* when 'nets_c' is imported"),
        (":network", "ValueError: .* when '' is imported"),
        ("mpl", "unknown model 'mpl': did you mean 'mlp'"),
    ],
)
def test_models_that_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, message: str
) -> None:
    (tmp_path / "nets_a.py").write_text(MODULE)
    (tmp_path / "nets_c.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "nets_a", raising=False)
    with pytest.raises(InputError, match=message):
        custom.own(npz(tmp_path / "own.npz"), model)


def three_groups(folder: Path) -> Path:
    """24 sensors that see the four quadrants turned by 0, 120 or 240 degrees."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24 * 60, 2))
    sensor = np.repeat(np.arange(24), 60)
    angle = np.arctan2(x[:, 0], x[:, 1]) + 2 * np.pi / 3 * (sensor % 3)
    y = (angle // (np.pi / 2)).astype(int) % 4
    np.savez(folder / "sensors.npz", x=x, y=y, client=sensor)
    return folder / "sensors.npz"


def test_three_made_up_groups_are_found_by_one_command(tmp_path: Path) -> None:
    done = srfca("run", "--data", str(three_groups(tmp_path)), "--model", "mlp")
    assert done.returncode == 0, done.stderr
    assert "Found 3 clusters of 8, 8, 8 clients" in done.stdout
    assert "validation accuracy" in done.stdout
    assert "test" not in done.stdout


def test_a_network_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "nets_d.py").write_text(MODULE)
    three_groups(tmp_path)
    arguments = ("--data", "sensors.npz", "--model", "nets_d:network", "--methods", "sr-fca")
    out = tmp_path / "out"
    done = srfca("compare", *arguments, "--json", "--out", str(out), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert (row["experiment"], row["scored_on"]) == ("sensors.npz", "validation")
    assert row["labels"] == [0, 1, 2] * 8
    [path] = out.glob("sr-fca-seed0-*/run.json")
    saved = json.loads(path.read_text())["settings"]
    assert saved["model"] == {"name": "nets_d:network"}
    assert saved["data"] == {"name": "sensors.npz"}


def test_a_change_anywhere_in_a_network_of_the_users_own_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide" / "__init__.py").write_text("from wide.net import network")
    net = tmp_path / "wide" / "net.py"
    three_groups(tmp_path)
    arguments = ("--data", "sensors.npz", "--model", "wide:network", "--methods", "local", "--json")
    found = []
    for width in (4, 4, 8):
        net.write_text(MODULE.replace("16", str(width)))
        done = srfca("compare", *arguments, "--set", "steps=1", "--out", "out", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found.append(len(list((tmp_path / "out").iterdir())))
    assert found == [1, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "synthetic", "--data", "a.npz"], "either 'synthetic' or --data a.npz, not both"),
        (["compare"], "name an experiment"),
        (["run", "synthetic", "--model", "mlp"], "--model goes with --data"),
        (["run", "--data", "nowhere.npz"], "there is no file or folder nowhere.npz"),
    ],
)
def test_data_or_a_name(arguments: list[str], message: str) -> None:
    done = srfca(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
