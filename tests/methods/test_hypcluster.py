from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from srfca import Global, Partition, Simulation, Work
from srfca.errors import InputError
from srfca.methods import IFCA, HypCluster
from srfca.methods.starts import next_centre
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.loop_federation import LoopFederation
from tests.test_ifca import (
    DIGITS,
    Array,
    Samples,
    digits,
    ifca_by_hand,
    regressions,
    samples,
    training_losses,
)

WORK = Work(steps=30, local_steps=3, batch_size=10, lr=0.05)


def starts_by_hand(
    clients: Samples, first: int, k: int, steps: int, lr: float
) -> tuple[Array, list[int]]:
    """The first client's model, then always the model of the client that is worst off."""
    centres, models = [first], []
    while True:
        x, y = clients[centres[-1]]
        w = np.zeros(x.shape[1])
        for _ in range(steps):
            w -= lr * 2 * x.T @ (x @ w - y) / len(y)
        models.append(w)
        if len(centres) == k:
            return np.array(models), centres
        best = training_losses(clients, np.array(models)).min(0)
        best[centres] = -1
        centres.append(int(best.argmax()))


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=15)
def test_starts_and_rounds_are_those_of_a_plain_loop(seed: int, k: int, between: int) -> None:
    federation = regressions(validation=0)
    clients = samples(federation.data)
    work = Work(steps=10, local_steps=2, batch_size=None, lr=0.05)
    options = HypCluster(k=k, rounds_between=between, start_steps=7, work=work)
    result = options.fit(federation, seed)
    names = [int(name) for name in result.history[-1].notes["starts"]]
    models, centres = starts_by_hand(clients, names[0], k, 7, 0.05)
    assert names == centres
    models, labels = ifca_by_hand(clients, models, 5, 2, 0.05, between)
    assert result.partition == Partition(labels)
    used = list(dict.fromkeys(labels))
    np.testing.assert_allclose(result.models.numpy(), models[used], rtol=1e-9, atol=1e-9)


def test_a_drawn_centre_has_the_chance_of_its_loss() -> None:
    best = np.array([1.0, 5.0, 0.0, 3.0, 2.0])
    drawn = [next_centre(best, [1], "drawn", Key(0, "x", t)) for t in range(3000)]
    shares = np.bincount(drawn, minlength=5) / 3000
    np.testing.assert_allclose(shares, [1 / 6, 0, 0, 3 / 6, 2 / 6], atol=0.03)
    assert next_centre(best, [1], "worst", Key(0, "x")) == 3


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_rotations_and_beats_one_model(seed: int) -> None:
    federation = digits(seed)
    result = HypCluster(k=4, work=DIGITS).fit(federation, seed)
    assert result.partition == federation.data.truth
    alone = Global(work=DIGITS).fit(federation, seed)
    mine, theirs = (float(r.scores(federation).loss.mean()) for r in (result, alone))
    assert mine < 0.8 * theirs


def test_starts_that_are_far_apart_are_better_than_any_clients() -> None:
    """Where 16 of 20 clients are of one group, k clients at random are mostly of that one."""
    data = examples.regression([20] * 20, clusters=5)
    kept = [i for i in range(20) if i % 5 == 0]
    pairs = [data.train.of(i) for i in kept] * 4 + [data.train.of(i) for i in (1, 2, 3, 4)]
    truth = [0] * 16 + [1, 2, 3, 4]
    federation = Simulation(type(data).of(pairs, truth=truth), linear(4))
    exact = {HypCluster: 0, IFCA: 0}
    for seed in range(5):
        for method in (HypCluster(k=5, work=WORK), IFCA(k=5, start="clients", work=WORK)):
            exact[type(method)] += method.fit(federation, seed).partition == federation.data.truth
    assert exact == {HypCluster: 5, IFCA: 0}


def test_a_centre_is_drawn_of_those_whose_loss_is_known() -> None:
    inf = np.inf
    for number in range(20):
        key = Key(0, "centre", number)
        assert next_centre(np.array([1.0, inf, 2.0, inf]), [0], "drawn", key) == 2
        assert next_centre(np.array([1.0, inf, 2.0, inf]), [0], "worst", key) == 2
        assert next_centre(np.array([1.0, inf, 2.0, inf]), [0, 2], "drawn", key) == 1
        assert next_centre(np.zeros(3), [0], "drawn", key) == 1


def test_gradients_are_one_full_batch_step_of_models() -> None:
    federation = regressions()
    one = Work(steps=12, local_steps=1, batch_size=None, lr=0.02)
    options = HypCluster(k=3, start_steps=6, work=one)
    models = options.fit(federation)
    gradients = replace(options, average="gradients").fit(federation)
    torch.testing.assert_close(gradients.models, models.models, rtol=1e-9, atol=1e-9)
    faster = replace(options, average="gradients", server_lr=0.2).fit(federation)
    assert faster.history[-1].notes["training_loss"] < models.history[-1].notes["training_loss"]


def test_the_starts_are_counted() -> None:
    options = HypCluster(k=3, work=WORK)
    assert options.trainings == 1, "of a client that is no start"
    spent = options.fit(regressions()).budget
    assert spent.local_steps == 12 * 30 + 3 * 8, "a quarter, rounded up"
    assert spent.evaluations == 2 * 12 + (2 + 1) * 3 * 12, "ten rounds, five between two choices"


@pytest.mark.parametrize("options", [{}, {"centres": "drawn", "participation": 0.5}])
def test_the_same_seed_gives_the_same_answer_on_any_backend(options: dict[str, Any]) -> None:
    made = examples.classification([20 + i % 3 for i in range(8)])
    model = examples.doubled(mlp(6, 5, 3))
    method = HypCluster(k=3, rounds_between=2, work=replace(WORK, steps=12), **options)
    expected = method.fit(LoopFederation(made, model), seed=2)
    for block_size in (1, 3):
        found = method.fit(Simulation(made, model, block_size=block_size), seed=2)
        assert np.array_equal(found.labels, expected.labels)
        torch.testing.assert_close(found.models, expected.models, rtol=1e-9, atol=1e-9)
    other = method.fit(Simulation(made, model), seed=3)
    assert not torch.allclose(found.client_models, other.client_models)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0), ("rounds_between", 0), ("average", "all"), ("server_lr", -1.0),
        ("centres", "best"), ("start_steps", 0),
        ("start_steps", 251), ("participation", 2.0),
    ],
)  # fmt: skip
def test_parameters_are_checked_when_they_are_given(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        HypCluster(**{name: value})  # type: ignore[arg-type]


def test_too_few_clients() -> None:
    with pytest.raises(InputError, match="k=13 is more than the 12 clients"):
        HypCluster(k=13, work=WORK).fit(regressions())
