"""CFL: rounds by hand, the conditions of a split, and the bipartition."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import ClientData, InputError, LocalTraining, Method, Partition, Simulation, data
from srfca.clustering import Linkage
from srfca.methods import CFL, Hierarchical
from srfca.methods.cfl import SplitCheck, bipartition, resolve_limit, similarities, split
from srfca.models import linear, mlp
from tests import examples
from tests.methods.helpers import Array, StageSteps, digits

DIGITS = LocalTraining(steps=60, batch_size=10, lr=0.5)


def lines(slopes: list[list[float]], samples: int = 20, noise: float = 0.0) -> ClientData:
    """Return clients that each have a linear regression of their own."""
    rng = np.random.default_rng(0)
    train = []
    for slope in slopes:
        x = rng.normal(size=(samples, len(slope)))
        y = x @ slope + noise * rng.normal(size=samples)
        train.append((torch.tensor(x), torch.tensor(y)))
    return ClientData.from_arrays(train)


def simulation(made: ClientData, **options: Any) -> Simulation:
    model = examples.doubled(linear(made.train.x.shape[1], bias=False))
    return Simulation(made, model, **options)


@pytest.mark.parametrize("option", [{}, {"min_size": 1}, {"gamma_max": 0.3}])
def test_one_outlier_does_not_keep_the_others_together(option: dict[str, Any]) -> None:
    outlier = [-20.0, -20.0, 0.0, 0.0]
    slopes = [[5.0, 1.0, 0.0, 0.0]] * 8 + [[1.0, 5.0, 0.0, 0.0]] * 8 + [outlier]
    local = LocalTraining(steps=100, local_steps=2, batch_size=None, lr=0.05)
    result = CFL(local=local, **option).fit(simulation(lines(slopes, 200, 0.1)))
    assert Partition(result.labels[:16]) == Partition([0] * 8 + [1] * 8)


@given(st.integers(4, 9), st.integers(1, 2), st.integers(0, 99))
def test_a_part_that_is_too_small_is_set_aside(count: int, min_size: int, seed: int) -> None:
    """It joins the most similar client of the rest; the rest is cut as if it were alone."""
    rng = np.random.default_rng(seed)
    alpha = similarities(torch.tensor(rng.normal(size=(count, 3))))
    parts = bipartition(alpha, min_size=min_size)
    assert sorted(np.concatenate(parts)) == list(range(count))
    first = bipartition(alpha)
    if min(map(len, first)) >= min_size:
        assert [part.tolist() for part in parts] == [part.tolist() for part in first]
    elif min(map(len, parts)) >= min_size:
        aside = int(min(first, key=len)[0])
        joined = next(part for part in parts if aside in part)
        rest = np.delete(np.arange(count), aside)
        below = [rest[part].tolist() for part in bipartition(alpha[np.ix_(rest, rest)])]
        if min(map(len, below)) >= min_size:
            assert rest[alpha[aside, rest].argmax()] in joined
            without = {frozenset(part.tolist()) - {aside} for part in parts}
            assert without == set(map(frozenset, below))


def test_two_rounds_by_hand() -> None:
    made = lines([[3.0], [-3.0], [3.5], [-2.0]])
    rate = 0.1
    local = LocalTraining(steps=2, local_steps=1, batch_size=None, lr=rate)
    method = CFL(eps1=0.5, eps2=0.1, gamma_max=0.9, warm_up=0, weighted=False, local=local)
    result = method.fit(simulation(made, validation=0))

    x, y = (tensor.numpy().reshape(4, 20) for tensor in (made.train.x, made.train.y))

    def stepped(w: Array) -> Array:
        slopes = (2 * (w[:, None] * x - y) * x).mean(1)
        return np.asarray(w - rate * slopes)

    first = stepped(np.zeros(4))
    assert abs(first.mean()) < 0.5
    assert np.abs(first).max() > 0.1
    assert (np.sign(first) == [1, -1, 1, -1]).all(), "cosines are 1 and -1"
    means = np.array([first[[0, 2]].mean(), first[[1, 3]].mean()])
    second = stepped(means[[0, 1, 0, 1]])
    expected = [second[[0, 2]].mean(), second[[1, 3]].mean()]
    assert result.labels.tolist() == [0, 1, 0, 1]
    assert result.models.flatten().tolist() == pytest.approx(expected, rel=1e-12)
    note = result.history[0].notes
    assert result.history[0].name == "SPLIT 0"
    assert note["splits"][0]["alpha_cross_max"] == pytest.approx(-1)
    assert note["splits"][0]["mean_norm"] == pytest.approx(abs(first.mean()))
    assert note["splits"][0]["max_norm"] == pytest.approx(np.abs(first).max())


@pytest.mark.parametrize(
    "option",
    [{"eps1": 1e-9}, {"eps2": 100.0}, {"gamma_max": 1.0}, {"warm_up": 9}, {"min_size": 3}],
)
def test_every_condition_of_a_split_counts(option: dict[str, Any]) -> None:
    federation = simulation(lines([[3.0], [-3.0], [3.5], [-2.0]]))
    local = LocalTraining(steps=3, local_steps=1, batch_size=None, lr=0.1)
    options = {"eps1": 0.9, "eps2": 0.1, "gamma_max": 0.9, "warm_up": 0} | option
    assert CFL(**options, local=local).fit(federation).partition.num_clusters == 1


def test_clients_are_weighted_by_their_samples() -> None:
    rng = np.random.default_rng(0)
    x = [torch.tensor(rng.normal(size=(n, 1))) for n in (40, 10)]
    made = ClientData.from_arrays([(x[0], x[0][:, 0]), (x[1], -x[1][:, 0])])
    federation = simulation(made, validation=0)
    local = LocalTraining(steps=1, local_steps=1, batch_size=None, lr=0.1)
    steps = [
        0.2 * float((inputs**2).mean()) * sign for inputs, sign in zip(x, (1, -1), strict=True)
    ]
    for weighted, expected in ((True, 0.8 * steps[0] + 0.2 * steps[1]), (False, sum(steps) / 2)):
        models = CFL(weighted=weighted, warm_up=5, local=local).fit(federation).models
        assert models.item() == pytest.approx(expected)


@st.composite
def updates(draw: st.DrawFn) -> Array:
    count, width = draw(st.integers(2, 7)), draw(st.integers(1, 4))
    return np.random.default_rng(draw(st.integers(0, 2**32))).normal(size=(count, width))


def max_across(alpha: Array, first: list[int], second: list[int]) -> float:
    return float(alpha[np.ix_(first, second)].max())


def best_of_all_cuts(alpha: Array) -> float:
    """Return the least largest similarity across two parts, over all ways to cut."""
    values = []
    for sides in product([False, True], repeat=len(alpha) - 1):
        second = [i + 1 for i, side in enumerate(sides) if side]
        if second:
            first = [i for i in range(len(alpha)) if i not in second]
            values.append(max_across(alpha, first, second))
    return min(values)


@given(updates())
def test_single_linkage_is_the_optimal_bipartition(rows: Array) -> None:
    alpha = similarities(torch.tensor(rows))
    first, second = bipartition(alpha)
    assert max_across(alpha, first.tolist(), second.tolist()) == best_of_all_cuts(alpha)
    norms = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(alpha, rows @ rows.T / np.outer(norms, norms), atol=1e-12)


def test_complete_linkage_is_not_optimal() -> None:
    degrees = np.deg2rad([0.0, 40.0, 85.0, 135.0])
    alpha = np.cos(degrees[:, None] - degrees)
    linkages: tuple[Linkage, ...] = ("single", "complete")
    optimal, complete = (bipartition(alpha, linkage) for linkage in linkages)
    assert [part.tolist() for part in optimal] == [[0, 1, 2], [3]]
    assert [part.tolist() for part in complete] == [[0, 1], [2, 3]]


def test_clients_keep_their_positions_through_two_levels_of_splits() -> None:
    together = Partition([0] * 8)
    halves = split(
        together,
        [SplitCheck(0, 0, 0, parts=(np.array([0, 2, 5, 7]), np.array([1, 3, 4, 6])))],
        np.arange(8),
    )
    assert halves.labels.tolist() == [0, 1, 0, 1, 1, 0, 1, 0]
    quarters = split(
        halves,
        [
            SplitCheck(0, 0, 0, parts=(np.array([0, 3]), np.array([1, 2]))),
            SplitCheck(1, 0, 0, parts=(np.array([1, 2]), np.array([0, 3]))),
        ],
        np.arange(8),
    )
    groups = {frozenset(members.tolist()) for members in quarters}
    assert groups == {frozenset(g) for g in ({0, 7}, {2, 5}, {3, 4}, {1, 6})}
    without = split(
        together, [SplitCheck(0, 0, 0, parts=(np.array([0]), np.array([1])))], np.array([3, 5])
    )
    assert without.labels.tolist() == [-1, -1, -1, 0, -1, 1, -1, -1]


@pytest.mark.parametrize("gamma_max", ["auto", 0.6])
def test_four_groups_in_any_order(gamma_max: float | str) -> None:
    slopes = [[5.0, 0.5], [-5.0, 0.5], [0.5, 5.0], [0.5, -5.0]]
    truth = np.random.default_rng(1).permutation(np.arange(16) % 4)
    federation = simulation(lines([slopes[t] for t in truth], samples=200, noise=0.1))
    local = LocalTraining(steps=60, local_steps=2, batch_size=None, lr=0.1)
    result = CFL(gamma_max=gamma_max, local=local).fit(federation)
    assert result.partition == Partition(truth)
    splits = [stage for stage in result.history if stage.name.startswith("SPLIT")]
    assert len(splits) >= 2, "two levels"
    for members in result.partition:
        optimum = slopes[truth[members[0]]]
        model = result.models[result.labels[members[0]]].tolist()
        assert model == pytest.approx(optimum, abs=0.1)


def test_groups_of_real_images_are_found() -> None:
    federation = digits(num_clients=20, rotations=2)
    assert CFL(local=DIGITS).fit(federation, seed=0).partition == federation.data.truth


@pytest.mark.parametrize("num_clients", [6, 20])
def test_one_group_is_not_split_unless_splits_are_unchecked(num_clients: int) -> None:
    federation = digits(num_clients=num_clients, rotations=1)
    assert CFL(local=DIGITS).fit(federation, seed=0).partition.num_clusters == 1
    unchecked = CFL(gamma_max=0.0, min_size=1, local=DIGITS).fit(federation, seed=0)
    assert unchecked.partition.num_clusters > 1


def test_clients_train_once_and_blocks_do_not_matter() -> None:
    made = data.rotated_digits(num_clients=12, rotations=2)
    local = LocalTraining(
        steps=23, local_steps=5, batch_size=10, lr=0.5, optimizer="sgd", momentum=0.5
    )
    results = [
        CFL(gamma_max=0.0, eps1="100%", warm_up=1, local=local).fit(
            Simulation(made, examples.doubled(mlp(64, 16, 10)), block_size=size), seed=3
        )
        for size in (None, 1, 3)
    ]
    for result in results:
        assert result.budget.local_steps == 12 * 23
        assert result.partition == results[0].partition
        torch.testing.assert_close(result.models, results[0].models)
    assert results[0].partition.num_clusters > 1


@pytest.mark.parametrize(
    "method", [CFL(local=DIGITS), Hierarchical(participation=0.5, k=2, local=DIGITS)]
)
def test_progress_is_what_was_announced(method: Method) -> None:
    monitor = StageSteps()
    made = data.rotated_digits(num_clients=8, rotations=2)
    method.fit(Simulation(made, mlp(64, 16, 10)), callbacks=monitor)
    assert all(announced == done > 0 for announced, done in monitor.stages.values())
    assert len(monitor.stages) == (1 if isinstance(method, CFL) else 3)


@given(st.floats(0, 1000), st.floats(0.1, 10))
def test_limits_are_numbers_or_percentages(value: float, reference: float) -> None:
    assert resolve_limit(value, reference, "eps1") == value
    assert resolve_limit(f"{value}%", reference, "eps1") == pytest.approx(value / 100 * reference)


@pytest.mark.parametrize(
    "option",
    [
        {"eps1": -1.0},
        {"eps1": "much"},
        {"eps2": "0.5"},
        {"eps2": float("nan")},
        {"gamma_max": 1.5},
        {"gamma_max": "none"},
        {"warm_up": -1},
        {"min_size": 0},
        {"linkage": "centroid"},
        {"fine_tune_steps": -1},
    ],
)
def test_wrong_values_are_named(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(option))):
        CFL(**option)
