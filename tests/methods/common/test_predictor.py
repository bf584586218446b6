"""The models in hand: modules, predictions and state dicts of clients and clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from srfca import SRFCA, FedAvg, InputError, Local, LocalTraining, Result, Simulation
from srfca.federation import Coordinates, Personal
from srfca.json_files import read_json, write_json
from srfca.methods import FedEM, FedRep
from srfca.methods._common.result_files import FORMAT
from srfca.models import Architecture, linear, mlp
from tests import examples

LOCAL = LocalTraining(steps=9, local_steps=3, batch_size=10, lr=0.05)


def backbone() -> nn.Module:
    """A frozen part, whose values depend on the seed, and a head."""
    frozen = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)).requires_grad_(False)
    return nn.Sequential(frozen, nn.ReLU(), nn.Linear(5, 3))


@pytest.fixture(scope="module")
def classes() -> Simulation:
    return Simulation(examples.classification([20] * 4), mlp(6, 5, 3))


@pytest.fixture(scope="module")
def result(classes: Simulation) -> Result:
    return FedAvg(local=LOCAL).fit(classes, seed=1)


def inputs(federation: Simulation, client: int = 0) -> Tensor:
    assert federation.data.test is not None
    return federation.data.test.of(client)[0]


def outputs(module: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.as_tensor(module(x))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp(6, 5, 3),
    "frozen": examples.Frozen,
    "backbone": backbone,
    "batch norm": examples.cumulative_batch_norm,
    "dropout": examples.dropped_out,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_module_is_that_of_the_federation(name: str, tmp_path: Path) -> None:
    federation = Simulation(examples.classification([20] * 4), NETWORKS[name])
    found = Local(local=LOCAL).fit(federation, seed=1)
    loaded, x = Result.load(found.save(tmp_path)), inputs(federation)
    for client in range(4):
        expected = outputs(federation.module(found.client_models[client]), x)
        for module in (found.module(client), loaded.module(client), loaded.module(str(client))):
            assert not module.training
            torch.testing.assert_close(outputs(module, x), expected)
        fresh = NETWORKS[name]()
        fresh.load_state_dict(loaded.state_dict(client=client))
        torch.testing.assert_close(outputs(fresh.eval(), x), expected)


def test_predictions_are_classes_and_probabilities(result: Result, classes: Simulation) -> None:
    x = inputs(classes)
    predicted, shares = result.predict(x, client=0), result.predict_proba(x, client=0)
    assert torch.equal(predicted, shares.argmax(1))
    torch.testing.assert_close(shares.sum(1), torch.ones(len(x)))
    for wide in (x.numpy(), x.double().numpy(), x.numpy().astype(np.float16)):
        as_array = result.predict(wide, client="0")
        assert isinstance(as_array, np.ndarray)
        assert as_array.tolist() == predicted.tolist()
    assert isinstance(result.predict_proba(x.numpy(), cluster=0), np.ndarray)


def test_predictions_of_a_regression_are_values() -> None:
    federation = Simulation(examples.regression([20] * 3), linear(4))
    found = FedAvg(local=LOCAL).fit(federation)
    x = inputs(federation)
    values = found.predict(x, client=2)
    torch.testing.assert_close(values, outputs(found.module(2), x).squeeze(1))
    with pytest.raises(InputError, match="probabilities need a model that was trained with cross"):
        found.predict_proba(x, client=2)
    with pytest.raises(InputError, match=r"trained on samples of shape \(4,\)"):
        found.predict(x[:, :3], client=2)


def test_an_unknown_client_or_cluster_is_named(result: Result) -> None:
    named = replace(result, client_ids=("north", "south", "east", "west"))
    assert outputs(named.module("west"), torch.ones(1, 6)).shape == (1, 3)
    for message, chosen in (
        ("unknown client 'nort': did you mean 'north'", {"client": "nort"}),
        ("no client at position 4: positions are 0 to 3; a name is .* 'north'", {"client": 4}),
        ("no client at position -1", {"client": -1}),
        ("there is no cluster 1: there is one, cluster 0", {"cluster": 1}),
        ("name a client or a cluster", {}),
        ("name a client or a cluster", {"client": 0, "cluster": 0}),
    ):
        with pytest.raises(InputError, match=message):
            named.module(**chosen)
    two = replace(named, models=torch.cat([named.models] * 2))
    with pytest.raises(InputError, match="there is no cluster 2: clusters are 0 to 1"):
        two.state_dict(2)


def test_a_client_without_a_cluster_has_no_model(result: Result) -> None:
    labels = np.array([0, -1, 0, 0])
    for unplaced in (
        replace(result, labels=labels),
        replace(result, fine_tuned_models=torch.full((4, 53), torch.nan)),
    ):
        with pytest.raises(InputError, match="client '1' is in no cluster and has no model"):
            unplaced.module("1")
        unplaced.module(cluster=0)


def test_a_fine_tuned_model_comes_first(result: Result) -> None:
    tuned = torch.rand(4, result.models.shape[1])
    individual = torch.rand(4, result.models.shape[1])
    weights = torch.tensor([[1.0]] * 4)
    final = replace(result, individual_models=individual, fine_tuned_models=tuned)
    layout = Architecture.of(mlp(6, 5, 3)).layout
    assert torch.equal(layout.row(final.module(3)), tuned[3])
    assert torch.equal(layout.row(replace(final, fine_tuned_models=None).module(3)), individual[3])
    mixed = replace(
        result,
        mixture_weights=weights,
        fine_tuned_models=tuned,
        fine_tuned_steps=torch.tensor([0, 0, 0, 2]),
    )
    assert torch.equal(layout.row(mixed.module(3)), tuned[3])
    assert type(mixed.module(2)).__name__ == "MixtureModule"


def test_a_mixture_is_one_module(tmp_path: Path) -> None:
    federation = Simulation(examples.mixed_labels([0.9, 0.5, 0.1]), mlp(6, 8, 4))
    found = FedEM(k=2, local=LOCAL).fit(federation)
    loaded, x = Result.load(found.save(tmp_path)), inputs(federation)
    assert found.mixture_weights is not None
    for client in range(3):
        parts = [found.predict_proba(x, cluster=cluster) for cluster in range(2)]
        share = found.mixture_weights[client]
        expected = share[0] * parts[0] + share[1] * parts[1]
        torch.testing.assert_close(loaded.predict_proba(x, client), expected)
    state = loaded.state_dict(client=0)
    assert set(state) == {"weights", *(f"models.{k}.{key}" for k in (0, 1) for key in KEYS)}


KEYS = ("1.weight", "1.bias", "3.weight", "3.bias")


def test_a_head_that_stays_at_home_is_not_in_the_result(classes: Simulation) -> None:
    found = FedRep(local=LOCAL).fit(classes)
    x = inputs(classes)
    assert not torch.allclose(outputs(found.module(0), x), outputs(found.module(1), x))
    real = replace(found, individual_models=None)
    with pytest.raises(InputError, match=r"client '2' keeps a part of its model.*receive"):
        real.module("2")
    real.module(cluster=0)
    kept = Personal(Coordinates(((0, 3),)), 0, "fedrep")
    replace(found, personal=kept).module("2")


@pytest.mark.parametrize("model", [nn.Linear(6, 3), lambda: nn.Linear(6, 3)])
def test_a_model_without_a_name_is_passed_when_it_is_loaded(
    model: nn.Module | Callable[[], nn.Module], tmp_path: Path
) -> None:
    federation = Simulation(examples.classification([20] * 4), model)
    found, x = FedAvg(local=LOCAL).fit(federation), inputs(federation)
    expected = found.predict(x, client=0)
    loaded = Result.load(found.save(tmp_path))
    with pytest.raises(InputError, match=r"Result\.load\(folder, model=factory\)"):
        loaded.module(0)
    fresh = nn.Linear(6, 3)
    fresh.load_state_dict(loaded.state_dict(0))
    assert torch.equal(outputs(fresh, x).argmax(1), expected)
    assert torch.equal(Result.load(tmp_path, model=nn.Linear(6, 3)).predict(x, client=0), expected)
    with pytest.raises(InputError, match=r"'weight' is trained with shape \(3, 6\)"):
        Result.load(tmp_path, model=nn.Linear(6, 2))


def test_a_folder_without_an_architecture_needs_the_model(result: Result, tmp_path: Path) -> None:
    path = result.save(tmp_path) / "result.json"
    content = read_json(path, FORMAT, "")
    del content["architecture"]
    write_json(path, content, FORMAT)
    old, x = Result.load(tmp_path), torch.randn(2, 6)
    for use in (lambda: old.module(0), lambda: old.state_dict(0), lambda: old.predict(x, 0)):
        with pytest.raises(InputError, match=r"saved without its architecture.*model=factory"):
            use()
    loaded = Result.load(tmp_path, model=mlp(6, 5, 3))
    torch.testing.assert_close(outputs(loaded.module(0), x), outputs(result.module(0), x))
    with pytest.raises(InputError, match="does not say what the outputs of its models mean"):
        loaded.predict(x, 0)
    with pytest.raises(InputError, match=r"models of 53 trained values, but model makes .* of 63"):
        Result.load(tmp_path, model=mlp(6, 6, 3))


def test_an_adapted_result_has_its_models(tmp_path: Path) -> None:
    federation = Simulation(examples.regression([20] * 6, clusters=2), lambda: linear(4)())
    local = LocalTraining(steps=12, local_steps=3, batch_size=10, lr=0.05)
    found = SRFCA(local=local).fit(federation)
    adapted = Result.load(found.save(tmp_path)).adapt(federation, local, rounds=1)
    assert outputs(adapted.module(0), torch.ones(1, 4)).shape == (1, 1)
