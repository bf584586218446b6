from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from srfca import ClientData, Global, Local, Result, Simulation, Work
from srfca.errors import InputError
from srfca.methods import Ditto
from srfca.methods.rounds import everybody, participants
from srfca.models import linear
from srfca.random import Key
from tests import examples
from tests.loop_federation import LoopFederation

WORK = Work(steps=8, local_steps=2, batch_size=None, lr=0.05)


def two_clients() -> Simulation:
    data = examples.regression([6, 18], d=3)
    return Simulation(data, examples.doubled(linear(3, bias=False)), validation=0)


def arrays(federation: Simulation, client: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = federation._samples["train"].of(client)
    return x.numpy(), y.numpy()


def similar(
    clients: int = 12, d: int = 10, samples: int = 12, poisoned: int = 0, seed: int = 0
) -> ClientData:
    """Regressions around a common one; the poisoned clients' targets have the wrong sign, tenfold.

    Test data are as in the honest clients.
    """
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=d)

    def draw(n: int, w: np.ndarray, factor: float) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(n, d))
        return x, factor * (x @ w + 0.5 * rng.normal(size=n))

    own = [centre + 0.4 * rng.normal(size=d) for _ in range(clients)]
    factors = [-10.0 if c < poisoned else 1.0 for c in range(clients)]
    train = [draw(samples, w, factor) for w, factor in zip(own, factors, strict=True)]
    return ClientData.from_arrays(train, [draw(200, w, 1.0) for w in own])


def loss(result: Result, federation: Simulation, among: slice = slice(None)) -> float:
    return float(result.scores(federation).loss[among].mean())


def test_by_hand() -> None:
    federation = two_clients()
    samples = [arrays(federation, c) for c in range(2)]
    w, v = np.zeros(3), [np.zeros(3), np.zeros(3)]
    for _ in range(4):
        sent = []
        for c, (x, y) in enumerate(samples):
            mine = w.copy()
            for _ in range(2):
                mine = mine - 0.05 * 2 / len(y) * x.T @ (x @ mine - y)
                slope = 2 / len(y) * x.T @ (x @ v[c] - y) + 0.7 * (v[c] - w)
                v[c] = v[c] - 0.02 * slope
            sent.append(mine)
        w = (6 * sent[0] + 18 * sent[1]) / 24
    result = Ditto(work=WORK, pull=0.7, personal_lr=0.02).fit(federation)
    assert result.labels.tolist() == [0, 0]
    assert not result.clustered
    np.testing.assert_allclose(result.models[0].numpy(), w, rtol=1e-10)
    np.testing.assert_allclose(result.client_models.numpy(), np.stack(v), rtol=1e-10)


def test_own_models_end_at_the_minimum_of_the_pulled_loss() -> None:
    federation = two_clients()
    result = Ditto(work=replace(WORK, steps=600, lr=0.1), pull=0.5).fit(federation)
    w = result.models[0].numpy()
    for c, v in enumerate(result.client_models.numpy()):
        x, y = arrays(federation, c)
        matrix = 2 / len(y) * x.T @ x + 0.5 * np.eye(3)
        best = np.linalg.solve(matrix, 2 / len(y) * x.T @ y + 0.5 * w)
        np.testing.assert_allclose(v, best, atol=1e-6)


def test_between_local_and_global_lies_something_better_than_both() -> None:
    federation = Simulation(similar(), linear(10, bias=False))
    work = Work(steps=300, batch_size=None, lr=0.05)
    ditto = loss(Ditto(work=work, pull=1.0).fit(federation), federation)
    assert ditto < 0.9 * loss(Local(work=work).fit(federation), federation)
    assert ditto < 0.9 * loss(Global(work=work).fit(federation), federation)


def test_poisoned_clients_spoil_w_but_not_the_others_own_models() -> None:
    """The paper's claim: personal models are robust, more so with a robust aggregate."""
    federation = Simulation(similar(poisoned=3), linear(10, bias=False))
    work, honest = Work(steps=300, batch_size=None, lr=0.05), slice(3, None)
    mean = Ditto(work=work, pull=0.3).fit(federation)
    spoilt = loss(replace(mean, own=None), federation, honest)
    assert loss(mean, federation, honest) < 0.3 * spoilt
    for aggregate in ("trimmed_mean", "median"):
        robust = Ditto(work=work, pull=0.3, aggregate=aggregate, trim=0.3).fit(federation)
        assert loss(robust, federation, honest) < 0.9 * loss(mean, federation, honest)
        assert loss(replace(robust, own=None), federation, honest) < 0.1 * spoilt


def test_without_pull_it_is_local() -> None:
    federation = two_clients()
    alone = Local(work=replace(WORK, steps=8)).fit(federation)
    torch.testing.assert_close(Ditto(work=WORK, pull=0.0).fit(federation).own, alone.models)


def test_w_is_that_of_fedavg() -> None:
    federation = two_clients()
    torch.testing.assert_close(
        Ditto(work=WORK).fit(federation).models, Global(work=WORK).fit(federation).models
    )


def test_a_clients_own_model_begins_with_the_w_that_it_first_receives() -> None:
    federation = Simulation(similar(), linear(10, bias=False))
    twice = Work(steps=4, local_steps=2, batch_size=None, lr=0.05)
    result = Ditto(work=twice, participation=0.25).fit(federation)
    who = [
        participants(federation, everybody(federation), 0.25, Key(0, "ditto", r)) for r in (0, 1)
    ]
    first = Ditto(work=replace(twice, steps=2), participation=0.25).fit(federation)
    never = sorted(set(range(12)) - set(who[0]) - set(who[1]))
    assert torch.equal(result.client_models[never], result.models.expand(len(never), -1))
    only_first = sorted(set(who[0]) - set(who[1]))
    assert torch.equal(result.client_models[only_first], first.client_models[only_first])
    later = sorted(set(who[1]) - set(who[0]))
    pulled = replace(twice, prox=0.1)
    start = first.models.expand(len(later), -1)
    expected = federation.fit(start, later, pulled, Key(0, "ditto personal", 1), anchors=start)
    assert torch.equal(result.client_models[later], expected)


def test_both_trainings_keep_their_optimisers_state() -> None:
    data = examples.regression([6, 18, 11], d=3)
    model = examples.doubled(linear(3))
    work = Work(steps=9, local_steps=3, batch_size=5, lr=0.02, momentum=0.9, keep_state=True)
    found = Ditto(work=work).fit(Simulation(data, model), seed=3)
    expected = Ditto(work=work).fit(LoopFederation(data, model), seed=3)
    torch.testing.assert_close(found.own, expected.own, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.models, expected.models, rtol=1e-9, atol=1e-9)
    forgetful = Ditto(work=replace(work, keep_state=False)).fit(Simulation(data, model), seed=3)
    assert not torch.allclose(found.own, forgetful.own)  # type: ignore[arg-type]


def test_the_seed_decides_and_blocks_do_not() -> None:
    data, model = similar(), examples.doubled(linear(10))
    method = Ditto(work=Work(steps=6, local_steps=2, batch_size=4, lr=0.05), participation=0.5)
    found = method.fit(Simulation(data, model), seed=5)
    again = method.fit(Simulation(data, model, block_size=1), seed=5)
    torch.testing.assert_close(found.own, again.own)
    other = method.fit(Simulation(data, model), seed=6)
    assert not torch.allclose(found.client_models, other.client_models)


def test_it_costs_two_trainings_and_one_model_each_way_a_round() -> None:
    method = Ditto(work=WORK)
    spent = method.fit(two_clients()).budget
    assert method.trainings == 2
    assert spent.local_steps == 2 * 2 * 8
    assert (spent.models_down, spent.models_up) == (2 * 4, 2 * 4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pull", -0.1), ("personal_lr", 0.0), ("aggregate", "krum"), ("trim", 0.5),
        ("participation", 0.0), ("personal_steps", -1),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        Ditto(**{name: value})  # type: ignore[arg-type]


def test_divergence_is_named() -> None:
    with pytest.raises(InputError, match="clients' own models diverged for client"):
        Ditto(work=replace(WORK, steps=400), personal_lr=50.0).fit(two_clients())
