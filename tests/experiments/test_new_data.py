"""A saved run on new data: which model predicts which row, and where newcomers belong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from srfca import SRFCA, ClientData, FedAvg, InputError, Local, LocalTraining, Result, Simulation
from srfca.experiments.new_data import (
    assign_newcomers,
    has_one_model,
    predict,
    read_new_data,
    unplaced_clients,
)
from srfca.models import mlp
from tests import examples
from tests.experiments.shops import Columns, shops, without, write_csv

LOCAL = LocalTraining(steps=120, local_steps=10, batch_size=20, optimizer="adam", lr=0.02)
KINDS = {f"shop-{number}": number % 2 for number in range(10)}


def federation(target: str = "buys", shift: float = 0.0) -> Simulation:
    other = "spends" if target == "buys" else "buys"
    table = without(shops(KINDS, shift=shift), other)
    clients = ClientData.from_frame(table, client="shop", target=target)
    return Simulation(clients, mlp(3, 16, 2 if target == "buys" else 1), validation=0.2)


@pytest.fixture(scope="module")
def result() -> Result:
    return SRFCA(local=LOCAL, refine_steps=1).fit(federation())


def csv_of(folder: Path, columns: Columns) -> Path:
    return write_csv(folder / "new.csv", without(columns, "spends"))


def test_every_row_is_predicted_by_its_clients_model(result: Result, tmp_path: Path) -> None:
    new = shops({"shop-3": 1, "shop-0": 0}, rows=30, seed=5)
    loaded = Result.load(result.save(tmp_path))
    data = read_new_data(csv_of(tmp_path, without(new, "buys")), loaded)
    assert unplaced_clients(loaded, data) == []
    predictions = predict(loaded, data, {})
    assert predictions.client.tolist() == new["shop"]
    agreement = np.mean(predictions.values == np.array(new["buys"], dtype=object))
    assert agreement > 0.85, agreement
    assert predictions.probability is not None
    assert (predictions.probability >= 0.5).all()
    table = {"city": new["city"][:30], "age": new["age"][:30]}
    by_table = loaded.predict(table, client="shop-3")
    assert by_table.tolist() == predictions.values[:30].tolist()
    shares = loaded.predict_proba(table, client="shop-3")
    np.testing.assert_allclose(shares.max(1), predictions.probability[:30], rtol=1e-5)


def test_newcomers_with_labels_are_assigned_by_them(result: Result, tmp_path: Path) -> None:
    new = shops({"late": 0, "shop-1": 1, "later": 1}, seed=6)
    data = read_new_data(csv_of(tmp_path, new), result)
    assert unplaced_clients(result, data) == ["late", "later"]
    [newcomers] = assign_newcomers(result, data, ["late", "later"])
    clusters = dict(zip(newcomers.client_ids, newcomers.assignment.labels.tolist(), strict=True))
    assert newcomers.labels
    assert clusters == {"late": result.labels[0], "later": result.labels[1]}
    predictions = predict(result, data, clusters | {"later": -1})
    late = predictions.client == "late"
    assert np.mean(predictions.values[late] == np.array(new["buys"], dtype=object)[late]) > 0.85
    later = predictions.client == "later"
    assert all(value is None for value in predictions.values[later])
    assert predictions.probability is not None
    assert np.isnan(predictions.probability[later]).all()


def test_rows_without_a_label_are_left_out_of_an_assignment(result: Result, tmp_path: Path) -> None:
    new = shops({"late": 0, "later": 1}, seed=7)
    partly = [label if row % 2 else "" for row, label in enumerate(new["buys"][:40])]
    data = read_new_data(csv_of(tmp_path, new | {"buys": [*partly, *[""] * 40]}), result)
    assert len(data.labeled_rows(data.rows["late"])) == 20
    [newcomers] = assign_newcomers(result, data, ["late"])
    assert newcomers.assignment.labels.tolist() == [result.labels[0]]
    with pytest.raises(InputError, match=r"'later' .* no labels in column 'buys'.*--input-s"):
        assign_newcomers(result, data, ["late", "later"])


def test_newcomers_without_labels_are_assigned_by_their_inputs(tmp_path: Path) -> None:
    clients = federation(shift=60.0)
    found = SRFCA(local=LOCAL, refine_steps=1).fit(clients).with_input_statistics(clients)
    assert found.partition.num_clusters == 2
    loaded = Result.load(found.save(tmp_path))
    new = shops({"late": 0, "later": 1}, rows=100, seed=8, shift=60.0)
    data = read_new_data(csv_of(tmp_path, without(new, "buys")), loaded)
    [newcomers] = assign_newcomers(loaded, data, ["late", "later"])
    assert not newcomers.labels
    placed = newcomers.assignment.labels.tolist()
    assert all(label in (-1, found.labels[kind]) for kind, label in enumerate(placed))
    assert max(placed) >= 0


def test_one_model_serves_newcomers_and_many_do_not(tmp_path: Path) -> None:
    clients = federation()
    one, many = FedAvg(local=LOCAL).fit(clients), Local(local=LOCAL).fit(clients)
    assert has_one_model(one)
    assert not has_one_model(many)
    data = read_new_data(csv_of(tmp_path, shops({"late": 0}, seed=9)), one)
    assert predict(one, data, {"late": 0}).values.shape == (40,)
    with pytest.raises(InputError, match="Local has no clusters to assign clients to"):
        assign_newcomers(many, data, ["late"])


def test_values_are_in_the_units_of_the_target(tmp_path: Path) -> None:
    found = Local(local=LOCAL).fit(federation("spends"))
    new = without(shops({"shop-1": 1}, seed=9), "buys")
    data = read_new_data(write_csv(tmp_path / "new.csv", new), found)
    predictions = predict(found, data, {})
    assert predictions.probability is None
    errors = predictions.values.astype(float) - np.array(new["spends"], dtype=float)
    assert float(np.abs(errors).mean()) < 8.0


def test_results_without_a_schema_take_arrays(tmp_path: Path) -> None:
    clients = Simulation(examples.regression([20] * 6, clusters=2), mlp(4, 1))
    found = SRFCA(local=LocalTraining(steps=60, batch_size=10, lr=0.05)).fit(clients)
    newcomers = examples.regression([40, 40], clusters=2)
    path, x = tmp_path / "new.npz", newcomers.train.x
    np.savez(path, x=x, client=np.repeat(["0", "new"], 40), y=newcomers.train.y)
    data = read_new_data(path, found)
    [placed] = assign_newcomers(found, data, ["new"])
    assert placed.assignment.labels.tolist() == [found.labels[1]]
    predictions = predict(found, data, {"new": int(found.labels[1])})
    expected = found.predict(x[40:], cluster=int(found.labels[1]))
    np.testing.assert_allclose(predictions.values[40:].astype(float), expected, rtol=1e-5)
    with pytest.raises(InputError, match=r"not of type dict.*no schema"):
        found.predict({"x": [1.0]}, client="0")


def test_what_cannot_be_read_or_assigned_is_named(result: Result, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read_new_data(tmp_path / "new.csv", result)
    new = shops({"late": 0}, seed=9)
    for message, columns in (
        (r"new\.csv: unknown column 'shop'", without(new, "shop")),
        (r"new\.csv: unknown column 'age'", without(new, "age")),
        (
            r"new\.csv: column 'city' has 1 values",
            new | {"city": ["Rom"] * 40},
        ),
    ):
        with pytest.raises(InputError, match=message):
            read_new_data(csv_of(tmp_path, columns), result)
    data = read_new_data(csv_of(tmp_path, new | {"buys": ["maybe"] * 40}), result)
    with pytest.raises(InputError, match=r"new\.csv: column 'buys' has 1 values that are no class"):
        assign_newcomers(result, data, ["late"])
    assert result.architecture is not None
    assert result.architecture.signature is not None
    custom = replace(result.architecture.signature, loss="custom")
    own_loss = replace(result, architecture=replace(result.architecture, signature=custom))
    with pytest.raises(InputError, match=r"with a loss of its own.*Simulation\(\.\.\., loss"):
        assign_newcomers(own_loss, read_new_data(csv_of(tmp_path, new), result), ["late"])
    with pytest.raises(InputError, match="saved without what its models take"):
        predict(replace(result, architecture=None), data, {})


def test_clients_without_a_cluster_count_as_newcomers(result: Result, tmp_path: Path) -> None:
    labels = result.labels.copy()
    labels[0] = -1
    plain = replace(result, labels=labels, individual_models=None, fine_tuned_models=None)
    data = read_new_data(csv_of(tmp_path, shops({"shop-0": 0, "shop-1": 1})), plain)
    assert unplaced_clients(plain, data) == ["shop-0"]
    tuned = replace(plain, individual_models=torch.zeros(10, plain.models.shape[1]))
    assert unplaced_clients(tuned, data) == []
