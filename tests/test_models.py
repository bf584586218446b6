"""The paper's networks: shapes, sizes worked out by hand, and training in a simulation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from srfca.data import ClientData
from srfca.errors import InputError
from srfca.federation import Simulation, Work
from srfca.models import CNN, LSTM, MODELS, Layout, ResNet9, mlp
from srfca.random import Key
from tests import examples
from tests.loop_federation import LoopFederation

FEMNIST = (25 * 32 + 32) + (25 * 32 * 64 + 64) + (64 * 7 * 7 + 1) * 2048 + 2049 * 62
CONVOLUTIONS = 9 * (3 * 64 + 64 * 128 + 2 * 128**2 + 128 * 256 + 256 * 512 + 2 * 512**2)
NORMS = 2 * (64 + 3 * 128 + 256 + 3 * 512)
SHAKESPEARE = 80 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2) + 257 * 80

SIZES: list[tuple[Callable[[], nn.Module], int]] = [
    (CNN(), FEMNIST),
    (CNN(classes=5, channels=3, size=10, hidden=6), 76 * 32 + 801 * 64 + 257 * 6 + 7 * 5),
    (ResNet9(), CONVOLUTIONS + 2 * NORMS + 513 * 10),
    (ResNet9(norm="group"), CONVOLUTIONS + NORMS + 513 * 10),
    (LSTM(), SHAKESPEARE),
    (LSTM(symbols=7, embedding=3, hidden=4, layers=1), 7 * 3 + 16 * (3 + 4 + 2) + 5 * 7),
]


@pytest.mark.parametrize(("model", "length"), SIZES, ids=[str(model) for model, _ in SIZES])
def test_rows_have_the_length_worked_out_by_hand(
    model: Callable[[], nn.Module], length: int
) -> None:
    assert Layout.of(model()).length == length


def test_the_networks_of_the_paper_in_numbers() -> None:
    assert FEMNIST == 6_603_710
    assert CONVOLUTIONS + NORMS + 5130 == 6_573_130
    assert SHAKESPEARE == 819_920


@pytest.mark.parametrize(
    ("model", "x", "outputs"),
    [
        (CNN(hidden=8), torch.randn(3, 28, 28), 62),
        (CNN(hidden=8), torch.randn(3, 1, 28, 28), 62),
        (CNN(classes=4, channels=3, size=9, hidden=8), torch.randn(3, 3, 9, 9), 4),
        (ResNet9(width=2), torch.randn(3, 3, 32, 32), 10),
        (ResNet9(classes=4, channels=1, norm="group", width=3), torch.randn(3, 1, 28, 28), 4),
        (LSTM(hidden=4), torch.randint(80, (3, 80)), 80),
    ],
)
def test_shapes(model: Callable[[], nn.Module], x: Tensor, outputs: int) -> None:
    assert model()(x).shape == (3, outputs)


def test_the_last_max_pool_of_resnet9_is_over_4x4() -> None:
    """On images of 32x32, as the paper's."""
    module = ResNet9(width=2)().eval()
    assert isinstance(module, nn.Sequential)
    before = module[:6](torch.randn(2, 3, 32, 32))
    assert before.shape == (2, 16, 4, 4)
    assert torch.equal(module[6](before), nn.MaxPool2d(4)(before).flatten(1))


def test_the_lstm_puts_out_what_follows_the_last_symbol() -> None:
    module = LSTM(symbols=7, hidden=4)()
    x = torch.randint(7, (3, 5))
    other = x.clone()
    other[:, -1] = (x[:, -1] + 1) % 7
    assert not torch.isclose(module(x), module(other)).all(1).any()
    assert not torch.isclose(module(x), module(x[:, :-1])).all(1).any()


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


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


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
    found, expected = (f.scores(rows, [3, 0, 1]) for f in (simulation, loop))
    assert_close(found.loss, expected.loss)
    assert found.accuracy is not None
    assert expected.accuracy is not None
    assert_close(found.accuracy, expected.accuracy)


@pytest.mark.parametrize("case", [case for case in CASES if case != "resnet9, batch"])
def test_gradients_agree_with_the_loop(case: str) -> None:
    simulation, loop = pair(case)
    rows = torch.stack([loop.initial(seed) for seed in range(4)])
    assert_close(simulation.gradients(rows, range(4)), loop.gradients(rows, range(4)))


@pytest.mark.parametrize("case", CASES)
def test_the_seed_decides_the_start(case: str) -> None:
    simulation = pair(case)[0]
    assert torch.equal(simulation.initial(1), simulation.initial(1))
    assert not torch.equal(simulation.initial(1), simulation.initial(2))


def test_what_is_trained_in_blocks() -> None:
    traits = {case: pair(case)[0].traits for case in CASES}
    assert [case for case in CASES if not traits[case].batchable] == ["lstm"]
    assert not any(traits[case].together for case in CASES)
    assert [case for case in CASES if traits[case].mixes_samples] == ["resnet9, batch"]


def test_a_block_shrinks_with_the_batch() -> None:
    """On a CPU activations stay in the cache too; convolutional networks go one by one."""
    small = Simulation(examples.classification([3, 3]), mlp(6, 500, 3), device="cpu")
    assert small._training.block(10**6, batch=6) > small._training.block(10**6, batch=600) >= 1
    assert pair("cnn")[0]._training.block(100, batch=20) == 1


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (CNN, {"classes": 0}, "classes must be at least 1, not 0"),
        (CNN, {"channels": -1}, "channels must be at least 1, not -1"),
        (CNN, {"hidden": 0}, "hidden must be at least 1, not 0"),
        (CNN, {"size": 3}, "size must be at least 4 for two max-pools, not 3"),
        (ResNet9, {"width": 0}, "width must be at least 1, not 0"),
        (ResNet9, {"norm": "bach"}, "unknown norm 'bach': did you mean 'batch'"),
        (ResNet9, {"norm": "layer"}, "unknown norm 'layer': choose from batch, group"),
        (LSTM, {"symbols": 0}, "symbols must be at least 1, not 0"),
        (LSTM, {"layers": 0}, "layers must be at least 1, not 0"),
    ],
)
def test_bad_arguments_are_named(
    model: Callable[..., object], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        model(**arguments)


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
def test_samples_of_another_shape_are_named(
    shape: tuple[int, ...], model: Callable[[], nn.Module]
) -> None:
    with pytest.raises(InputError, match="does not take samples of shape"):
        Simulation(examples.classification([5, 5], shape), model)


def test_experiments_may_name_them() -> None:
    assert (MODELS["cnn"], MODELS["resnet9"], MODELS["lstm"]) == (CNN, ResNet9, LSTM)
