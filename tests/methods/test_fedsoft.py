"""FedSoft: rounds by hand, and its paper's claims in a small form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca import FedAvg, InputError, Local, LocalTraining, Partition, Simulation
from srfca.methods import FedSoft, Run, fedsoft
from srfca.methods._common.init import random_models, starting_models
from srfca.methods.fedsoft import aggregation_weights, drawn_weights, importance
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.methods.helpers import digits, scores, train

SHARES = [0.1, 0.3, 0.7, 0.9] * 3
LOCAL = LocalTraining(steps=100, local_steps=5, batch_size=10, lr=0.05)


def mixed(seed: int = 1, n: int = 40, **options: Any) -> Simulation:
    return Simulation(examples.mixed_regressions(SHARES, n=n, seed=seed), linear(4), **options)


def one_input() -> nn.Module:
    return nn.Linear(1, 1).double()


def test_rounds_by_hand() -> None:
    federation = Simulation(examples.mixed_regressions([0.2, 0.5, 0.9], n=7, d=1), one_input)
    c = random_models(Run(federation, 3), 2, "start").numpy()
    local = LocalTraining(steps=6, local_steps=2, batch_size=None, lr=0.1)
    method = FedSoft(k=2, start="random", mu=0.5, sigma=0.2, tau=2, local=local)
    result = method.fit(federation, seed=3)

    samples = [federation._samples["train"].of(i) for i in range(3)]
    arrays = [(x.numpy()[:, 0], y.numpy()) for x, y in samples]
    u, w = np.zeros((3, 2)), np.zeros((3, 2))
    for number in range(3):
        for i, (x, y) in enumerate(arrays):
            if number in (0, 2):
                errors = [(x * a + b - y) ** 2 for a, b in c]
                first = float((errors[0] <= errors[1]).mean())
                u[i] = max(first, 0.2), max(1 - first, 0.2)
                u[i] /= u[i].sum()
            if number == 0:
                w[i] = u[i] @ c
            for _ in range(2):
                error = x * w[i, 0] + w[i, 1] - y
                slope = np.array([(2 * error * x).mean(), (2 * error).mean()])
                pull = sum(0.5 * u[i, s] * (w[i] - c[s]) for s in range(2))
                w[i] = w[i] - 0.1 * (slope + pull)
        sizes = np.array([len(x) for x, _ in arrays])
        c = np.stack([(u[:, s] * sizes) @ w / (u[:, s] @ sizes) for s in range(2)])
    np.testing.assert_allclose(result.client_models.numpy(), w, rtol=1e-12)
    np.testing.assert_allclose(result.history[-1].notes["importance"], u, rtol=1e-12)
    used = [c[s] for s in dict.fromkeys(u.argmax(1).tolist())]
    np.testing.assert_allclose(result.models.numpy(), used, rtol=1e-12)
    assert result.partition == Partition(u.argmax(1))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_beats_one_model_and_local_models_on_mixed_data(seed: int) -> None:
    federation = mixed(seed, n=20)
    result = FedSoft(k=2, mu=1.0, local=LOCAL).fit(federation)
    loss = float(result.scores(federation).loss.mean())
    for other in (FedAvg(local=LOCAL), Local(local=LOCAL)):
        baseline = float(other.fit(federation).scores(federation).loss.mean())
        assert loss < 0.95 * baseline, other.name


def test_centers_specialize_and_weights_follow_the_shares() -> None:
    federation = mixed()
    result = FedSoft(k=2, mu=1.0, local=replace(LOCAL, steps=200)).fit(federation)
    true = 2 * torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    distances = torch.cdist(result.models[:, :4], true)
    assert bool((distances.min(1).values < 0.7 * distances.max(1).values).all())
    assert set(distances.argmin(1).tolist()) == {0, 1}
    first = int(distances[:, 0].argmin())
    labels = [first if share > 0.5 else 1 - first for share in SHARES]
    assert result.partition == Partition(labels)
    u = np.array(result.history[-1].notes["importance"])
    assert abs(np.corrcoef(u[:, 0], SHARES)[0, 1]) > 0.9


def test_separate_groups_are_found_from_a_good_start() -> None:
    federation = Simulation(examples.regression([20] * 9, clusters=3), linear(4))
    result = FedSoft(k=3, sigma=1e-6, local=LOCAL).fit(federation)
    assert result.partition == federation.data.truth
    u = np.array(result.history[-1].notes["importance"])
    assert u.max(1).min() > 0.8, "nearly hard"
    alone = Local(local=LOCAL).fit(federation).scores(federation).loss.mean()
    assert float(result.scores(federation).loss.mean()) < float(alone)


def test_softness_costs_accuracy_where_clients_are_pure(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = digits(num_clients=20)
    local = LocalTraining(steps=100, local_steps=5, batch_size=10, lr=0.5)
    method = FedSoft(k=4, mu=0.3, local=local)
    soft = method.fit(federation)

    def hard_importance(shares: Tensor, sigma: float) -> Tensor:
        return (shares == shares.max(1, keepdim=True).values).to(shares)

    monkeypatch.setattr(fedsoft, "importance", hard_importance)
    hard = method.fit(federation)
    assert soft.partition == hard.partition == federation.data.truth
    accuracy, ceiling = (outcome.scores(federation).accuracy for outcome in (soft, hard))
    assert accuracy is not None
    assert ceiling is not None
    assert float(accuracy.mean()) < float(ceiling.mean()) - 0.05


def test_clients_can_predict_with_their_centers() -> None:
    federation = digits(num_clients=12, rotations=2)
    local = LocalTraining(steps=40, local_steps=5, batch_size=10, lr=0.5)
    method = FedSoft(k=2, local=local, curves=2)
    personal = method.fit(federation)
    center = replace(method, predicts_with="center").fit(federation)
    assert center.individual_models is None
    assert torch.equal(center.models, personal.models)
    assert center.labels.tolist() == personal.labels.tolist()
    assert not torch.allclose(center.client_models, personal.client_models)
    assert all(len(point.loss) == 2 for point in center.history[-1].curve)
    accuracy = scores(federation, center.client_models, "validation").accuracy
    assert accuracy is not None
    assert center.history[-1].accuracy == pytest.approx(float(accuracy.mean()))


def test_the_optimizer_of_a_personal_model_keeps_its_state() -> None:
    """With one center far away in effect (a tiny mu), a client trains as it would alone."""
    federation = Simulation(examples.regression([20] * 4), examples.doubled(linear(4)))
    local = LocalTraining(steps=12, local_steps=3, batch_size=None, lr=0.05, optimizer="adam")
    result = FedSoft(k=1, mu=1e-12, start="clients", local=local).fit(federation)
    start = starting_models(Run(federation, 0), 1, "clients", local, local.steps, "start")[0]
    once = replace(local, local_steps=12)
    alone = train(federation, start.expand(4, -1), range(4), once, Key(0, "fedsoft"))
    torch.testing.assert_close(result.client_models, alone, rtol=1e-6, atol=1e-8)


def test_superfluous_centers_are_noted_as_empty() -> None:
    federation = Simulation(examples.regression([20] * 6), linear(4))
    result = FedSoft(k=4, local=LOCAL).fit(federation)
    empty = result.history[-1].notes["empty"]
    assert empty == [3]
    assert len(result.models) == 4 - len(empty) == result.partition.num_clusters


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), m=st.integers(1, 9), k=st.integers(1, 4))
def test_draws_follow_the_weights(seed: int, m: int, k: int) -> None:
    g = torch.Generator().manual_seed(seed)
    shares = torch.rand(m, k, generator=g)
    shares[0, 0] = 0.0
    u = importance(shares / shares.sum(1, keepdim=True).clamp(min=1e-9), 1e-6)
    v = aggregation_weights(u, torch.randint(1, 50, (m,), generator=g))
    torch.testing.assert_close(v.sum(0), torch.ones(k))
    drawn = drawn_weights(v, 4000, Key(seed, "x"))
    torch.testing.assert_close(drawn.sum(0), torch.ones(k))
    assert float((drawn - v).abs().max()) < 5 * 0.5 / 4000**0.5


def test_every_client_has_a_model_if_only_some_take_part() -> None:
    federation = mixed()
    method = FedSoft(k=2, mu=1.0, participation=0.25, local=LOCAL)
    result = method.fit(federation)
    full = replace(method, participation=1.0).fit(federation)
    assert result.budget.local_steps < 0.5 * full.budget.local_steps
    before = scores(federation, federation.initial_model(0).expand(12, -1)).loss
    assert bool((result.scores(federation).loss < before).all())


def test_clients_that_are_not_drawn_send_nothing() -> None:
    federation = Simulation(examples.regression([20] * 20), linear(4))
    local = LocalTraining(steps=5, local_steps=5, batch_size=10, lr=0.05)
    spent = FedSoft(k=2, start="clients", participation=0.1, local=local).fit(federation).budget
    assert spent.local_steps == 5 * (2 + 20)
    assert spent.models_up <= 2 + 2


def test_the_start_has_no_proximal_term() -> None:
    federation = Simulation(examples.regression([20] * 6), linear(4))
    local = LocalTraining(steps=10, local_steps=5, batch_size=10, lr=0.05)
    plain, pulled = (FedSoft(local=replace(local, mu=mu)).fit(federation) for mu in (0.0, 5.0))
    assert torch.equal(plain.models, pulled.models)


def test_block_size_and_repetition_do_not_matter() -> None:
    method = FedSoft(k=2, local=replace(LOCAL, steps=15), participation=0.5)
    result = method.fit(mixed(), seed=2)
    for again in (method.fit(mixed(), seed=2), method.fit(mixed(block_size=5), seed=2)):
        torch.testing.assert_close(again.models, result.models)
        torch.testing.assert_close(again.client_models, result.client_models)
    other = method.fit(mixed(), seed=3)
    assert not torch.allclose(other.client_models, result.client_models)


def test_the_budget() -> None:
    local = replace(LOCAL, steps=20)
    method = FedSoft(k=2, tau=2, local=local)
    spent = method.fit(mixed()).budget
    assert method.trainings == 1
    assert spent.local_steps == 12 * 20 + 2 * 20
    assert spent.evaluations == 12 + 2 * 2 * 12
    assert spent.models_up == 12 * 4 + 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0), ("mu", 0.0), ("sigma", 0.0), ("sigma", 1.0), ("tau", 0), ("start", "best"),
        ("predicts_with", "both"),
        ("participation", 2.0),
    ],
)  # fmt: skip
def test_wrong_values_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        FedSoft(**{name: value})


def test_starts_that_cannot_work_are_refused() -> None:
    with pytest.raises(InputError, match="use start='clients'"):
        FedSoft(k=2, start="random", local=LOCAL).fit(mixed())
    with pytest.raises(InputError, match="k=13 is more than the 12 clients"):
        FedSoft(k=13, local=LOCAL).fit(mixed())
    with pytest.raises(InputError, match="diverged"):
        FedSoft(k=2, local=replace(LOCAL, lr=1e8)).fit(mixed())
    same = Simulation(examples.classification([20] * 4), mlp(6, 5, 3)())
    with pytest.raises(InputError, match="2 equal models"):
        FedSoft(k=2, start="random", local=LOCAL).fit(same)
    assert len(FedSoft(k=2, start="distant", local=LOCAL).fit(same).models) >= 1
