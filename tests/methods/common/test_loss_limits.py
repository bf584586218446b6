"""Limits of newcomers' losses: by hand, under changes that must not matter, and with liars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from srfca import Partition, Simulation
from srfca.federation.moments import ClientLosses, GroupMoments, client_losses
from srfca.methods._common.loss_limits import (
    LIMIT,
    LossLimits,
    UsualLosses,
    fit_limits,
    loss_limits,
    loss_scores,
    usual_losses,
)
from srfca.models import linear
from tests import examples
from tests.methods.helpers import DropByNumber, losses

Array = NDArray[np.float64]


def unit_losses(count: int) -> UsualLosses:
    """Return losses of 1 in all clusters."""
    ones = torch.ones(count, dtype=torch.float64)
    return UsualLosses(ones, ones, 0.0)


def make_clients(
    seed: int = 0, clients: int = 40, samples: int = 12, groups: int = 5, between: float = 0.0
) -> tuple[Array, Array, Array, NDArray[np.int64]]:
    """Return counts, means and scatter of clients in two clusters, with compressed losses."""
    rng = np.random.default_rng(seed)
    counts, means, scatter = np.zeros((clients, groups)), np.zeros((clients, groups)), []
    for client in range(clients):
        labels = rng.integers(groups, size=samples)
        values = labels / 2 + between * rng.standard_normal() + rng.standard_normal(samples)
        squares = 0.0
        for group in range(groups):
            part = values[labels == group]
            if len(part):
                counts[client, group], means[client, group] = len(part), part.mean()
                squares += ((part - part.mean()) ** 2).sum()
        scatter.append(squares)
    return counts, means, np.array(scatter), np.arange(clients) % 2


def fit(clients: tuple[Array, Array, Array, NDArray[np.int64]]) -> LossLimits:
    return fit_limits(*clients, unit_losses(2))


def newcomer(values: list[list[float]]) -> ClientLosses:
    """Return what a client reports with these compressed losses by class, for two models."""
    counts = torch.tensor([float(len(group)) for group in values], dtype=torch.float64)
    means = torch.tensor([np.mean(group) if group else 0.0 for group in values]).double()
    zeros = torch.zeros(1, 2, dtype=torch.float64)
    moments = GroupMoments(
        counts.expand(1, 2, -1), means.expand(1, 2, -1).unsqueeze(3), zeros.view(1, 2, 1, 1)
    )
    return ClientLosses(zeros, zeros, moments)


def test_limits_by_hand() -> None:
    """One class, two clients of three samples in one cluster: means 1 and 2, scatter 2 each."""
    counts, means = np.array([[3.0], [3.0]]), np.array([[1.0], [2.0]])
    limits = fit_limits(counts, means, np.array([2.0, 2.0]), np.array([0, 0]), unit_losses(1))
    # The mean has a prior of one sample at itself. The differences of the clients' means from it
    # are 1/2: their squares, 2 x 3/4 for one degree of freedom, count as within clients, because
    # there are too few samples; with a prior variance of 1 for ten degrees of freedom.
    assert limits.means.tolist() == [[1.5]]
    assert limits.counts.tolist() == [[6.0]]
    assert limits.clients.tolist() == [2]
    assert limits.within == pytest.approx((4 + 1.5 + 10) / (4 + 1 + 10))
    assert limits.freedom == pytest.approx(15)
    assert (limits.between, limits.between_classes) == (0.0, 0.0)
    # A newcomer of four samples with mean 3.5: noise of its samples, and of the cluster's.
    score = loss_scores(limits.select([0, 0]), newcomer([[3.0, 3.0, 4.0, 4.0]]))
    t = (3.5 - 1.5) / np.sqrt(limits.within * (1 / 4 + 1 / 7))
    expected = stats.norm.isf(stats.t.sf(t, 15))
    assert score.tolist() == [[pytest.approx(expected), pytest.approx(expected)]]


def test_classes_that_do_worse_than_the_mean_by_hand() -> None:
    limits = LossLimits(
        scales=torch.ones(2).double(), means=torch.zeros(2, 3).double(),
        counts=torch.full((2, 3), 1e9).double(), clients=torch.tensor([5, 0]),
        within=1.0, between=0.0, between_classes=0.0, freedom=1e9,
        mean_losses=torch.ones(2), spread=0.1,
    )  # fmt: skip
    score = loss_scores(limits, newcomer([[3.0] * 6, [0.0] * 6, [0.0] * 6]))
    # The mean is 1, of variance 1/18. The class is 2 above it: a variance of 1/6 - 1/18, and 1/36
    # because six samples are few.
    overall = 1 / np.sqrt(1 / 18)
    squares = 2**2 / (1 / 9 + 1 / 36)
    weights = stats.binom.pmf([1, 2, 3], 3, 0.5)
    by_class = stats.norm.isf((weights * stats.chi2.sf(squares, [1, 2, 3])).sum())
    assert by_class > overall
    assert score[0, 0] == pytest.approx(by_class, rel=1e-6)
    assert score[0, 1] == 0.0, "a cluster without known clients accepts everybody"


def test_the_variances_are_found() -> None:
    same = fit(make_clients(clients=200))
    assert same.within == pytest.approx(1.0, abs=0.1)
    assert same.between < 0.02
    assert same.between_classes < 0.05
    different = fit(make_clients(clients=200, between=0.7))
    assert different.within == pytest.approx(1.0, abs=0.1)
    assert different.between == pytest.approx(0.49, abs=0.2)


def test_more_samples_tell_more() -> None:
    limits = fit(make_clients())
    centers = limits.means[0].tolist()

    def score(samples: int, shift: float) -> float:
        values = [[center + shift] * samples for center in centers]
        return float(loss_scores(limits, newcomer(values))[0, 0])

    assert 0 < score(1, 0.6) < score(4, 0.6) < LIMIT < score(20, 0.6)
    assert abs(score(20, 0.0)) < 1e-6
    assert score(20, -0.5) < -1


def test_difficult_classes_are_not_held_against_a_client() -> None:
    limits = fit(make_clients())
    center = float(limits.means[0, 4])
    assert center > float(limits.means[0].mean()) + 0.5
    only_difficult = newcomer([[], [], [], [], [center] * 40])
    assert loss_scores(limits, only_difficult)[0, 0] < 1


def same_limits(a: LossLimits, b: LossLimits) -> bool:
    first, second = a.tensors(), b.tensors()
    return all(torch.allclose(first[name], second[name], rtol=1e-9, atol=1e-12) for name in first)


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(12)), st.integers(0, 5))
def test_the_order_of_clients_does_not_matter(order: list[int], seed: int) -> None:
    clients = make_clients(seed, clients=12)
    changed = [part[order] for part in clients]
    assert same_limits(fit(clients), fit((changed[0], changed[1], changed[2], changed[3])))  # type: ignore[arg-type]


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(5)), st.integers(0, 5))
def test_the_names_of_classes_do_not_matter(order: list[int], seed: int) -> None:
    counts, means, scatter, labels = make_clients(seed, clients=12)
    limits = fit((counts, means, scatter, labels))
    changed = fit((counts[:, order], means[:, order], scatter, labels))
    assert torch.allclose(changed.means, limits.means[:, order])
    values = [[1.0, 2.0], [], [4.0], [0.0], [3.0] * 4]
    renamed = [values[group] for group in order]
    scores, expected = (
        loss_scores(changed, newcomer(renamed)),
        loss_scores(limits, newcomer(values)),
    )
    np.testing.assert_allclose(scores, expected, atol=1e-9)


@settings(deadline=None, max_examples=20)
@given(st.floats(1e-3, 1e3))
def test_the_unit_of_losses_does_not_matter(unit: float) -> None:
    data = examples.regression([30] * 8, clusters=2)

    def scores(factor: float) -> Array:
        def scaled(outputs: Tensor, targets: Tensor) -> Tensor:
            return factor * (outputs.squeeze(-1) - targets).square()

        federation = Simulation(data, examples.doubled(linear(4)), loss=scaled, device="cpu")
        models = torch.linspace(-1, 1, 10).double().view(2, 5)
        limits = loss_limits(federation, models, Partition([0, 1] * 4))
        assert limits is not None
        table = factor * torch.rand(2, 6, generator=torch.Generator().manual_seed(0)).double() * 9
        group = torch.zeros(6, dtype=torch.int64)
        return loss_scores(limits, client_losses(table, limits.scales, group, group, 1, 1))

    np.testing.assert_allclose(scores(unit), scores(1.0), rtol=1e-6, atol=1e-6)


LIES: dict[str, dict[str, Any]] = {
    "large losses": {"means": 40.0},
    "many samples": {"counts": 1e12},
    "many samples with large losses": {"counts": 1e12, "means": 4.0},
    "a large variance": {"scatter": 1e12},
    "classes that differ": {"means": np.array([40.0, -40.0, 40.0, -40.0, 0.0]), "counts": 1.0},
    "infinite": {"means": np.inf},
    "nothing": {"counts": np.nan},
    "negative": {"counts": -5.0},
}


@pytest.mark.parametrize("lie", LIES)
def test_one_liar_does_not_move_the_limit_by_much(lie: str) -> None:
    counts, means, scatter, labels = make_clients()
    honest = fit((counts, means, scatter, labels))
    counts, means, scatter = counts.copy(), means.copy(), scatter.copy()
    for name, value in LIES[lie].items():
        {"counts": counts, "means": means, "scatter": scatter}[name][4] = value
    limits = fit((counts, means, scatter, labels))
    assert limits.within == pytest.approx(honest.within, rel=0.2)
    assert limits.between < 0.1
    assert limits.between_classes < 0.2
    assert torch.allclose(limits.means, honest.means, atol=0.5)
    for shift, verdict in ((0.0, False), (1.5, True)):
        values = [[center + shift] * 8 for center in honest.means[0].tolist()]
        assert (loss_scores(limits, newcomer(values))[0, 0] > LIMIT) == verdict


def test_a_liar_in_a_cluster_of_two_does_not_raise_the_limit() -> None:
    counts, means = np.full((6, 1), 10.0), np.array([[1.0], [1.2], [0.9], [1.1], [1.0], [40.0]])
    scatter, labels = np.full(6, 9.0), np.array([0, 0, 1, 1, 2, 2])
    limits = fit_limits(counts, means, scatter, labels, unit_losses(3))
    assert limits.means[2].item() == pytest.approx(1.0)
    assert limits.clients.tolist() == [2, 2, 1]


def test_outliers_in_a_cluster_do_not_count() -> None:
    counts, means, scatter, labels = make_clients()
    placed = means.copy()
    placed[[0, 2]] += 5.0
    limits = fit((counts, placed, scatter, labels))
    assert limits.clients.tolist() == [18, 20]
    assert limits.between < 0.1
    honest = fit((counts, means, scatter, labels))
    assert torch.allclose(limits.means[0], honest.means[0], atol=0.3)


@pytest.mark.parametrize("value", [0.0, 1e-9, 1.0, 3.0, 10.0, 1e3, 1e30, 1e150])
@pytest.mark.parametrize("scattered", [0.0, 1e3, 1e30])
def test_one_client_hardly_moves_the_acceptance_limit(value: float, scattered: float) -> None:
    """It reports any losses, of any spread; honest newcomers are taken in, and others are not."""
    counts, means, scatter, labels = make_clients()
    honest = fit((counts, means, scatter, labels))
    means, scatter = means.copy(), scatter.copy()
    means[2], scatter[2] = value, scattered
    limits = fit((counts, means, scatter, labels))
    for shift, taken_in in ((0.0, True), (1.0, None), (3.0, False), (50.0, False)):
        values = [[center + shift] * 8 for center in honest.means[0].tolist()]
        score, before = (
            float(loss_scores(fitted, newcomer(values))[0, 0]) for fitted in (limits, honest)
        )
        assert taken_in is None or (score <= LIMIT) == (before <= LIMIT) == taken_in


def test_a_cluster_of_one_client_has_limits() -> None:
    counts, means, scatter, labels = make_clients()
    labels = np.where(np.arange(40) == 7, 1, 0)
    limits = fit((counts, means, scatter, labels))
    assert limits.clients.tolist() == [39, 1]
    assert limits.limit == LIMIT
    values = [[center + 8.0] * 8 for center in limits.means[1].tolist()]
    assert loss_scores(limits, newcomer(values))[0, 1] > LIMIT


def test_if_everybody_is_alone_a_newcomer_must_be_as_good() -> None:
    counts, means, scatter, _ = make_clients(clients=2)
    limits = fit((counts, means, scatter, np.array([0, 1])))
    assert limits.limit == 0.0


def test_no_client_at_all() -> None:
    empty = np.zeros((0, 5))
    limits = fit((empty, empty, np.zeros(0), np.zeros(0, dtype=np.int64)))
    assert limits.clients.tolist() == [0, 0]
    assert loss_scores(limits, newcomer([[9.0]] * 5)).tolist() == [[0.0, 0.0]]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 100), st.integers(1, 6), st.integers(1, 3))
def test_any_small_federation_has_finite_limits(seed: int, clients: int, samples: int) -> None:
    limits = fit(make_clients(seed, clients, samples))
    assert all(tensor.isfinite().all() for tensor in limits.tensors().values())
    assert limits.within > 0
    scores = loss_scores(limits, newcomer([[1.0], [], [2.0, 3.0], [], []]))
    assert np.isfinite(scores).all()


def test_tensors_are_the_limits_to_the_bit() -> None:
    limits = fit(make_clients(between=0.7))
    again = LossLimits.from_tensors(limits.tensors())
    for name, tensor in limits.tensors().items():
        assert torch.equal(again.tensors()[name], tensor)
    assert again.select([1, 0]).means.tolist() == limits.means.flip(0).tolist()


def test_limits_are_of_the_clients_that_replied() -> None:
    simulation = Simulation(examples.regression([40] * 8, clusters=2), linear(4))
    models, partition = torch.zeros(2, 5), Partition([0, 1] * 4)
    dropped = {number: [0, 2, 4, 6] for number in (0, 1)}
    limits = loss_limits(DropByNumber(simulation, dropped), models, partition)
    assert limits is not None
    assert limits.clients.tolist() == [0, 4]
    of_replied = losses(simulation, models, [1, 3, 5, 7], "validation")[:, 1].double().sort().values
    assert limits.scales.tolist() == pytest.approx([1.0, of_replied[1].item()])


def test_many_clients_are_asked_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(examples.regression([30] * 9, clusters=3), linear(4))
    partition = Partition([0, 1, 2] * 3)
    models = torch.linspace(-1, 1, 15).view(3, 5)
    expected = loss_limits(simulation, models, partition)
    monkeypatch.setattr("srfca.methods._common.loss_limits._BLOCK", 2000)
    recorded = DropByNumber(simulation)
    limits = loss_limits(recorded, models, partition)
    assert len(recorded.requests) > 3
    assert limits is not None
    assert expected is not None
    assert same_limits(limits, expected)


def test_without_held_out_data_there_are_no_limits() -> None:
    simulation = Simulation(examples.regression([20] * 4), linear(4), validation=0)
    assert loss_limits(simulation, torch.zeros(1, 5), Partition([0] * 4)) is None


def test_the_typical_loss_without_clients_is_1() -> None:
    simulation = Simulation(examples.regression([20] * 4, clusters=2), linear(4))
    usual = usual_losses(simulation, torch.zeros(2, 5), Partition([-1, -1, -1, -1]))
    assert usual.typical.tolist() == [1.0, 1.0]
    assert usual.spread == 0.0


def test_usual_losses_are_of_each_clients_own_cluster() -> None:
    simulation = Simulation(examples.regression([20] * 6, clusters=2), linear(4))
    models = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    partition = Partition([0, 1, 0, 1, 0, 1])
    usual = usual_losses(simulation, models, partition)
    values = losses(simulation, models, split="validation").double()
    first, second = values[[0, 2, 4], 0], values[[1, 3, 5], 1]
    assert usual.mean.tolist() == pytest.approx([float(first.mean()), float(second.mean())])
    assert usual.typical.tolist() == pytest.approx([float(first.median()), float(second.median())])
    ratios = torch.cat([first / first.mean(), second / second.mean()]) - 1
    assert usual.spread == pytest.approx(float((ratios.square().sum() / 4).sqrt()))
