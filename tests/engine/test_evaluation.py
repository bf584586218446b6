"""Losses, gradients, shares and scores against the reference, in double precision."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from srfca import InputError, Simulation
from srfca.data import ClientData
from srfca.federation import Split, Subsample
from srfca.models import linear, mlp
from srfca.testing import ReferenceFederation
from tests import examples
from tests.asking import (
    gradients,
    loss_moments,
    losses,
    output_moments,
    scores,
    shares,
    subspaces,
)
from tests.engine.cases import (
    CASES,
    UNEQUAL,
    assert_same,
    different_models,
    mixture_of,
    pair,
)

SPLITS: list[Split] = ["train", "validation", "test"]


@pytest.mark.parametrize("case", CASES)
def test_losses_and_scores_agree_with_the_reference(case: str) -> None:
    simulation, reference = pair(case)
    models = different_models(reference, 3)
    for split in SPLITS:
        values, expected = (losses(f, [5, 0, 2, 1], models, split) for f in (simulation, reference))
        assert values.shape == (4, 3)
        assert_same(values, expected)
        assert_same_scores(simulation, reference, [5, 0, 2], models, split)


def assert_same_scores(
    simulation: Simulation,
    reference: ReferenceFederation,
    clients: list[int],
    models: object,
    split: Split,
) -> None:
    result, expected = (scores(f, clients, models, split) for f in (simulation, reference))  # type: ignore[arg-type]
    assert_same(result.loss, expected.loss)
    assert torch.equal(result.num_samples, expected.num_samples)
    if expected.accuracy is None:
        assert result.accuracy is None
    else:
        torch.testing.assert_close(result.accuracy, expected.accuracy)


@pytest.mark.parametrize("case", CASES)
def test_moments_agree_with_the_reference(case: str) -> None:
    simulation, reference = pair(case)
    models, scales = different_models(reference, 3), torch.tensor([0.5, 1.0, 2.0]).double()
    clients = [5, 0, 2, 1]
    splits: tuple[tuple[Split, ...], ...] = (("train",), ("validation", "train"), ("test",))
    for chosen in splits:
        values, expected = (
            loss_moments(f, clients, models, scales, chosen) for f in (simulation, reference)
        )
        assert_same(values, expected)
        values, expected = (
            output_moments(f, clients, models, chosen) for f in (simulation, reference)
        )
        assert_same(values, expected)


class Wide(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.expand(-1, 300)


def test_moments_of_too_many_outputs_are_refused() -> None:
    x, y = torch.randn(5, 4), torch.randn(5, 300)
    model = nn.Sequential(nn.Linear(4, 1), Wide())
    simulation = Simulation(ClientData.from_arrays([(x, y)] * 2), model)
    with pytest.raises(InputError, match="at most 256 outputs, not 300"):
        output_moments(simulation, [0], simulation.initial_model(0).unsqueeze(0))


def test_moments_need_a_split_and_scales() -> None:
    simulation, reference = pair("mlp")
    models = different_models(reference, 2)
    with pytest.raises(InputError, match="at least one split"):
        output_moments(simulation, [0], models, ())
    with pytest.raises(InputError, match="scales must be 2 positive numbers"):
        loss_moments(simulation, [0], models, torch.ones(3))


@pytest.mark.parametrize("case", ["linear", "mlp", "frozen", "cnn", "lstm"])
@pytest.mark.parametrize("block_size", [None, 1, 4])
def test_gradients_agree_with_the_reference(case: str, block_size: int | None) -> None:
    simulation, reference = pair(case, block_size)
    models = different_models(reference, 4)
    values, expected = (gradients(f, [1, 5, 0, 2], models) for f in (simulation, reference))
    assert_same(values, expected)


class Centered(nn.Module):
    """In training, subtracts the mean of the batch: samples mix, and there are no buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(x - x.mean(0) if self.training else x))


def test_gradients_where_samples_mix_agree_with_the_reference() -> None:
    data, double = examples.classification(UNEQUAL), examples.doubled(Centered)
    simulation, reference = Simulation(data, double), ReferenceFederation(data, double)
    assert simulation.traits.mixes_samples
    models = different_models(reference, 6)
    values, expected = (gradients(f, range(6), models) for f in (simulation, reference))
    assert_same(values, expected)


def test_gradients_reject_batch_norm() -> None:
    simulation, reference = pair("batch norm")
    with pytest.raises(InputError, match="buffers"):
        gradients(simulation, [0, 1], different_models(reference, 2))


@pytest.mark.parametrize("case", CASES)
def test_shares_and_mixtures_agree_with_the_reference(case: str) -> None:
    simulation, reference = pair(case)
    clients = [5, 0, 2, 1]
    mixture = mixture_of(reference, 4)
    for models in (mixture, mixture.models):
        values = shares(simulation, clients, models)
        assert_same(values, shares(reference, clients, models))
        torch.testing.assert_close(values.sum(1), torch.ones(4).double())
    for split in SPLITS:
        assert_same_scores(simulation, reference, clients, mixture, split)


def test_the_first_of_two_equal_models_accounts_for_all_samples() -> None:
    simulation, reference = pair("mlp")
    row = reference.initial_model(0)
    assert shares(simulation, [0, 1], torch.stack([row, row])).tolist() == [[1, 0], [1, 0]]


def test_a_mixture_that_does_not_fit_is_rejected() -> None:
    simulation, reference = pair("mlp")
    mixture = mixture_of(reference, 3)
    with pytest.raises(InputError, match=r"weights of shape \(2, 3\), not \(3, 3\)"):
        scores(simulation, [0, 1], mixture)


@pytest.mark.parametrize("shape", [(-1, 1), (-1,)])
def test_a_single_logit_predicts_one_of_two_classes(shape: tuple[int, ...]) -> None:
    def binary(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            outputs.flatten(), targets.to(outputs.dtype), reduction="none"
        )

    source = examples.classification([40, 40])
    parts = [(x, (x[:, 0] > 0).long()) for x, _ in (source.train.of(c) for c in range(2))]
    net = nn.Sequential(nn.Linear(6, 1), nn.Identity() if len(shape) == 2 else Flat())
    simulation = Simulation(ClientData.from_arrays(parts, parts), net, loss=binary)
    row = torch.tensor([3.0, 0, 0, 0, 0, 0, 0]).repeat(2, 1)
    assert accuracies(simulation, range(2), row) == [1.0, 1.0]
    assert accuracies(simulation, range(2), -row) == [0.0, 0.0]


def accuracies(simulation: Simulation, clients: range, models: Tensor) -> list[float]:
    accuracy = scores(simulation, clients, models).accuracy
    assert accuracy is not None
    return list(accuracy.tolist())


class Flat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.squeeze(1)


def test_several_labels_of_a_sample_count_by_the_fraction_that_is_right() -> None:
    def binary(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            outputs, targets.to(outputs.dtype), reduction="none"
        ).mean(1)

    x = torch.randn(12, 4)
    parts = [(x, (x > 0).long())]
    data = ClientData.from_arrays(parts, parts)
    simulation = Simulation(data, nn.Linear(4, 4, bias=False), loss=binary)
    row = torch.eye(4)
    assert accuracies(simulation, range(1), row.flatten().unsqueeze(0)) == [1.0]
    row[0, 0] = -1.0
    assert accuracies(simulation, range(1), row.flatten().unsqueeze(0)) == [0.75]


def test_equal_models_have_equal_losses() -> None:
    simulation = Simulation(examples.classification([70] * 3, (40,)), mlp(40, 33, 3))
    values = losses(simulation, range(3), simulation.initial_model(0).repeat(7, 1))
    assert all(torch.equal(column, values[:, 0]) for column in values.T)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 40), st.integers(0, 100), st.sampled_from(SPLITS))
def test_losses_on_a_subsample_agree_with_the_reference(size: int, seed: int, split: Split) -> None:
    data = examples.classification([7, 30, 12, 45])
    model = examples.doubled(mlp(6, 5, 3))
    simulation, reference = Simulation(data, model), ReferenceFederation(data, model)
    rows = reference.initial_model(0) + torch.randn(3, reference.layout.length).double()
    values, expected = (
        losses(f, [3, 0, 2], rows, split, Subsample(size, seed)) for f in (simulation, reference)
    )
    torch.testing.assert_close(values, expected)


def test_a_subsample_is_always_the_same_and_its_error_shrinks() -> None:
    simulation = Simulation(examples.regression([2000] * 4), linear(4))
    rows = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    exact = losses(simulation, range(4), rows)

    def subsampled(size: int, seed: int) -> Tensor:
        return losses(simulation, range(4), rows, subsample=Subsample(size, seed))

    assert torch.equal(subsampled(50, 1), subsampled(50, 1))
    assert not torch.equal(subsampled(50, 1), subsampled(50, 2))

    def error(size: int) -> float:
        errors = [(subsampled(size, seed) / exact - 1).square().mean() for seed in range(20)]
        return float(torch.stack(errors).mean().sqrt())

    assert error(800) < error(50) / 2
    with pytest.raises(InputError, match="subsample size must be at least 1, not 0"):
        Subsample(0, 1)


def test_smaller_passes_when_the_memory_does_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(examples.regression([20] * 6), linear(4))
    rows = torch.randn(5, 5)
    expected = losses(simulation, range(6), rows)
    largest, limits = simulation._evaluation._outputs, []
    evaluate = simulation._network.losses_of_all

    def out_of_memory_at_first(state: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        limits.append(simulation._evaluation._outputs)
        if limits[-1] > largest // 8:
            raise torch.OutOfMemoryError("too much")
        return evaluate(state, x, y)

    monkeypatch.setattr(simulation._network, "losses_of_all", out_of_memory_at_first)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    torch.testing.assert_close(losses(simulation, range(6), rows), expected)
    assert limits[:4] == [largest, largest // 2, largest // 4, largest // 8]

    def always_out_of_memory(*_: object) -> Tensor:
        raise torch.OutOfMemoryError("too much")

    monkeypatch.setattr(simulation._network, "losses_of_all", always_out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        losses(simulation, range(6), rows)


def test_subspaces_span_what_singular_vectors_span() -> None:
    simulation, reference = pair("mlp")
    values, expected = (subspaces(f, [2, 0], 3) for f in (simulation, reference))
    assert values.shape == (2, 6, 3)
    assert_same(values @ values.mT, expected @ expected.mT)


def test_a_request_for_no_clients_has_an_empty_reply() -> None:
    simulation, reference = pair("mlp")
    models, length = different_models(reference, 2), reference.layout.length
    assert gradients(simulation, [], models[:0]).shape == (0, length)
    assert losses(simulation, [], models).shape == (0, 2)
    assert loss_moments(simulation, [], models, torch.ones(2)).shape == (0, 2, 9)
    assert output_moments(simulation, [], models).shape == (0, 2, 21)
    assert shares(simulation, [], models).shape == (0, 2)
    assert len(scores(simulation, [], models[:0])) == 0
    assert subspaces(simulation, [], 2).shape == (0, 6, 2)
