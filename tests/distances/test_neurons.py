"""Distances that do not depend on the order of neurons."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca import InputError, Simulation
from srfca.distances import DISTANCES, ModelSet, lq
from srfca.models import mlp
from srfca.models.cnn import CNN
from srfca.models.resnet9 import ResNet9
from tests import examples

NAMES = ("matched", "wasserstein")


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 2, bias=False), nn.ReLU(), nn.Flatten(),
        nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 3),
    )  # fmt: skip


def simulation(model: Callable[[], nn.Module], shape: tuple[int, ...] = (6,)) -> Simulation:
    return Simulation(examples.classification([5, 9, 7], shape), examples.doubled(model))


def rows(federation: Simulation, count: int, seed: int = 0) -> Tensor:
    return torch.stack([federation.initial_model(seed + i) for i in range(count)])


def shuffled(model: nn.Module, seed: int) -> nn.Module:
    """Put the hidden neurons of a chain of layers in a random order."""
    generator = torch.Generator().manual_seed(seed)
    layers = [part for part in model.modules() if isinstance(part, (nn.Linear, nn.Conv2d))]
    for layer, after in pairwise(layers):
        order = torch.randperm(len(layer.weight), generator=generator)
        with torch.no_grad():
            layer.weight.copy_(layer.weight[order])
            if layer.bias is not None:
                layer.bias.copy_(layer.bias[order])
            grouped = after.weight.reshape(len(after.weight), len(order), -1)
            after.weight.copy_(grouped[:, order].reshape(after.weight.shape))
    return model


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("model", "shape"),
    [(mlp(6, 7, 3), (6,)), (mlp(6, 5, 4, 3), (6,)), (convolutional, (1, 6, 6))],
    ids=["one hidden layer", "two hidden layers", "convolutions"],
)
def test_the_order_of_neurons_does_not_matter(
    name: str, model: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    federation = simulation(model, shape)
    w = rows(federation, 2)
    module = shuffled(federation.module(w[0]), seed=1)
    x = federation.data.train.x[:4].double()
    torch.testing.assert_close(module(x), federation.module(w[0])(x))
    permuted = federation.architecture.layout.row(module)
    models = ModelSet.of_clients(federation, w)
    others = ModelSet.of_clients(federation, torch.stack([permuted, w[1]]))
    distances = DISTANCES[name](models, others)
    assert distances[0, 0] == pytest.approx(0, abs=1e-9)
    assert lq(2)(models, others)[0, 0] > 0.5
    np.testing.assert_allclose(distances[0, 1], distances[1, 0], rtol=1e-9)
    np.testing.assert_allclose(DISTANCES[name](models, models)[0, 1], distances[0, 1], rtol=1e-9)


@given(st.integers(0, 999))
def test_matched_is_the_least_distance_over_all_orders_of_one_hidden_layer(seed: int) -> None:
    federation = simulation(mlp(6, 4, 3))
    u, v = rows(federation, 2, seed)
    first, second = federation.module(u), federation.module(v)
    a, b = ([p.detach() for p in module.parameters()] for module in (first, second))
    candidates = []
    for order in map(list, permutations(range(4))):
        parts = (a[0] - b[0][order], a[1] - b[1][order], a[2] - b[2][:, order], a[3] - b[3])
        candidates.append(sum(float((part**2).sum()) for part in parts) ** 0.5)
    models = ModelSet.of_clients(federation, torch.stack([u, v]))
    assert DISTANCES["matched"](models, models)[0, 1] == pytest.approx(min(candidates))
    transported = DISTANCES["wasserstein"](models, models)[0, 1]
    assert transported >= min(candidates) - 1e-9
    assert transported in [pytest.approx(candidate) for candidate in candidates]


@pytest.mark.parametrize("name", NAMES)
def test_matched_neurons_bring_networks_nearer(name: str) -> None:
    federation = simulation(convolutional, (1, 6, 6))
    models = ModelSet.of_clients(federation, rows(federation, 4))
    nearer = DISTANCES[name](models, models)
    assert nearer.mean() < lq(2)(models, models).mean()
    np.testing.assert_allclose(nearer, nearer.T)


def test_the_networks_of_the_experiments_are_chains() -> None:
    federation = simulation(CNN(classes=3, size=6, hidden=8), (1, 6, 6))
    models = ModelSet.of_clients(federation, rows(federation, 2))
    assert DISTANCES["matched"](models, models)[0, 1] > 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("model", "shape"),
    [(examples.batch_normed, (1, 6, 6)), (ResNet9(classes=3), (3, 32, 32))],
    ids=["BatchNorm", "ResNet9"],
)
def test_other_networks_are_refused(
    name: str, model: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    federation = simulation(model, shape)
    models = ModelSet.of_clients(federation, rows(federation, 2))
    with pytest.raises(InputError, match=r"another kind of network: use distance='cross_loss'"):
        DISTANCES[name](models, models)
