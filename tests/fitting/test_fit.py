"""``srfca.fit``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import nn

import srfca
from srfca import ClientData, FedAvg, InputError, LocalTraining, Simulation
from srfca.fitting import DEFAULT_LOCAL, make_simulation
from srfca.methods import SRFCA
from srfca.models import mlp
from tests.experiments.small import write_flights

N = 480
RNG = np.random.default_rng(0)
X = RNG.normal(50, 10, size=(N, 3))
SHOP = np.array([f"s{i % 8}" for i in range(N)])
VALUES = (X[:, 0] - 50) * np.where(np.arange(N) % 2, 1, -1) + RNG.normal(size=N)
SHORT = LocalTraining(steps=5, batch_size=10)


def test_arrays_series_tensors_and_tables_give_the_same_result() -> None:
    frame = pd.DataFrame(X)
    complete = pl.DataFrame({**{f"c{i}": X[:, i] for i in range(3)}, "y": VALUES, "shop": SHOP})
    results = [
        srfca.fit(X, VALUES, SHOP, local=SHORT),
        srfca.fit(torch.tensor(X), torch.tensor(VALUES), list(SHOP), local=SHORT),
        srfca.fit(frame, pd.Series(VALUES), pd.Series(SHOP), local=SHORT),
        srfca.fit(frame, pl.Series(VALUES), pl.Series("shop", SHOP), local=SHORT),
        srfca.fit(complete, "y", "shop", local=SHORT),
    ]
    for result in results:
        assert torch.equal(result.models, results[0].models)
        assert result.client_ids == tuple(f"s{i}" for i in range(8))
    schemas = [result.schema for result in results]
    assert [schema.client for schema in schemas if schema] == ["client"] * 3 + ["shop"] * 2
    assert schemas[2] is not None
    assert schemas[2].features == ("0", "1", "2")
    assert torch.equal(schemas[2].encode(frame), schemas[0].encode({"x": X}))  # type: ignore[union-attr]


def test_two_groups_are_found_with_the_defaults() -> None:
    result = srfca.fit(X, VALUES, SHOP)
    assert result.labels_.tolist() == [0, 1] * 4
    assert result.parameters["local"]["optimizer"] == "adam"


def test_classes_and_categories_of_a_table() -> None:
    table = pd.DataFrame({"age": X[:, 0], "city": np.where(X[:, 1] > 50, "Ulm", "Bonn")})
    result = srfca.fit(table, np.where(VALUES > 0, "yes", "no"), SHOP, local=SHORT)
    assert result.schema is not None
    assert result.schema.classes == ("no", "yes")
    assert result.schema.inputs == ("age", "city=Bonn", "city=Ulm")


def test_column_names_already_in_use() -> None:
    table = {"y": X[:, 0], "client": X[:, 1]}
    schema = srfca.fit(table, VALUES, SHOP, local=SHORT).schema
    assert schema is not None
    assert (schema.features, schema.client, schema.target) == (("y", "client"), "client_", "y_")
    same = pd.Series(VALUES, name="v"), pd.Series(SHOP, name="v")
    schema = srfca.fit(X, *same, local=SHORT).schema
    assert schema is not None
    assert schema.client != schema.target


def test_the_method_and_its_local_training() -> None:
    assert srfca.fit(X, VALUES, SHOP, method="global", local=SHORT).method == "Global"
    own = FedAvg(local=SHORT)
    assert srfca.fit(X, VALUES, SHOP, method=own).parameters["local"]["steps"] == 5
    replaced = srfca.fit(X, VALUES, SHOP, method=own, local=LocalTraining(steps=3))
    assert replaced.parameters["local"]["steps"] == 3


def test_it_is_what_the_parts_give() -> None:
    data = ClientData.from_frame(
        {"x": X, "y": VALUES, "client": SHOP}, client="client", target="y", standardize=True
    )
    federation = Simulation(data, mlp(3, 64, 1), seed=4)
    expected = SRFCA(local=DEFAULT_LOCAL).fit(federation, seed=4)
    result = srfca.fit(X, VALUES, SHOP, seed=4)
    assert torch.equal(result.models, expected.models)
    assert result.labels.tolist() == expected.labels.tolist()


def test_images_are_not_standardized_and_models_can_be_modules() -> None:
    images = RNG.integers(0, 256, (N, 4, 4), dtype=np.uint8)
    labels = np.arange(N) // 2 % 3
    simulation = make_simulation(images, labels, SHOP, hidden=(5,))
    assert simulation.data.train.x.max() == 255
    assert len(simulation.initial_model(0)) == 16 * 5 + 5 + 5 * 3 + 3
    module = nn.Sequential(nn.Linear(3, 1))
    assert make_simulation(X, VALUES, SHOP, model=module).initial_model(0).shape == (4,)
    assert make_simulation(X, VALUES, SHOP, model=lambda: nn.Linear(3, 1)).layers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": "y"}, "both be columns of X by name, or both be arrays"),
        ({"X": X[:, 0]}, r"a row of inputs for each sample, but is of shape \(480,\)"),
        ({"X": {}}, "X has no columns"),
        ({"y": VALUES[:5]}, r"different lengths: 480 \(x, client\), 5 \(y\)"),
        ({"y": 3}, "must have an entry for each row"),
        ({"clients": X[:, 0]}, "strings or whole numbers, not float64"),
        ({"model": "mpl"}, "unknown model 'mpl': did you mean 'mlp'"),
        ({"model": 3}, "model must be a name .*, not of type int"),
        ({"method": "sr-fac"}, "unknown method 'sr-fac': did you mean 'sr-fca'"),
        ({"method": SRFCA}, "a key of 'srfca list' or a Method, not of type ABCMeta"),
        ({"method": "oracle"}, r"must be given the true clusters: pass method=Oracle\(truth="),
        ({"y": (VALUES > 0).astype(float)}, "target_kind='classes' or target_kind='values'"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"X": X, "y": VALUES, "clients": SHOP} | changes
    with pytest.raises(InputError, match=message):
        srfca.fit(**arguments)


def test_the_command_line_has_the_same_defaults(tmp_path: Any) -> None:
    from srfca.experiments import runner
    from srfca.experiments.user_data import experiment_from_data

    arguments: dict[str, Any] = {"client": "dest", "target": "gained", "missing": "drop"}
    experiment = experiment_from_data(
        write_flights(tmp_path), features=["dep_delay", "carrier"], **arguments
    )
    method = runner.make_method(experiment, "sr-fca")
    assert method == SRFCA(local=DEFAULT_LOCAL)
    federation = runner.make_federation(experiment, seed=2)
    table = pd.read_csv(tmp_path / "flights.csv").dropna()[
        ["dest", "gained", "dep_delay", "carrier"]
    ]
    simulation = make_simulation(table, "gained", "dest", seed=2)
    assert simulation.fingerprint() == federation.fingerprint()
    assert torch.equal(simulation.initial_model(2), federation.initial_model(2))
