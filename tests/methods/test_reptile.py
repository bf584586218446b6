"""Reptile: against a reference of its own, and its paper's claim in a small form."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from srfca import FedAvg, InputError, LocalTraining, Simulation
from srfca.methods import Reptile
from srfca.models import linear
from tests import examples
from tests.methods.helpers import Array, DropByNumber, descend
from tests.methods.test_ditto import loss, similar

LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=None, lr=0.05)


def two_clients() -> Simulation:
    data = examples.regression([6, 18], d=3, clusters=2)
    return Simulation(data, examples.doubled(linear(3, bias=False)), validation=0)


def test_rounds_by_hand() -> None:
    federation = two_clients()
    samples = [tuple(t.numpy() for t in federation._samples["train"].of(c)) for c in range(2)]
    w = np.zeros(3)
    for _ in range(3):
        trained = [descend(w, x, y, 2, 0.05) for x, y in samples]
        w = w + 0.7 * ((6 * trained[0] + 18 * trained[1]) / 24 - w)
    adapted = np.stack([descend(w, x, y, 4, 0.01) for x, y in samples])
    method = Reptile(local=LOCAL, server_lr=0.7, adaptation_steps=4, inner_lr=0.01)
    result = method.fit(federation)
    np.testing.assert_allclose(result.models[0].numpy(), w, rtol=1e-10)
    np.testing.assert_allclose(result.client_models.numpy(), adapted, rtol=1e-10)
    assert result.budget.local_steps == 2 * (6 + 4)
    assert (result.budget.models_down, result.budget.models_up) == (2 * 4, 2 * 3)
    assert method.trainings == pytest.approx(1 + 4 / 6)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_fedavg_then_rounds_of_few_steps_by_hand(optimizer: Literal["adam", "sgd"]) -> None:
    """One round of FedAvg, then two of one step, in which the server follows an optimizer."""
    federation = two_clients()
    samples = [tuple(t.numpy() for t in federation._samples["train"].of(c)) for c in range(2)]

    def mean(w: Array, steps: int) -> Array:
        trained = [descend(w, x, y, steps, 0.05) for x, y in samples]
        return np.asarray((6 * trained[0] + 18 * trained[1]) / 24)

    w, first, second = mean(np.zeros(3), 2), np.zeros(3), np.zeros(3)
    for count in (1, 2):
        change = mean(w, 1) - w
        first, second = 0.9 * first + 0.1 * change, 0.999 * second + 0.001 * change**2
        unbiased = first / (1 - 0.9**count), second / (1 - 0.999**count)
        adam = unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
        w = w + 0.2 * (adam if optimizer == "adam" else change)
    method = Reptile(
        local=LOCAL, fine_tune_rounds=2, fine_tune_local_steps=1, server_optimizer=optimizer,
        fine_tune_server_lr=0.2,
    )  # fmt: skip
    result = method.fit(federation)
    np.testing.assert_allclose(result.models[0].numpy(), w, rtol=1e-7)
    assert result.budget.local_steps == 2 * (2 + 2 + 10)
    assert method.trainings == pytest.approx((2 + 2 + 10) / 6)


def test_some_rounds_must_be_fedavg() -> None:
    with pytest.raises(InputError, match="fine_tune_rounds=3 must be less than the 3 rounds"):
        Reptile(local=LOCAL, fine_tune_rounds=3)


def test_its_model_is_that_of_fedavg_at_a_server_rate_of_one() -> None:
    federation = two_clients()
    fedavg = FedAvg(local=LOCAL).fit(federation)
    torch.testing.assert_close(Reptile(local=LOCAL).fit(federation).models, fedavg.models)


def test_a_few_steps_of_each_client_beat_the_common_model() -> None:
    """The paper's claim: FedAvg is meta-learning, and its model adapts quickly."""
    federation = Simulation(similar(samples=40), linear(10, bias=False))
    local = LocalTraining(steps=100, batch_size=None, lr=0.05)
    result = Reptile(local=local).fit(federation)
    assert loss(result, federation) < 0.7 * loss(
        replace(result, individual_models=None), federation
    )


def test_a_client_that_does_not_reply_has_the_common_model() -> None:
    result = Reptile(local=LOCAL).fit(DropByNumber(two_clients(), {3: [1]}))
    assert torch.equal(result.client_models[1], result.models[0])
    assert not torch.equal(result.client_models[0], result.models[0])
