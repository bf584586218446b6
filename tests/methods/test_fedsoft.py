"""FedSoft: rounds by hand, its paper's claims in a small form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca import Global, Local, Partition, Simulation, Work
from srfca.data import rotated_digits
from srfca.errors import InputError
from srfca.methods import FedSoft, fedsoft
from srfca.methods.fedsoft import aggregation_weights, importance, selected
from srfca.methods.run import Run
from srfca.methods.starts import distant_models, random_models
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples

SHARES = [0.1, 0.3, 0.7, 0.9] * 3
WORK = Work(steps=100, local_steps=5, batch_size=10, lr=0.05)


def mixed(seed: int = 1, n: int = 40, **options: int) -> Simulation:
    data = examples.mixed_regressions(SHARES, n=n, seed=seed)
    return Simulation(data, linear(4), **options)  # type: ignore[arg-type]


def one_input() -> nn.Module:
    return nn.Linear(1, 1).double()


def test_rounds_by_hand() -> None:
    federation = Simulation(examples.mixed_regressions([0.2, 0.5, 0.9], n=7, d=1), one_input)
    c = random_models(Run(federation, 3), 2, "start").numpy()
    work = Work(steps=6, local_steps=2, batch_size=None, lr=0.1)
    method = FedSoft(k=2, start="random", penalty=0.5, sigma=0.2, tau=2, work=work)
    result = method.fit(federation, seed=3)

    clients = [federation._samples["train"].of(i) for i in range(3)]
    data = [(x.numpy()[:, 0], y.numpy()) for x, y in clients]
    u, w = np.zeros((3, 2)), np.zeros((3, 2))
    for number in range(3):
        for i, (x, y) in enumerate(data):
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
        sizes = np.array([len(x) for x, _ in data])
        c = np.stack([(u[:, s] * sizes) @ w / (u[:, s] @ sizes) for s in range(2)])
    np.testing.assert_allclose(result.client_models.numpy(), w, rtol=1e-12)
    np.testing.assert_allclose(result.history[-1].notes["importance"], u, rtol=1e-12)
    used = [c[s] for s in dict.fromkeys(u.argmax(1).tolist())]
    np.testing.assert_allclose(result.models.numpy(), used, rtol=1e-12)
    assert result.partition == Partition(u.argmax(1))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_on_mixed_data_it_beats_one_model_and_models_alone(seed: int) -> None:
    federation = mixed(seed, n=20)
    soft = FedSoft(k=2, penalty=1.0, work=WORK).fit(federation)
    loss = float(soft.scores(federation).loss.mean())
    for other in (Global(work=WORK), Local(work=WORK)):
        theirs = float(other.fit(federation).scores(federation).loss.mean())
        assert loss < 0.95 * theirs, other.name


def test_its_centres_specialise_and_weights_follow_the_shares() -> None:
    federation = mixed()
    result = FedSoft(k=2, penalty=1.0, work=replace(WORK, steps=200)).fit(federation)
    true = 2 * torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    distances = torch.cdist(result.models[:, :4], true)
    near, far = distances.min(1).values, distances.max(1).values
    assert bool((near < 0.7 * far).all())
    assert set(distances.argmin(1).tolist()) == {0, 1}
    first = int(distances[:, 0].argmin())
    labels = [first if share > 0.5 else 1 - first for share in SHARES]
    assert result.partition == Partition(labels)
    u = np.array(result.history[-1].notes["importance"])
    assert abs(np.corrcoef(u[:, 0], SHARES)[0, 1]) > 0.9


def test_it_finds_separate_groups_from_a_good_start() -> None:
    federation = Simulation(examples.regression([20] * 9, clusters=3), linear(4))
    result = FedSoft(k=3, sigma=1e-6, work=WORK).fit(federation)
    assert result.partition == federation.data.truth
    u = np.array(result.history[-1].notes["importance"])
    assert u.max(1).min() > 0.8, "nearly hard"
    alone = Local(work=WORK).fit(federation).scores(federation).loss.mean()
    assert float(result.scores(federation).loss.mean()) < float(alone)


def test_where_clients_are_pure_it_is_the_softness_that_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    federation = Simulation(rotated_digits(num_clients=20), mlp(64, 32, 10))
    work = Work(steps=100, local_steps=5, batch_size=10, lr=0.5)
    method = FedSoft(k=4, penalty=0.3, work=work)
    soft = method.fit(federation)

    def rounded(shares: Tensor, sigma: float) -> Tensor:
        return (shares == shares.max(1, keepdim=True).values).to(shares)

    monkeypatch.setattr(fedsoft, "importance", rounded)
    hard = method.fit(federation)
    assert soft.partition == hard.partition == federation.data.truth
    found, ceiling = (r.scores(federation).accuracy for r in (soft, hard))
    assert found is not None
    assert ceiling is not None
    assert float(found.mean()) < float(ceiling.mean()) - 0.05


def test_more_centres_than_groups_leave_some_empty_and_say_so() -> None:
    federation = Simulation(examples.regression([20] * 6), linear(4))
    result = FedSoft(k=4, work=WORK).fit(federation)
    empty = result.history[-1].notes["empty"]
    assert empty == [3]
    assert len(result.models) == 4 - len(empty) == result.partition.num_clusters


def test_the_start_from_clients_takes_clients_that_differ() -> None:
    for seed in range(5):
        federation = Simulation(examples.regression([20] * 12, clusters=4), linear(4))
        rows = distant_models(Run(federation, seed), 4, WORK, WORK.steps, "start")[0]
        best = federation.losses(rows, range(12)).argmin(0).numpy()
        assert Partition(best) == federation.data.truth


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), m=st.integers(1, 9), k=st.integers(1, 4))
def test_draws_follow_the_weights(seed: int, m: int, k: int) -> None:
    g = torch.Generator().manual_seed(seed)
    shares = torch.rand(m, k, generator=g)
    shares[0, 0] = 0.0
    u = importance(shares / shares.sum(1, keepdim=True).clamp(min=1e-9), 1e-6)
    v = aggregation_weights(u, torch.randint(1, 50, (m,), generator=g))
    torch.testing.assert_close(v.sum(0), torch.ones(k))
    drawn = selected(v, 4000, Key(seed, "x"))
    torch.testing.assert_close(drawn.sum(0), torch.ones(k))
    assert float((drawn - v).abs().max()) < 5 * 0.5 / 4000**0.5


def test_with_part_of_the_clients_everybody_ends_with_a_model() -> None:
    federation = mixed()
    method = FedSoft(k=2, penalty=1.0, participation=0.25, work=WORK)
    result = method.fit(federation)
    full = replace(method, participation=1.0).fit(federation)
    assert result.budget.local_steps < 0.5 * full.budget.local_steps
    before = federation.scores(federation.initial(0).expand(12, -1), range(12)).loss
    assert bool((result.scores(federation).loss < before).all())


def test_who_is_not_drawn_sends_nothing() -> None:
    federation = Simulation(examples.regression([20] * 20), linear(4))
    work = Work(steps=5, local_steps=5, batch_size=10, lr=0.05)
    spent = FedSoft(k=2, start="clients", participation=0.1, work=work).fit(federation).budget
    assert spent.local_steps == 5 * (2 + 20)
    assert spent.models_up <= 2 + 2


def test_its_start_has_no_proximal_term() -> None:
    federation = Simulation(examples.regression([20] * 6), linear(4))
    work = Work(steps=10, local_steps=5, batch_size=10, lr=0.05)
    plain, pulled = (FedSoft(work=replace(work, prox=p)).fit(federation) for p in (0.0, 5.0))
    assert torch.equal(plain.models, pulled.models)


def test_block_size_and_repetition_do_not_matter() -> None:
    method = FedSoft(k=2, work=replace(WORK, steps=15), participation=0.5)
    one = method.fit(mixed(), seed=2)
    for again in (method.fit(mixed(), seed=2), method.fit(mixed(block_size=5), seed=2)):
        torch.testing.assert_close(again.models, one.models)
        torch.testing.assert_close(again.client_models, one.client_models)
    other = method.fit(mixed(), seed=3)
    assert not torch.allclose(other.client_models, one.client_models)


def test_what_it_costs() -> None:
    work = replace(WORK, steps=20)
    method = FedSoft(k=2, tau=2, work=work)
    spent = method.fit(mixed()).budget
    assert method.trainings == 1
    assert spent.local_steps == 12 * 20 + 2 * 20
    assert spent.evaluations == 12 + 2 * 2 * 12
    assert spent.models_up == 12 * 4 + 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0), ("penalty", 0.0), ("sigma", 0.0), ("sigma", 1.0), ("tau", 0), ("start", "best"),
        ("participation", 2.0),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        FedSoft(**{name: value})  # type: ignore[arg-type]


def test_starts_that_cannot_work_are_refused() -> None:
    with pytest.raises(InputError, match="use start='clients'"):
        FedSoft(k=2, start="random", work=WORK).fit(mixed())
    with pytest.raises(InputError, match="k=13 is more than the 12 clients"):
        FedSoft(k=13, work=WORK).fit(mixed())
    with pytest.raises(InputError, match="diverged"):
        FedSoft(k=2, work=replace(WORK, lr=1e8)).fit(mixed())
    data = examples.classification([20] * 4)
    same = Simulation(data, mlp(6, 5, 3)())
    with pytest.raises(InputError, match="2 equal models"):
        FedSoft(k=2, start="random", work=WORK).fit(same)
    assert len(FedSoft(k=2, start="distant", work=WORK).fit(same).models) >= 1
