"""Which network is chosen for a module, and dense networks against autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from srfca.engine.backends.autograd import Network, Precision
from srfca.engine.backends.dense import DenseNetwork
from srfca.engine.backends.select import select_network, takes_channels_last
from srfca.engine.loss import Loss, cross_entropy, squared_error
from srfca.models import CNN, ResNet9, mlp

X = torch.randn(4, 6)
CLASSES = torch.tensor([0, 2, 1, 0])


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(self.layer(x)))


def hooked() -> nn.Module:
    layer = nn.Linear(6, 3)
    layer.register_forward_hook(lambda *_: None)
    return layer


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    module[0].requires_grad_(False)
    return module


def repeated() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer)


def tied() -> nn.Module:
    first, last = nn.Linear(6, 6), nn.Linear(6, 6)
    last.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), last)


DENSE: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(6, 3),
    "no bias": lambda: nn.Linear(6, 3, bias=False),
    "mlp": mlp(6, 5, 3),
    "one activation for all": lambda: _with_one(nn.Tanh()),
    "nested": lambda: nn.Sequential(
        nn.Identity(), nn.Sequential(nn.Linear(6, 4), nn.Sigmoid()), nn.Linear(4, 3), nn.ReLU()
    ),
    "two linear layers": lambda: nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)),
}
NOT_DENSE: dict[str, Callable[[], nn.Module]] = {
    "a module that is no sequence": Shared,
    "a layer twice": repeated,
    "a weight twice": tied,
    "a frozen layer": frozen,
    "a hook": hooked,
    "an activation first": lambda: nn.Sequential(nn.ReLU(), nn.Linear(6, 3)),
    "two activations": lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Tanh()),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout()),
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)),
    "another activation": lambda: nn.Sequential(nn.Linear(6, 3), nn.GELU()),
}


def _with_one(activation: nn.Module) -> nn.Module:
    layers = [nn.Linear(6, 5), activation, nn.Linear(5, 4), activation, nn.Linear(4, 3)]
    return nn.Sequential(nn.Flatten(), *layers)


@pytest.mark.parametrize("layers", DENSE)
def test_a_sequence_of_layers_is_dense(layers: str) -> None:
    assert (
        type(select_network(DENSE[layers](), cross_entropy, X, CLASSES, "float32", False))
        is DenseNetwork
    )


@pytest.mark.parametrize("module", NOT_DENSE)
def test_other_modules_are_not_dense(module: str) -> None:
    network = select_network(NOT_DENSE[module](), cross_entropy, X, CLASSES, "float32", False)
    assert type(network) is Network


def test_a_sequence_is_not_dense_for_other_losses_or_shapes() -> None:
    module = nn.Linear(6, 3)

    def absolute(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).abs().mean(1)

    cases: list[tuple[Loss, Tensor, Tensor, Precision]] = [
        (absolute, X, torch.randn(4, 3), "float32"),
        (cross_entropy, torch.randn(4, 2, 6), CLASSES, "float32"),
        (cross_entropy, X, CLASSES, "bf16"),
    ]
    for loss, x, y, precision in cases:
        assert type(select_network(module, loss, x, y, precision, False)) is Network


class Viewed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.out = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.out(self.convolution(x).relu().view(len(x), -1)))


def flattened() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))


@pytest.mark.parametrize(
    ("make", "shape", "expected"),
    [
        (flattened, (3, 8, 8), True),
        (CNN(size=8), (8, 8), True),
        (ResNet9(width=2), (3, 8, 8), True),
        (Viewed, (3, 8, 8), False),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), (3, 8, 8), False),
        (flattened, (3, 9, 9), False),
    ],
)
def test_channels_lie_last_where_the_module_takes_it(
    make: Callable[[], nn.Module], shape: tuple[int, ...], expected: bool
) -> None:
    assert takes_channels_last(make(), torch.randn(4, *shape)) == expected


@pytest.mark.parametrize("make", [flattened, Viewed])
def test_images_are_trained_with_channels_in_either_place(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    module = make().double()
    x, y = torch.randn(5, 3, 8, 8).double(), torch.tensor([0, 2, 1, 0, 1])
    network = select_network(module, cross_entropy, x, y, "float32", False)
    assert network.channels_last == (make is flattened)
    state = network.empty_state(1, torch.device("cpu"))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            state[name][0].copy_(parameter)
    network.gradients(state).compute(x.unsqueeze(0), y.unsqueeze(0), torch.ones(1, 5).double())
    functional.cross_entropy(module(x), y, reduction="sum").backward()
    for name, parameter in module.named_parameters():
        expected = torch.as_tensor(parameter.grad).unsqueeze(0)
        torch.testing.assert_close(state[name].grad, expected)


@settings(deadline=None, max_examples=40)
@given(
    layers=st.sampled_from(list(DENSE)),
    count=st.integers(1, 4),
    samples=st.integers(1, 7),
    classes=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_dense_agrees_with_autograd(
    layers: str, count: int, samples: int, classes: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    module = DENSE[layers]().double()
    loss = cross_entropy if classes else squared_error
    plain, dense = Network(module, loss), DenseNetwork(module, loss)
    x = torch.randn(count, samples, 6, dtype=torch.float64)
    shape = (count, samples) if classes else (count, samples, 3)
    y = torch.randint(3, shape) if classes else torch.randn(shape, dtype=torch.float64)
    weights = torch.rand(count, samples, dtype=torch.float64)
    rows = torch.randn(count, plain.layout.length, dtype=torch.float64)
    states = []
    for network in (plain, dense):
        state = network.empty_state(count, torch.device("cpu"))
        with torch.no_grad():
            for name, part in network.layout.unstack(rows).items():
                state[name].copy_(part)
            network.gradients(state).compute(x, y, weights)
        states.append(state)
    for name in plain.layout.parameters:
        torch.testing.assert_close(states[1][name].grad, states[0][name].grad)
    with torch.no_grad():
        torch.testing.assert_close(dense.outputs(states[1], x), plain.outputs(states[0], x))
        torch.testing.assert_close(
            dense.losses_of_all(states[1], x[0], y[0]), plain.losses_of_all(states[0], x[0], y[0])
        )
