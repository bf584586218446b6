"""Local algorithms of a user's own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from srfca import InputError, Simulation, progress
from srfca.engine.autograd_training import PerformanceWarning
from srfca.federation import (
    Coordinates,
    Counting,
    LocalAlgorithm,
    LocalClient,
    LocalTraining,
    Train,
    register_algorithm,
)
from srfca.models import ResNet9, mlp
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.asking import positions, train
from tests.engine.cases import CASES, TRAININGS, assert_same, different_models, pair


@register_algorithm
@dataclass(frozen=True, eq=False)
class PlainSGD(LocalAlgorithm):
    """What ``Descent`` does with plain SGD."""

    key: ClassVar[str] = "test-plain-sgd"

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        row = start
        for step in client.steps:
            gradient = client.gradient(row, *client.batch(step))
            row = row - client.local.rate(step) * gradient
        return row


@register_algorithm
@dataclass(frozen=True, eq=False)
class PerFedAvg(LocalAlgorithm):
    """First-order Per-FedAvg: the gradient on one batch, after a step on the batch before.

    Args:
        inner_lr: Learning rate of the inner step.
    """

    key: ClassVar[str] = "test-per-fedavg"
    inner_lr: float = 0.05

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        row = start
        for first, second in zip(client.steps[::2], client.steps[1::2], strict=False):
            adapted = row - self.inner_lr * client.gradient(row, *client.batch(first))
            gradient = client.gradient(adapted, *client.batch(second))
            row = row - client.local.rate(second) * gradient
        return row


@register_algorithm
@dataclass(frozen=True, eq=False)
class Moved(LocalAlgorithm):
    """A step along a row of each client, without data; ``broken`` returns a wrong shape."""

    key: ClassVar[str] = "test-moved"
    directions: Tensor
    broken: bool = False

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        return start[1:] if self.broken else start.add_(rows["directions"])


@register_algorithm
@dataclass(frozen=True, eq=False)
class SecondOrder(LocalAlgorithm):
    """The exact gradient of the loss after an inner step: differentiates through ``loss``."""

    key: ClassVar[str] = "test-second-order"

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        row = start.detach().requires_grad_()
        x, y = client.batch(client.steps[0])
        with torch.enable_grad():
            (inner,) = torch.autograd.grad(client.loss(row, x, y), row, create_graph=True)
            outer = client.loss(row - 0.1 * inner, x, y)
            (gradient,) = torch.autograd.grad(outer, row)
        return start - client.local.lr * gradient


@pytest.fixture(autouse=True)
def ignored() -> Iterator[None]:
    """Most tests are not about the warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)
        yield


LOCAL = LocalTraining(steps=8, local_steps=4, batch_size=5, lr=0.1)


@pytest.mark.parametrize("training", ["sgd", "full batch", "resampled"])
@pytest.mark.parametrize("case", [case for case in CASES if case != "stepped lstm"])
def test_plain_sgd_is_descent(case: str, training: str) -> None:
    simulation, reference = pair(case)
    clients, starts = [4, 0, 1], different_models(reference, 3)
    for number in range(TRAININGS[training].rounds):
        key = Key(3, "test", number)
        rows = train(simulation, clients, starts, TRAININGS[training], key, PlainSGD())
        for federation in (simulation, reference):
            expected = train(federation, clients, starts, TRAININGS[training], key)
            assert_same(rows, expected)
        again = train(reference, clients, starts, TRAININGS[training], key, PlainSGD())
        assert_same(rows, again)


def test_first_order_per_fedavg_agrees_with_steps_by_hand() -> None:
    data, model = examples.classification([12, 9]), examples.doubled(mlp(6, 4, 3))
    simulation, reference = Simulation(data, model), ReferenceFederation(data, model)
    starts = different_models(reference, 2)
    rows = train(simulation, [1, 0], starts, LOCAL, Key(0, "x", 1), PerFedAvg(inner_lr=0.2))
    assert_same(
        rows, train(reference, [1, 0], starts, LOCAL, Key(0, "x", 1), PerFedAvg(inner_lr=0.2))
    )
    plan = simulation._trainer._sampler.plan(
        torch.tensor([1]), torch.tensor([5]), LOCAL, Key(0, "x", 1)
    )
    samples = simulation._samples["train"]
    module = simulation.module(starts[0]).train()
    for step in (0, 2):
        weights = {name: w.detach().clone() for name, w in module.named_parameters()}
        gradient = module_gradient(module, weights, samples.x, samples.y, plan.index[step, 0])
        adapted = {name: w - 0.2 * gradient[name] for name, w in weights.items()}
        outer = module_gradient(module, adapted, samples.x, samples.y, plan.index[step + 1, 0])
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.sub_(outer[name], alpha=0.1)
    assert_same(rows[0], simulation._layout.row(module))


def module_gradient(
    module: nn.Module, weights: dict[str, Tensor], x: Tensor, y: Tensor, batch: Tensor
) -> dict[str, Tensor]:
    leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
    outputs = functional_call(module, leaves, (x[batch],))
    loss = nn.functional.cross_entropy(outputs, y[batch])
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return dict(zip(leaves, gradients, strict=True))


def test_second_derivatives() -> None:
    simulation, reference = pair("mlp")
    starts = different_models(reference, 6)
    rows, expected = (
        train(f, range(6), starts, LOCAL, Key(0, "x"), SecondOrder())
        for f in (simulation, reference)
    )
    assert_same(rows, expected)


def test_each_client_has_its_row_of_every_tensor() -> None:
    simulation, reference = pair("mlp")
    starts = different_models(reference, 3)
    before = starts.clone()
    rows = train(
        simulation, [2, 0, 2], starts, LOCAL, Key(0, "x"), Moved(torch.arange(3.0)[:, None])
    )
    assert_same(rows, before + torch.arange(3.0).double()[:, None])
    assert torch.equal(starts, before), "an algorithm may change its start in place"


def test_the_order_of_clients_does_not_matter() -> None:
    simulation, reference = pair("dropout")
    starts = different_models(reference, 6)
    together = train(simulation, range(6), starts, LOCAL, Key(0, "x"), PlainSGD())
    alone = train(simulation, [3], starts[3:4], LOCAL, Key(0, "x"), PlainSGD())
    assert torch.equal(together[3:4], alone)


def test_images_are_augmented() -> None:
    data = examples.classification([8, 9], (3, 16, 16))
    model = examples.doubled(ResNet9(classes=3, width=2))
    simulation = Simulation(data, model, augment="cifar")
    reference = ReferenceFederation(data, model, augment="cifar")
    starts = reference.initial_model(0).repeat(2, 1)
    local = LocalTraining(steps=3, local_steps=3, batch_size=6, lr=0.05)
    rows = train(simulation, range(2), starts, local, Key(0, "x"), PlainSGD())
    for algorithm in ((), (PlainSGD(),)):
        assert_same(rows, train(reference, range(2), starts, local, Key(0, "x"), *algorithm))


def test_personal_coordinates_stay_with_any_algorithm() -> None:
    simulation, reference = pair("mlp")
    head = Coordinates.of_layers(reference.layers, [list(reference.layers)[-1]])
    starts = different_models(reference, 6)
    for number in range(2):
        sent, expected = (
            train(f, range(6), starts, LOCAL, Key(0, "x", number), PlainSGD(), head)
            for f in (simulation, reference)
        )
        assert sent.shape[1] == starts.shape[1] - len(head)
        assert_same(sent, expected)


def test_a_warning_says_that_it_is_slow() -> None:
    simulation, reference = pair("mlp")
    starts = different_models(reference, 2)
    with pytest.warns(PerformanceWarning, match="'test-plain-sgd' trains client by client"):
        train(simulation, [0, 1], starts, LOCAL, Key(0, "x"), PlainSGD())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(simulation, [0, 1], starts, LOCAL, Key(0, "x"))


def test_a_row_of_another_shape_is_rejected() -> None:
    simulation, reference = pair("mlp")
    starts = different_models(reference, 2)
    length = starts.shape[1]
    with pytest.raises(
        InputError,
        match=rf"'test-moved' must return a row of shape \({length},\), not \({length - 1},\)",
    ):
        train(simulation, [0, 1], starts, LOCAL, Key(0, "x"), Moved(starts, broken=True))


def test_steps_are_reported_and_tensors_are_billed() -> None:
    simulation, reference = pair("mlp")
    counting, reported = Counting(simulation), list[int]()
    starts = different_models(reference, 3)
    request = Train(positions(range(3)), starts, LOCAL, Key(0, "x"), Moved(torch.ones_like(starts)))
    with progress.reporting_to(reported.append):
        counting.ask(request)
    assert reported == [4, 4, 4]
    assert counting.spent.local_steps == 12
    assert counting.spent.models_down == 6


def test_global_random_numbers_are_untouched() -> None:
    simulation, reference = pair("dropout")
    starts = different_models(reference, 2)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    train(simulation, [0, 1], starts, LOCAL, Key(0, "x"), PlainSGD())
    assert torch.equal(torch.rand(2), expected)


def test_running_statistics_are_those_of_the_batches_that_were_seen() -> None:
    data, model = examples.classification([12, 9]), examples.doubled(examples.cumulative_batch_norm)
    simulation, reference = Simulation(data, model), ReferenceFederation(data, model)
    starts = reference.initial_model(0).repeat(2, 1)
    rows, expected = (
        train(f, range(2), starts, LOCAL, Key(0, "x"), PerFedAvg()) for f in (simulation, reference)
    )
    assert_same(rows, expected)
    assert not torch.equal(rows[:, -8:], starts[:, -8:])
