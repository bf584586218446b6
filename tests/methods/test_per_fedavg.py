"""Per-FedAvg: against a reference of its own, and its paper's claim in a small form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from srfca import FedAvg, LocalTraining, Simulation
from srfca.methods import PerFedAvg
from srfca.models import linear, mlp
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import Array, DropByNumber
from tests.methods.test_ditto import loss, similar

LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=None, lr=0.05)


def two_clients() -> Simulation:
    data = examples.regression([6, 18], d=3, clusters=2)
    return Simulation(data, examples.doubled(linear(3, bias=False)), validation=0)


def quadratic(federation: Simulation, client: int) -> tuple[Array, Array]:
    """Return H and b of a client's loss: its gradient at w is ``H w - b``."""
    x, y = (part.numpy() for part in federation._samples["train"].of(client))
    return 2 / len(y) * x.T @ x, 2 / len(y) * x.T @ y


def per_fedavg_by_hand(federation: Simulation, a: float, exact: bool) -> tuple[Array, Array]:
    """Run Per-FedAvg with the Hessian of the losses, or without; return w and adapted models."""
    w = np.zeros(3)
    losses = [quadratic(federation, client) for client in range(2)]
    for _ in range(3):
        sent = []
        for h, b in losses:
            row = w
            for _ in range(2):
                adapted = row - a * (h @ row - b)
                g = h @ adapted - b
                row = row - 0.05 * (g - a * h @ g if exact else g)
            sent.append(row)
        w = (6 * sent[0] + 18 * sent[1]) / 24
    return w, np.stack([w - a * (h @ w - b) for h, b in losses])


@pytest.mark.parametrize("hessian", ["first_order", "hessian_free"])
def test_it_is_the_algorithm_of_the_paper(hessian: Any) -> None:
    """Losses are quadratic, so that the difference of gradients is the Hessian, up to rounding."""
    federation = two_clients()
    w, adapted = per_fedavg_by_hand(federation, 0.1, exact=hessian == "hessian_free")
    result = PerFedAvg(local=LOCAL, inner_lr=0.1, hessian=hessian).fit(federation)
    np.testing.assert_allclose(result.models[0].numpy(), w, rtol=1e-8)
    np.testing.assert_allclose(result.client_models.numpy(), adapted, rtol=1e-8)


def test_a_hessian_free_step_is_the_gradient_of_the_loss_after_adaptation() -> None:
    """An independent reference: autograd through the adaptation, of a network."""

    def mean_loss(row: Tensor) -> Tensor:
        hidden = torch.tanh(x @ row[:30].view(5, 6).T + row[30:35])
        outputs = hidden @ row[35:50].view(3, 5).T + row[50:]
        return nn.functional.cross_entropy(outputs, y)

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()

    federation = Simulation(examples.classification([20]), network)
    w = federation.initial_model(0).requires_grad_()
    x, y = federation._samples["train"].of(0)
    (gradient,) = torch.autograd.grad(mean_loss(w), w, create_graph=True)
    (meta,) = torch.autograd.grad(mean_loss(w - 0.5 * gradient), w)
    local = replace(LOCAL, steps=1, local_steps=1)
    result = PerFedAvg(local=local, inner_lr=0.5).fit(federation)
    torch.testing.assert_close(result.models[0], w.detach() - 0.05 * meta, rtol=1e-6, atol=1e-8)
    first_order = PerFedAvg(local=local, inner_lr=0.5, hessian="first_order").fit(federation)
    assert not torch.allclose(first_order.models, result.models, rtol=1e-3)


def test_its_model_adapts_better_than_that_of_fedavg() -> None:
    """The paper's claim: after the same step on a client's data its model has a smaller loss."""
    federation = Simulation(similar(samples=40), examples.doubled(linear(10, bias=False)))
    local = LocalTraining(steps=200, batch_size=None, lr=0.05)
    result = PerFedAvg(local=local, inner_lr=0.2).fit(federation)
    fedavg = FedAvg(local=local).fit(federation)

    def adapted(model: Tensor) -> float:
        losses = []
        for client in range(12):
            h, b = quadratic(federation, client)
            row = model[0].numpy() - 0.2 * (h @ model[0].numpy() - b)
            losses.append(0.5 * row @ h @ row - b @ row)
        return float(np.mean(losses))

    assert adapted(result.models) < adapted(fedavg.models)
    assert loss(result, federation) < 0.9 * loss(fedavg, federation)


@pytest.mark.parametrize(("hessian", "count"), [("first_order", 2), ("hessian_free", 4)])
def test_every_gradient_is_counted(hessian: Any, count: int) -> None:
    method = PerFedAvg(local=LOCAL, hessian=hessian)
    spent = method.fit(two_clients()).budget
    assert method.trainings == pytest.approx(count + 1 / 6)
    assert spent.local_steps == 2 * (count * 6 + 1)
    assert (spent.models_down, spent.models_up) == (2 * 4, 2 * 3)


def test_it_is_that_of_the_reference_loop() -> None:
    data, model = examples.classification([19, 11]), examples.doubled(mlp(6, 5, 3))
    local = LocalTraining(steps=5, local_steps=2, batch_size=4, lr=0.05, momentum=0.9)
    method = PerFedAvg(local=local, participation=0.5, adaptation_steps=2)
    result = method.fit(Simulation(data, model), seed=3)
    expected = method.fit(ReferenceFederation(data, model), seed=3)
    torch.testing.assert_close(result.client_models, expected.client_models, rtol=1e-7, atol=1e-7)


def test_a_client_that_does_not_reply_has_the_common_model() -> None:
    result = PerFedAvg(local=LOCAL).fit(DropByNumber(two_clients(), {3: [1]}))
    assert torch.equal(result.client_models[1], result.models[0])
    assert not torch.equal(result.client_models[0], result.models[0])
