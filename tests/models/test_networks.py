"""The paper's networks: shapes, and sizes computed by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from srfca.errors import InputError
from srfca.models import CNN, LSTM, MODELS, Layout, LeNet5, ResNet9

FEMNIST = (25 * 32 + 32) + (25 * 32 * 64 + 64) + (64 * 7 * 7 + 1) * 2048 + 2049 * 62
CONVOLUTIONS = 9 * (3 * 64 + 64 * 128 + 2 * 128**2 + 128 * 256 + 256 * 512 + 2 * 512**2)
NORMS = 2 * (64 + 3 * 128 + 256 + 3 * 512)
SHAKESPEARE = 80 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2) + 257 * 80

SIZES: list[tuple[Callable[[], nn.Module], int]] = [
    (CNN(), FEMNIST),
    (CNN(classes=5, channels=3, size=10, hidden=6), 76 * 32 + 801 * 64 + 257 * 6 + 7 * 5),
    (ResNet9(), CONVOLUTIONS + 2 * NORMS + 513 * 10),
    (ResNet9(norm="group"), CONVOLUTIONS + NORMS + 513 * 10),
    (LeNet5(), 26 * 6 + 151 * 16 + 401 * 120 + 121 * 84 + 85 * 10),
    (LeNet5(channels=3, size=32), 76 * 6 + 151 * 16 + 577 * 120 + 121 * 84 + 85 * 10),
    (LSTM(), SHAKESPEARE),
    (LSTM(symbols=7, embedding=3, hidden=4, layers=1), 7 * 3 + 16 * (3 + 4 + 2) + 5 * 7),
]


@pytest.mark.parametrize(("model", "length"), SIZES, ids=[str(model) for model, _ in SIZES])
def test_rows_have_the_length_computed_by_hand(model: Callable[[], nn.Module], length: int) -> None:
    assert Layout.of(model()).length == length


def test_the_sizes_of_the_papers_networks() -> None:
    assert FEMNIST == 6_603_710
    assert CONVOLUTIONS + NORMS + 5130 == 6_573_130
    assert SHAKESPEARE == 819_920


@pytest.mark.parametrize(
    ("model", "x", "outputs"),
    [
        (CNN(hidden=8), torch.randn(3, 28, 28), 62),
        (CNN(hidden=8), torch.randn(3, 1, 28, 28), 62),
        (CNN(classes=4, channels=3, size=9, hidden=8), torch.randn(3, 3, 9, 9), 4),
        (LeNet5(), torch.randn(3, 28, 28), 10),
        (LeNet5(classes=4, channels=3, size=12), torch.randn(3, 3, 12, 12), 4),
        (ResNet9(width=2), torch.randn(3, 3, 32, 32), 10),
        (ResNet9(classes=4, channels=1, norm="group", width=3), torch.randn(3, 1, 28, 28), 4),
        (LSTM(hidden=4), torch.randint(80, (3, 80)), 80),
    ],
)
def test_output_shapes(model: Callable[[], nn.Module], x: Tensor, outputs: int) -> None:
    assert model()(x).shape == (3, outputs)


def test_the_last_max_pool_of_resnet9_has_windows_of_4x4() -> None:
    """For images of 32x32, as in the paper."""
    module = ResNet9(width=2)().eval()
    assert isinstance(module, nn.Sequential)
    before = module[:6](torch.randn(2, 3, 32, 32))
    assert before.shape == (2, 16, 4, 4)
    assert torch.equal(module[6](before), nn.MaxPool2d(4)(before).flatten(1))


def test_the_lstm_depends_on_the_last_symbol() -> None:
    module = LSTM(symbols=7, hidden=4)()
    x = torch.randint(7, (3, 5))
    other = x.clone()
    other[:, -1] = (x[:, -1] + 1) % 7
    assert not torch.isclose(module(x), module(other)).all(1).any()
    assert not torch.isclose(module(x), module(x[:, :-1])).all(1).any()


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (CNN, {"classes": 0}, "classes must be at least 1, not 0"),
        (CNN, {"channels": -1}, "channels must be at least 1, not -1"),
        (CNN, {"hidden": 0}, "hidden must be at least 1, not 0"),
        (CNN, {"size": 3}, "size must be at least 4 for two max pools, not 3"),
        (LeNet5, {"size": 11}, "size must be at least 12 for LeNet-5, not 11"),
        (ResNet9, {"width": 0}, "width must be at least 1, not 0"),
        (ResNet9, {"norm": "bach"}, "unknown norm 'bach': did you mean 'batch'"),
        (ResNet9, {"norm": "layer"}, "unknown norm 'layer': choose from batch, group"),
        (LSTM, {"symbols": 0}, "symbols must be at least 1, not 0"),
        (LSTM, {"layers": 0}, "layers must be at least 1, not 0"),
    ],
)
def test_invalid_arguments_are_refused(
    model: Callable[..., object], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        model(**arguments)


def test_models_have_names_for_experiments() -> None:
    assert (MODELS["cnn"], MODELS["resnet9"], MODELS["lstm"]) == (CNN, ResNet9, LSTM)
