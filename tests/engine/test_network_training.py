"""The paper's networks in a simulation, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from srfca import InputError, Simulation
from srfca.data import ClientData
from srfca.federation import LocalTraining
from srfca.models import CNN, LSTM, LeNet5, ResNet9
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.asking import gradients, losses, scores, train
from tests.engine.cases import assert_same

UNEQUAL = [7, 14, 9, 9]
CASES: dict[str, tuple[ClientData, Callable[[], nn.Module]]] = {
    "cnn": (examples.classification(UNEQUAL, (8, 8)), CNN(classes=3, size=8, hidden=6)),
    "lenet5": (examples.classification(UNEQUAL, (12, 12)), LeNet5(classes=3, size=12)),
    "resnet9, batch": (
        examples.classification(UNEQUAL, (3, 16, 16)), ResNet9(classes=3, width=2)
    ),
    "resnet9, group": (
        examples.classification(UNEQUAL, (3, 8, 8)), ResNet9(classes=3, norm="group", width=2)
    ),
    "lstm": (examples.characters(UNEQUAL), LSTM(symbols=7, embedding=3, hidden=4)),
}  # fmt: skip
TRAININGS = {
    "momentum": LocalTraining(
        steps=5, local_steps=3, batch_size=6, lr=0.05, momentum=0.9, keep_state=True
    ),
    "adam": LocalTraining(
        steps=3, local_steps=3, batch_size=None, optimizer="adam", lr=0.01, clip=0.5
    ),
}


def pair(case: str, block_size: int | None = None) -> tuple[Simulation, ReferenceFederation]:
    data, model = CASES[case]
    double = examples.doubled(model)
    return Simulation(data, double, block_size=block_size), ReferenceFederation(data, double)


@pytest.mark.parametrize("block_size", [None, 1, 3])
@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("case", CASES)
def test_training_agrees_with_the_reference(
    case: str, training: str, block_size: int | None
) -> None:
    simulation, reference = pair(case, block_size)
    rows, clients = reference.initial_model(0).repeat(4, 1), [2, 0, 1, 3]
    local = TRAININGS[training]
    for round in range(local.rounds):
        key = Key(3, "models", round)
        expected = train(reference, clients, rows, local, key)
        assert_same(train(simulation, clients, rows, local, key), expected)
        assert not torch.equal(expected, rows)
        rows = expected


@pytest.mark.parametrize("case", CASES)
def test_losses_and_scores_agree_with_the_reference(case: str) -> None:
    simulation, reference = pair(case)
    rows = torch.stack([reference.initial_model(seed) for seed in range(3)])
    assert_same(*(losses(f, range(4), rows) for f in (simulation, reference)))
    actual, expected = (scores(f, [3, 0, 1], rows) for f in (simulation, reference))
    assert_same(actual.loss, expected.loss)
    assert actual.accuracy is not None
    assert expected.accuracy is not None
    assert_same(actual.accuracy, expected.accuracy)


@pytest.mark.parametrize("case", [case for case in CASES if case != "resnet9, batch"])
def test_gradients_agree_with_the_reference(case: str) -> None:
    simulation, reference = pair(case)
    rows = torch.stack([reference.initial_model(seed) for seed in range(4)])
    assert_same(*(gradients(f, range(4), rows) for f in (simulation, reference)))


@pytest.mark.parametrize("case", CASES)
def test_the_seed_determines_the_initial_model(case: str) -> None:
    simulation = pair(case)[0]
    assert torch.equal(simulation.initial_model(1), simulation.initial_model(1))
    assert not torch.equal(simulation.initial_model(1), simulation.initial_model(2))


def test_which_networks_train_in_blocks() -> None:
    traits = {case: pair(case)[0].traits for case in CASES}
    assert [case for case in CASES if not traits[case].batchable] == ["lstm"]
    assert not any(traits[case].together for case in CASES)
    assert [case for case in CASES if traits[case].mixes_samples] == ["resnet9, batch"]


@pytest.mark.parametrize(
    ("shape", "model"),
    [
        ((3, 28, 28), CNN(hidden=8)),
        ((32, 32), CNN(hidden=8)),
        ((28, 28, 1), CNN(hidden=8)),
        ((32, 32, 3), ResNet9(width=2)),
        ((3, 4, 4), ResNet9(width=2)),
        ((5,), LSTM(hidden=4)),
    ],
)
def test_samples_of_another_shape_are_rejected(
    shape: tuple[int, ...], model: Callable[[], nn.Module]
) -> None:
    with pytest.raises(InputError, match="does not take samples of shape"):
        Simulation(examples.classification([5, 5], shape), model)
