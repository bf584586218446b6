"""APFL: rounds by hand, what it learns, and its paper's claim in a small form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from srfca import FedAvg, InputError, Local, LocalTraining, Simulation
from srfca.federation import Descent, Train
from srfca.federation.algorithms.interpolated import InterpolatedDescent
from srfca.methods import APFL
from srfca.models import linear
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import DropByNumber
from tests.methods.test_ditto import loss, similar

LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=None, lr=0.05)


def two_clients() -> Simulation:
    data = examples.regression([6, 18], d=3, clusters=2)
    return Simulation(data, examples.doubled(linear(3, bias=False)), validation=0)


@pytest.mark.parametrize("adaptive", [True, False])
def test_rounds_by_hand(adaptive: bool) -> None:
    federation = two_clients()
    samples = [tuple(t.numpy() for t in federation._samples["train"].of(c)) for c in range(2)]
    w, v, alphas = np.zeros(3), [np.zeros(3), np.zeros(3)], [0.3, 0.3]
    for _ in range(3):
        sent = []
        for i, (x, y) in enumerate(samples):

            def gradient(row: np.ndarray, x: np.ndarray = x, y: np.ndarray = y) -> np.ndarray:
                return np.asarray(2 / len(y) * x.T @ (x @ row - y))

            if adaptive:
                mixed = alphas[i] * v[i] + (1 - alphas[i]) * w
                alphas[i] -= 0.01 * float((v[i] - w) @ gradient(mixed))
                alphas[i] = min(1.0, max(0.0, alphas[i]))
            row = w
            for _ in range(2):
                mixed = alphas[i] * v[i] + (1 - alphas[i]) * row
                v[i] = v[i] - 0.05 * alphas[i] * gradient(mixed)
                row = row - 0.05 * gradient(row)
            sent.append(row)
        w = (6 * sent[0] + 18 * sent[1]) / 24
    method = APFL(local=LOCAL, alpha=0.3, alpha_lr=0.01, adaptive=adaptive)
    result = method.fit(federation)
    expected = [a * own + (1 - a) * w for a, own in zip(alphas, v, strict=True)]
    np.testing.assert_allclose(result.models[0].numpy(), w, rtol=1e-10)
    np.testing.assert_allclose(result.client_models.numpy(), np.stack(expected), rtol=1e-10)
    assert result.history[-1].notes["alpha"] == pytest.approx(alphas)
    assert (alphas != [0.3, 0.3]) == adaptive


def test_alpha_of_zero_is_fedavg_and_of_one_is_local() -> None:
    federation = two_clients()
    fedavg = FedAvg(local=LOCAL).fit(federation)
    shared = APFL(local=LOCAL, alpha=0.0, adaptive=False).fit(federation)
    torch.testing.assert_close(shared.models, fedavg.models)
    torch.testing.assert_close(shared.client_models, fedavg.models.expand(2, -1))
    alone = APFL(local=LOCAL, alpha=1.0, adaptive=False).fit(federation)
    torch.testing.assert_close(alone.client_models, Local(local=LOCAL).fit(federation).models)


def test_it_beats_one_model_and_local_models_on_similar_clients() -> None:
    """The paper's claim: a mix of both generalizes better than either."""
    federation = Simulation(similar(), linear(10, bias=False))
    local = LocalTraining(steps=60, batch_size=None, lr=0.05)
    mixed = loss(APFL(local=local, alpha_lr=0.01).fit(federation), federation)
    assert mixed < 0.95 * loss(FedAvg(local=local).fit(federation), federation)
    assert mixed < 0.95 * loss(Local(local=local).fit(federation), federation)


@pytest.mark.parametrize(
    "local",
    [
        replace(LOCAL, batch_size=5, momentum=0.9, schedule="linear", weight_decay=0.01),
        replace(LOCAL, batch_size=5, optimizer="adam", clip=0.5),
    ],
)
def test_steps_are_those_of_descent(local: LocalTraining) -> None:
    """With alpha of 1, v takes the steps that w takes in its own request."""
    federation = Simulation(examples.regression([9, 11], d=3), examples.doubled(linear(3)))
    starts = torch.stack([federation.initial_model(seed) + seed for seed in (1, 2)])
    alone = InterpolatedDescent(models=starts + 1, alphas=torch.ones_like(starts))
    request = Train(np.arange(2), starts, local, Key(0, "x", 1), alone)
    expected = federation.ask(replace(request, algorithm=Descent())).values
    torch.testing.assert_close(federation.ask(request).values, expected, rtol=1e-9, atol=1e-9)


def test_it_is_that_of_the_reference_loop() -> None:
    data, model = examples.regression([9, 11], d=3), examples.doubled(linear(3))
    method = APFL(local=replace(LOCAL, batch_size=5), alpha_lr=0.01, participation=0.5)
    result = method.fit(Simulation(data, model), seed=3)
    expected = method.fit(ReferenceFederation(data, model), seed=3)
    torch.testing.assert_close(result.client_models, expected.client_models, rtol=1e-9, atol=1e-9)


def test_the_budget_is_that_of_one_model_each_way() -> None:
    method = APFL(local=LOCAL)
    spent = method.fit(two_clients()).budget
    assert method.trainings == pytest.approx(2.5)
    assert spent.local_steps == 2 * (2 * 6 + 3)
    alphas = 2  # the first alphas are sent; afterwards clients have what they trained
    assert (spent.models_down, spent.models_up) == (2 * 3 + alphas, 2 * 3)


def test_missing_replies_leave_models_and_alphas() -> None:
    """Requests of a round are those of alpha, v and w: client 1 never trains its own model."""
    federation = two_clients()
    drops = {3 * number + request: [1] for number in range(3) for request in (0, 1)}
    result = APFL(local=LOCAL, alpha_lr=0.01).fit(DropByNumber(federation, drops))
    whole = APFL(local=LOCAL, alpha_lr=0.01).fit(federation)
    torch.testing.assert_close(result.models, whole.models)
    torch.testing.assert_close(result.client_models[1], result.models[0])
    torch.testing.assert_close(result.client_models[0], whole.client_models[0])
    assert result.history[-1].notes["alpha"][1] == 0.5


def test_divergence_names_the_client() -> None:
    with pytest.raises(InputError, match="diverged for client"):
        APFL(local=replace(LOCAL, steps=600, lr=50.0)).fit(two_clients())
