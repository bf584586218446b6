"""Ditto: by hand, the minimum that it finds, and its paper's claims in a small form."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from srfca import ClientData, FedAvg, InputError, Local, LocalTraining, Result, Simulation
from srfca.methods import Ditto, Run
from srfca.methods._common.rounds import one_cluster, participants
from srfca.models import linear
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import train

LOCAL = LocalTraining(steps=8, local_steps=2, batch_size=None, lr=0.05)


def two_clients() -> Simulation:
    data = examples.regression([6, 18], d=3)
    return Simulation(data, examples.doubled(linear(3, bias=False)), validation=0)


def arrays(federation: Simulation, client: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = federation._samples["train"].of(client)
    return x.numpy(), y.numpy()


def similar(
    num_clients: int = 12, d: int = 10, samples: int = 12, poisoned: int = 0, seed: int = 0
) -> ClientData:
    """Return regressions around a common one; poisoned clients have the wrong sign, tenfold.

    All test data is as in the honest clients.
    """
    rng = np.random.default_rng(seed)
    center = rng.normal(size=d)

    def draw(n: int, w: np.ndarray, factor: float) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(n, d))
        return x, factor * (x @ w + 0.5 * rng.normal(size=n))

    slopes = [center + 0.4 * rng.normal(size=d) for _ in range(num_clients)]
    factors = [-10.0 if c < poisoned else 1.0 for c in range(num_clients)]
    samples_of = [draw(samples, w, factor) for w, factor in zip(slopes, factors, strict=True)]
    return ClientData.from_arrays(samples_of, [draw(200, w, 1.0) for w in slopes])


def loss(result: Result, federation: Simulation, clients: slice = slice(None)) -> float:
    return float(result.scores(federation).loss[clients].mean())


def test_by_hand() -> None:
    federation = two_clients()
    samples = [arrays(federation, c) for c in range(2)]
    w, v = np.zeros(3), [np.zeros(3), np.zeros(3)]
    for _ in range(4):
        sent = []
        for c, (x, y) in enumerate(samples):
            row = w.copy()
            for _ in range(2):
                row = row - 0.05 * 2 / len(y) * x.T @ (x @ row - y)
                slope = 2 / len(y) * x.T @ (x @ v[c] - y) + 0.7 * (v[c] - w)
                v[c] = v[c] - 0.02 * slope
            sent.append(row)
        w = (6 * sent[0] + 18 * sent[1]) / 24
    result = Ditto(local=LOCAL, mu=0.7, fine_tune_lr=0.02).fit(federation)
    assert result.labels.tolist() == [0, 0]
    assert not result.clustered
    np.testing.assert_allclose(result.models[0].numpy(), w, rtol=1e-10)
    np.testing.assert_allclose(result.client_models.numpy(), np.stack(v), rtol=1e-10)


def test_individual_models_end_at_the_minimum_of_the_penalized_loss() -> None:
    federation = two_clients()
    result = Ditto(local=replace(LOCAL, steps=600, lr=0.1), mu=0.5).fit(federation)
    w = result.models[0].numpy()
    for c, v in enumerate(result.client_models.numpy()):
        x, y = arrays(federation, c)
        matrix = 2 / len(y) * x.T @ x + 0.5 * np.eye(3)
        best = np.linalg.solve(matrix, 2 / len(y) * x.T @ y + 0.5 * w)
        np.testing.assert_allclose(v, best, atol=1e-6)


def test_it_beats_local_models_and_one_model_on_similar_clients() -> None:
    federation = Simulation(similar(), linear(10, bias=False))
    local = LocalTraining(steps=300, batch_size=None, lr=0.05)
    ditto = loss(Ditto(local=local, mu=1.0).fit(federation), federation)
    assert ditto < 0.9 * loss(Local(local=local).fit(federation), federation)
    assert ditto < 0.9 * loss(FedAvg(local=local).fit(federation), federation)


def test_poisoned_clients_spoil_the_global_model_but_not_individual_models() -> None:
    """The paper's claim: personal models are robust, more so with a robust aggregation."""
    federation = Simulation(similar(poisoned=3), linear(10, bias=False))
    local, honest = LocalTraining(steps=300, batch_size=None, lr=0.05), slice(3, None)
    mean = Ditto(local=local, mu=0.3).fit(federation)
    spoiled = loss(replace(mean, individual_models=None), federation, honest)
    assert loss(mean, federation, honest) < 0.3 * spoiled
    robust: tuple[Literal["trimmed_mean", "median"], ...] = ("trimmed_mean", "median")
    for aggregation in robust:
        result = Ditto(local=local, mu=0.3, aggregation=aggregation, trim=0.3).fit(federation)
        assert loss(result, federation, honest) < 0.9 * loss(mean, federation, honest)
        global_model = replace(result, individual_models=None)
        assert loss(global_model, federation, honest) < 0.1 * spoiled


def test_mu_of_zero_is_local() -> None:
    federation = two_clients()
    alone = Local(local=replace(LOCAL, steps=8)).fit(federation)
    result = Ditto(local=LOCAL, mu=0.0).fit(federation)
    torch.testing.assert_close(result.individual_models, alone.models)


def test_each_client_keeps_the_mu_that_suits_its_held_out_data() -> None:
    federation = Simulation(similar(samples=40), linear(10, bias=False), validation=0.3)
    local = LocalTraining(steps=60, batch_size=None, lr=0.05)
    method = Ditto(local=local, mu=1.0, mu_per_client=True)
    result = method.fit(federation)
    singles = {mu: Ditto(local=local, mu=mu).fit(federation) for mu in (1.0, 0.1, 10.0)}
    held_out = torch.stack([r.scores(federation, "validation").loss for r in singles.values()])
    best = held_out.argmin(0).tolist()
    assert result.history[-1].notes["mu"] == pytest.approx([list(singles)[b] for b in best])
    assert len(set(best)) > 1, "clients differ"
    chosen = [list(singles.values())[b].client_models[c] for c, b in enumerate(best)]
    torch.testing.assert_close(result.client_models, torch.stack(chosen), rtol=1e-5, atol=1e-6)
    assert torch.equal(result.models, singles[1.0].models)
    assert method.trainings == 4
    assert result.budget.local_steps == 4 * 12 * 60
    with pytest.raises(InputError, match="mu_per_client needs held-out data"):
        method.fit(Simulation(similar(), linear(10, bias=False), validation=0))


def test_the_optimizer_of_an_individual_model_keeps_its_state() -> None:
    federation = two_clients()
    local = replace(LOCAL, optimizer="adam")
    alone = Local(local=local).fit(federation)
    result = Ditto(local=local, mu=0.0).fit(federation)
    torch.testing.assert_close(result.individual_models, alone.models)


def test_the_global_model_is_that_of_fedavg() -> None:
    federation = two_clients()
    torch.testing.assert_close(
        Ditto(local=LOCAL).fit(federation).models, FedAvg(local=LOCAL).fit(federation).models
    )


def test_an_individual_model_starts_from_the_first_global_model_that_its_client_receives() -> None:
    federation = Simulation(similar(), linear(10, bias=False))
    two_rounds = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)
    result = Ditto(local=two_rounds, participation=0.25).fit(federation)
    everyone = one_cluster(Run(federation))
    drawn = [set(participants(federation, everyone, 0.25, Key(0, "ditto", r))) for r in (0, 1)]
    first = Ditto(local=replace(two_rounds, steps=2), participation=0.25).fit(federation)
    never = sorted(set(range(12)) - drawn[0] - drawn[1])
    assert torch.equal(result.client_models[never], result.models.expand(len(never), -1))
    only_first = sorted(drawn[0] - drawn[1])
    assert torch.equal(result.client_models[only_first], first.client_models[only_first])
    later = sorted(drawn[1] - drawn[0])
    pulled = replace(two_rounds, mu=0.1)
    start = first.models.expand(len(later), -1)
    expected = train(federation, start, later, pulled, Key(0, "ditto personal", 1), anchors=start)
    assert torch.equal(result.client_models[later], expected)


def test_both_trainings_keep_their_optimizer_state() -> None:
    data = examples.regression([6, 18, 11], d=3)
    model = examples.doubled(linear(3))
    local = LocalTraining(
        steps=9, local_steps=3, batch_size=5, lr=0.02, momentum=0.9, keep_state=True
    )
    result = Ditto(local=local).fit(Simulation(data, model), seed=3)
    expected = Ditto(local=local).fit(ReferenceFederation(data, model), seed=3)
    torch.testing.assert_close(
        result.individual_models, expected.individual_models, rtol=1e-9, atol=1e-9
    )
    torch.testing.assert_close(result.models, expected.models, rtol=1e-9, atol=1e-9)
    stateless = Ditto(local=replace(local, keep_state=False)).fit(Simulation(data, model), seed=3)
    assert not torch.allclose(result.client_models, stateless.client_models)


def test_the_seed_decides_and_blocks_do_not() -> None:
    data, model = similar(), examples.doubled(linear(10))
    local = LocalTraining(steps=6, local_steps=2, batch_size=4, lr=0.05)
    method = Ditto(local=local, participation=0.5)
    result = method.fit(Simulation(data, model), seed=5)
    again = method.fit(Simulation(data, model, block_size=1), seed=5)
    torch.testing.assert_close(result.individual_models, again.individual_models)
    other = method.fit(Simulation(data, model), seed=6)
    assert not torch.allclose(result.client_models, other.client_models)


def test_it_costs_two_trainings_and_one_model_each_way_a_round() -> None:
    method = Ditto(local=LOCAL)
    spent = method.fit(two_clients()).budget
    assert method.trainings == 2
    assert spent.local_steps == 2 * 2 * 8
    assert (spent.models_down, spent.models_up) == (2 * 4, 2 * 4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mu", -0.1), ("fine_tune_lr", 0.0), ("aggregation", "krum"), ("trim", 0.5),
        ("participation", 0.0), ("fine_tune_steps", -1),
    ],
)  # fmt: skip
def test_wrong_values_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        Ditto(**{name: value})


def test_divergence_names_the_client() -> None:
    with pytest.raises(InputError, match="the individual models diverged for client"):
        Ditto(local=replace(LOCAL, steps=400), fine_tune_lr=50.0).fit(two_clients())
