"""pFedMe: rounds by hand, its fixed point, and its paper's claim in a small form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from srfca import FedAvg, InputError, Local, LocalTraining, Simulation
from srfca.methods import PFedMe
from srfca.models import linear
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import Array, DropByNumber
from tests.methods.test_ditto import loss, similar

LOCAL = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)


def two_clients() -> Simulation:
    data = examples.regression([6, 18], d=3, clusters=2)
    return Simulation(data, examples.doubled(linear(3, bias=False)), validation=0)


def gradient(federation: Simulation, client: int, w: Array) -> Array:
    x, y = (part.numpy() for part in federation._samples["train"].of(client))
    return np.asarray(2 / len(y) * x.T @ (x @ w - y))


def test_rounds_by_hand() -> None:
    federation = two_clients()
    w, mu, eta, beta = np.zeros(3), 2.0, 0.1, 0.9
    for _ in range(2):  # rounds
        sent = []
        for i in range(2):
            theta, w_i = w.copy(), w.copy()
            for _ in range(2):  # R local rounds
                for _ in range(3):  # K steps
                    theta = theta - 0.05 * (gradient(federation, i, theta) + mu * (theta - w_i))
                w_i = w_i - eta * mu * (w_i - theta)
            sent.append(w_i)
        w = (1 - beta) * w + beta * (6 * sent[0] + 18 * sent[1]) / 24
    personal = []
    for i in range(2):
        theta = w.copy()
        for _ in range(2 * 3):
            theta = theta - 0.05 * (gradient(federation, i, theta) + mu * (theta - w))
        personal.append(theta)
    method = PFedMe(local=LOCAL, mu=mu, outer_lr=eta, inner_steps=3, server_lr=beta)
    result = method.fit(federation)
    np.testing.assert_allclose(result.models[0].numpy(), w, rtol=1e-10)
    np.testing.assert_allclose(result.client_models.numpy(), np.stack(personal), rtol=1e-10)
    assert method.trainings == 3 + 2 * 3 / 4
    assert result.budget.local_steps == 2 * (3 * 4 + 6)
    assert (result.budget.models_down, result.budget.models_up) == (2 * 3, 2 * 2)


def test_it_ends_at_the_minimum_of_the_mean_of_the_envelopes() -> None:
    """There ``mu (w - theta_i)`` is 0 on average, and theta_i is the minimum of its loss."""
    federation = two_clients()
    local = LocalTraining(steps=60, local_steps=1, batch_size=None, lr=0.1)
    method = PFedMe(local=local, mu=1.0, outer_lr=0.8, inner_steps=20, weighted=False)
    result = method.fit(federation)
    w, thetas = result.models[0].numpy(), []
    for client in range(2):
        x, y = (part.numpy() for part in federation._samples["train"].of(client))
        matrix = 2 / len(y) * x.T @ x + np.eye(3)
        thetas.append(np.linalg.solve(matrix, 2 / len(y) * x.T @ y + w))
    np.testing.assert_allclose(np.mean(thetas, axis=0), w, atol=0.05)


def test_individual_models_beat_one_model_and_local_models_on_similar_clients() -> None:
    """The paper's claim: personal models do better than FedAvg's, and than w itself."""
    federation = Simulation(similar(), linear(10, bias=False))
    local = LocalTraining(steps=40, local_steps=10, batch_size=None, lr=0.05)
    result = PFedMe(local=local, mu=1.0, outer_lr=0.3).fit(federation)
    personal = loss(result, federation)
    assert personal < 0.95 * loss(replace(result, individual_models=None), federation)
    more = replace(local, steps=200)
    assert personal < 0.95 * loss(FedAvg(local=more).fit(federation), federation)
    assert personal < 0.95 * loss(Local(local=more).fit(federation), federation)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_it_is_that_of_the_reference_loop(optimizer: str) -> None:
    data, model = examples.regression([9, 11], d=3), examples.doubled(linear(3))
    local = LocalTraining(steps=5, local_steps=2, batch_size=4, lr=0.05, optimizer=optimizer)  # type: ignore[arg-type]
    method = PFedMe(local=local, participation=0.5)
    result = method.fit(Simulation(data, model), seed=3)
    expected = method.fit(ReferenceFederation(data, model), seed=3)
    torch.testing.assert_close(result.client_models, expected.client_models, rtol=1e-9, atol=1e-9)


def test_the_pull_does_not_diverge_at_a_large_rate() -> None:
    fast = replace(LOCAL, steps=100, lr=0.5)
    assert PFedMe(local=fast)._inner.lr == pytest.approx(1 / 15)
    assert PFedMe(local=fast, inner_lr=0.3)._inner.lr == 0.3
    assert PFedMe(local=replace(fast, optimizer="adam"))._inner.lr == 0.5


def test_a_client_that_does_not_reply_has_the_common_model() -> None:
    lossy = DropByNumber(two_clients(), {0: [0, 1], 2: [1]})
    result = PFedMe(local=LOCAL).fit(lossy)
    assert torch.equal(result.client_models[1], result.models[0])
    assert not torch.equal(result.client_models[0], result.models[0])


def test_steps_of_w_beyond_the_individual_model_are_refused() -> None:
    with pytest.raises(InputError, match=r"outer_lr \* mu must be at most 1, not 0.1 \* 15"):
        PFedMe(outer_lr=0.1)
