"""The paper's networks in a simulation, compared with a plain loop over the clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from srfca.data import ClientData
from srfca.errors import InputError
from srfca.federation import Simulation, Work
from srfca.models import CNN, LSTM, ResNet9, mlp
from srfca.random import Key
from tests import examples
from tests.loop_federation import LoopFederation

UNEQUAL = [7, 14, 9, 9]
CASES: dict[str, tuple[ClientData, Callable[[], nn.Module]]] = {
    "cnn": (examples.classification(UNEQUAL, (8, 8)), CNN(classes=3, size=8, hidden=6)),
    "resnet9, batch": (
        examples.classification(UNEQUAL, (3, 16, 16)), ResNet9(classes=3, width=2)
    ),
    "resnet9, group": (
        examples.classification(UNEQUAL, (3, 8, 8)), ResNet9(classes=3, norm="group", width=2)
    ),
    "lstm": (examples.characters(UNEQUAL), LSTM(symbols=7, embedding=3, hidden=4)),
}  # fmt: skip
WORKS = {
    "momentum": Work(steps=5, local_steps=3, batch_size=6, lr=0.05, momentum=0.9, keep_state=True),
    "adam": Work(steps=3, local_steps=3, batch_size=None, optimizer="adam", lr=0.01, clip=0.5),
}


def pair(case: str, block_size: int | None = None) -> tuple[Simulation, LoopFederation]:
    data, model = CASES[case]
    double = examples.doubled(model)
    return Simulation(data, double, block_size=block_size), LoopFederation(data, double)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("block_size", [None, 1, 3])
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("case", CASES)
def test_fit_agrees_with_the_loop(case: str, work: str, block_size: int | None) -> None:
    simulation, loop = pair(case, block_size)
    rows, clients = loop.initial(0).repeat(4, 1), [2, 0, 1, 3]
    for round in range(WORKS[work].rounds):
        key = Key(3, "models", round)
        expected = loop.fit(rows, clients, WORKS[work], key)
        assert_close(simulation.fit(rows, clients, WORKS[work], key), expected)
        assert not torch.equal(expected, rows)
        rows = expected


@pytest.mark.parametrize("case", CASES)
def test_losses_and_scores_agree_with_the_loop(case: str) -> None:
    simulation, loop = pair(case)
    rows = torch.stack([loop.initial(seed) for seed in range(3)])
    assert_close(simulation.losses(rows, range(4)), loop.losses(rows, range(4)))
    actual, expected = (f.scores(rows, [3, 0, 1]) for f in (simulation, loop))
    assert_close(actual.loss, expected.loss)
    assert actual.accuracy is not None
    assert expected.accuracy is not None
    assert_close(actual.accuracy, expected.accuracy)


@pytest.mark.parametrize("case", [case for case in CASES if case != "resnet9, batch"])
def test_gradients_agree_with_the_loop(case: str) -> None:
    simulation, loop = pair(case)
    rows = torch.stack([loop.initial(seed) for seed in range(4)])
    assert_close(simulation.gradients(rows, range(4)), loop.gradients(rows, range(4)))


@pytest.mark.parametrize("case", CASES)
def test_the_seed_determines_the_initial_model(case: str) -> None:
    simulation = pair(case)[0]
    assert torch.equal(simulation.initial(1), simulation.initial(1))
    assert not torch.equal(simulation.initial(1), simulation.initial(2))


def test_which_models_train_in_blocks() -> None:
    traits = {case: pair(case)[0].traits for case in CASES}
    assert [case for case in CASES if not traits[case].batchable] == ["lstm"]
    assert not any(traits[case].together for case in CASES)
    assert [case for case in CASES if traits[case].mixes_samples] == ["resnet9, batch"]


def test_a_block_shrinks_with_the_batch() -> None:
    """On a CPU activations should fit into the cache; convolutional networks train one by one."""
    small = Simulation(examples.classification([3, 3]), mlp(6, 500, 3), device="cpu")
    assert small._training.block(10**6, batch=6) > small._training.block(10**6, batch=600) >= 1
    assert pair("cnn")[0]._training.block(100, batch=20) == 1


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
def test_samples_of_another_shape_are_refused(
    shape: tuple[int, ...], model: Callable[[], nn.Module]
) -> None:
    with pytest.raises(InputError, match="does not take samples of shape"):
        Simulation(examples.classification([5, 5], shape), model)
