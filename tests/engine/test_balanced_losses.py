"""Class counts and class-balanced losses against the reference, in double precision."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca import ClientData, InputError, Simulation
from srfca.federation import Subsample, class_shares, num_classes
from srfca.models import linear, mlp
from srfca.testing import ReferenceFederation
from tests import examples
from tests.asking import balanced_losses, class_counts
from tests.engine.cases import CASES, different_models, pair

CLASSIFICATIONS = [case for case in CASES if case != "linear"]


def skewed(shares: list[list[int]], seed: int = 0) -> ClientData:
    """Clients with these numbers of samples of each class; inputs are noise around the class."""
    g = torch.Generator().manual_seed(seed)
    centers = 2 * torch.randn(len(shares[0]), 6, generator=g)

    def draw(counts: list[int]) -> tuple[Tensor, Tensor]:
        y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        y = y[torch.randperm(len(y), generator=g)]
        return centers[y] + torch.randn(len(y), 6, generator=g), y

    return ClientData.from_arrays([draw(counts) for counts in shares])


def assert_same(values: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(values, expected, rtol=1e-9, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize("case", CLASSIFICATIONS)
def test_all_networks_agree_with_the_reference(case: str) -> None:
    simulation, reference = pair(case)
    counts = class_counts(simulation, [1, 5, 3])
    assert torch.equal(counts, class_counts(reference, [1, 5, 3]))
    models, shares = different_models(reference, 3), class_shares(counts)
    for subsample in (None, Subsample(15, 2)):
        values, expected = (
            balanced_losses(f, [5, 0, 1], models, shares, subsample)
            for f in (simulation, reference)
        )
        assert values.shape == (3, 3)
        assert_same(values, expected)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 12), min_size=4, max_size=4), min_size=2, max_size=5),
    st.one_of(st.none(), st.integers(1, 30)),
    st.integers(0, 100),
)
def test_any_class_counts_agree_with_the_reference(
    counts: list[list[int]], size: int | None, seed: int
) -> None:
    data = skewed([[n + (position == 0) for position, n in enumerate(row)] for row in counts])
    model = examples.doubled(mlp(6, 5, 4))
    simulation = Simulation(data, model, validation=0)
    reference = ReferenceFederation(data, model, validation=0)
    clients = range(len(counts))
    exact = class_counts(simulation, clients)
    assert torch.equal(exact, class_counts(reference, clients))
    presence = class_counts(simulation, clients, presence=True)
    assert torch.equal(presence, class_counts(reference, clients, presence=True))
    assert torch.equal(presence, torch.where(exact >= 4, 4, 0))
    rows = torch.stack([reference.initial_model(seed + i) for i in clients])
    subsample = None if size is None else Subsample(size, seed)
    for shares in (class_shares(exact), class_shares(presence)):
        values, expected = (
            balanced_losses(f, clients, rows, shares, subsample) for f in (simulation, reference)
        )
        assert_same(values, expected)


def test_a_model_that_knows_the_shares_alone_guesses() -> None:
    """Its logits are the logarithms of its class shares, which are subtracted."""
    simulation = Simulation(skewed([[40, 20, 10], [5, 9, 30]]), linear(6, 3), validation=0)
    counts = class_counts(simulation, range(2))
    assert counts.tolist() == [[40, 20, 10], [5, 9, 30]]
    shares = class_shares(counts)
    rows = torch.zeros(2, 21)
    rows[:, -3:] = shares.log()
    losses = balanced_losses(simulation, range(2), rows, shares)
    torch.testing.assert_close(losses, torch.ones(2, 2))
    losses = balanced_losses(simulation, range(2), rows, torch.full((2, 3), 1 / 3))
    assert bool((losses > 1.1).all())


def test_shares_that_are_multiplied_by_a_factor_change_nothing() -> None:
    simulation, reference = pair("mlp")
    shares = class_shares(class_counts(simulation, [1, 5]))
    rows = different_models(reference, 2)
    first, second = (
        balanced_losses(simulation, [0, 1, 5], rows, factor * shares) for factor in (1.0, 0.3)
    )
    assert_same(first, second)


def test_classes_that_are_not_shared_are_left_out() -> None:
    """By hand: the client has class 3 alone for itself, the model class 0, and 2 has 3 samples."""
    data = skewed([[0, 6, 3, 8, 4]])
    model = examples.doubled(linear(6, 5))
    simulation = Simulation(data, model, validation=0)
    row = simulation.initial_model(3).unsqueeze(0)
    shares = torch.tensor([[0.3, 0.2, 0.3, 0.0, 0.2]]).double()
    x, y = data.train.of(0)
    logits = simulation.module(row[0])(x.double())[:, [1, 4]] - shares[0, [1, 4]].log()
    losses = -logits.log_softmax(1)
    expected = (losses[y == 1, 0].mean() + losses[y == 4, 1].mean()) / 2 / log(2)
    assert_same(balanced_losses(simulation, [0], row, shares)[0, 0], expected.detach())
    shares[0, 4] = 0
    assert bool(balanced_losses(simulation, [0], row, shares).isnan().all())


def test_passes_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(skewed([[9, 8, 7]] * 4), examples.doubled(mlp(6, 5, 3)))
    rows = torch.stack([simulation.initial_model(seed) for seed in range(5)])
    shares = torch.full((5, 3), 1 / 3)
    expected = balanced_losses(simulation, range(4), rows, shares)
    monkeypatch.setattr(simulation._evaluation, "_outputs", 100)
    monkeypatch.setattr(simulation._evaluation, "_row_bytes", 1000)
    assert_same(balanced_losses(simulation, range(4), rows, shares), expected)


def test_equal_models_have_equal_losses() -> None:
    simulation = Simulation(skewed([[20, 30, 9]] * 3), mlp(6, 33, 3))
    shares = torch.tensor([0.2, 0.5, 0.3]).repeat(7, 1)
    values = balanced_losses(simulation, range(3), simulation.initial_model(0).repeat(7, 1), shares)
    assert all(torch.equal(column, values[:, 0]) for column in values.T)


def test_a_model_beyond_numbers_has_an_infinite_loss() -> None:
    simulation, reference = (
        make(skewed([[9, 9, 1], [1, 1, 1]]), mlp(6, 5, 3))
        for make in (Simulation, ReferenceFederation)
    )
    rows = torch.full((1, 53), torch.nan)
    shares = torch.full((1, 3), 1 / 3)
    for federation in (simulation, reference):
        first, second = balanced_losses(federation, [0, 1], rows, shares).flatten().tolist()
        assert first == torch.inf
        assert np.isnan(second), "no classes are shared"


class PerPosition(nn.Module):
    """Logits ``[n, classes, length]`` of a class at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 7)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.table(x)).mT


def labels_per_position() -> ClientData:
    x = torch.randint(7, (20, 5), generator=torch.Generator().manual_seed(0))
    return ClientData.from_arrays([(x, x)])


def my_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize(
    "federation",
    [
        Simulation(examples.regression([20, 20]), linear(4)),
        ReferenceFederation(examples.regression([20, 20]), linear(4)),
        Simulation(labels_per_position(), PerPosition),
        Simulation(examples.classification([20]), mlp(6, 5, 3), loss=my_loss),
    ],
    ids=["regression", "reference", "labels per position", "another loss"],
)
def test_clients_without_classes_are_refused(federation: Simulation | ReferenceFederation) -> None:
    assert num_classes(federation) is None
    with pytest.raises(InputError, match="classes"):
        class_counts(federation, [0])
    row = federation.initial_model(0).unsqueeze(0)
    with pytest.raises(InputError, match="classes"):
        balanced_losses(federation, [0], row, torch.ones(1, 3))


def test_shapes_are_checked() -> None:
    simulation, reference = pair("mlp")
    rows, shares = different_models(reference, 2), torch.ones(2, 3)
    assert num_classes(simulation) == num_classes(reference) == simulation.num_classes == 3
    assert balanced_losses(simulation, [], rows, shares).shape == (0, 2)
    assert class_counts(simulation, []).shape == (0, 3)
    with pytest.raises(InputError, match=r"class shares of shape \(2, 3\), not \(2, 2\)"):
        balanced_losses(simulation, [0], rows, shares[:, :2])
    with pytest.raises(InputError, match=r"models must have the shape"):
        balanced_losses(simulation, [0], rows[:, 1:], shares)
