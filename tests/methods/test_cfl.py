from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from srfca import ClientData, InputError, Partition, Simulation, Work, data
from srfca.federation.base import Tick
from srfca.methods import CFL, Hierarchical, Method
from srfca.methods.cfl import Look, bipartition, limit, similarities, split
from srfca.models import linear, mlp

DIGITS = Work(steps=60, batch_size=10, lr=0.5)


def lines(slopes: list[list[float]], samples: int = 20, noise: float = 0.0) -> ClientData:
    """Clients that each have a linear regression of their own."""
    draws = np.random.default_rng(0)
    train = []
    for slope in slopes:
        x = draws.normal(size=(samples, len(slope)))
        y = x @ slope + noise * draws.normal(size=samples)
        train.append((torch.tensor(x), torch.tensor(y)))
    return ClientData.from_arrays(train)


def federation(clients: ClientData, **options: Any) -> Simulation:
    width = clients.train.x.shape[1]
    model = linear(width, bias=False)
    return Simulation(clients, lambda: model().double(), **options)


@pytest.mark.parametrize("option", [{}, {"min_size": 1}, {"gamma_max": 0.3}])
def test_one_odd_client_does_not_keep_the_others_together(option: dict[str, Any]) -> None:
    odd = [-20.0, -20.0, 0.0, 0.0]
    clients = lines([[5.0, 1.0, 0.0, 0.0]] * 8 + [[1.0, 5.0, 0.0, 0.0]] * 8 + [odd], 200, 0.1)
    work = Work(steps=100, local_steps=2, batch_size=None, lr=0.05)
    found = CFL(work=work, **option).fit(federation(clients))
    assert Partition(found.labels[:16]) == Partition([0] * 8 + [1] * 8)


@given(st.integers(4, 9), st.integers(1, 2), st.integers(0, 99))
def test_a_part_that_is_too_small_is_set_aside(count: int, least: int, seed: int) -> None:
    """Who was set aside is with the most similar of the rest; the rest is cut as if alone."""
    draws = np.random.default_rng(seed)
    alpha = similarities(torch.tensor(draws.normal(size=(count, 3))))
    parts = bipartition(alpha, min_size=least)
    assert sorted(np.concatenate(parts)) == list(range(count))
    first = bipartition(alpha)
    if min(map(len, first)) >= least:
        assert [part.tolist() for part in parts] == [part.tolist() for part in first]
    elif min(map(len, parts)) >= least:
        aside = int(min(first, key=len)[0])
        own = next(part for part in parts if aside in part)
        rest = np.delete(np.arange(count), aside)
        below = [rest[part].tolist() for part in bipartition(alpha[np.ix_(rest, rest)])]
        if min(map(len, below)) >= least:
            assert rest[alpha[aside, rest].argmax()] in own
            without = {frozenset(part.tolist()) - {aside} for part in parts}
            assert without == set(map(frozenset, below))


def test_two_rounds_by_hand() -> None:
    clients = lines([[3.0], [-3.0], [3.5], [-2.0]])
    rate = 0.1
    work = Work(steps=2, local_steps=1, batch_size=None, lr=rate)
    method = CFL(eps1=0.5, eps2=0.1, gamma_max=0.9, warm_up=0, weighted=False, work=work)
    result = method.fit(federation(clients, validation=0))

    x, y = (t.numpy().reshape(4, 20) for t in (clients.train.x, clients.train.y))

    def stepped(w: NDArray[np.float64]) -> NDArray[np.float64]:
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
    clients = federation(lines([[3.0], [-3.0], [3.5], [-2.0]]))
    work = Work(steps=3, local_steps=1, batch_size=None, lr=0.1)
    settings = {"eps1": 0.9, "eps2": 0.1, "gamma_max": 0.9, "warm_up": 0} | option
    assert CFL(**settings, work=work).fit(clients).partition.num_clusters == 1


def test_weights_are_the_samples() -> None:
    draws = np.random.default_rng(0)
    x = [torch.tensor(draws.normal(size=(n, 1))) for n in (40, 10)]
    clients = federation(ClientData.from_arrays([(x[0], x[0][:, 0]), (x[1], -x[1][:, 0])]), validation=0)
    work = Work(steps=1, local_steps=1, batch_size=None, lr=0.1)
    steps = [0.2 * float((each**2).mean()) * sign for each, sign in zip(x, (1, -1), strict=True)]
    for weighted, expected in ((True, 0.8 * steps[0] + 0.2 * steps[1]), (False, sum(steps) / 2)):
        found = CFL(weighted=weighted, warm_up=5, work=work).fit(clients).models
        assert found.item() == pytest.approx(expected)


@st.composite
def updates(draw: st.DrawFn) -> NDArray[np.float64]:
    count, width = draw(st.integers(2, 7)), draw(st.integers(1, 4))
    return np.random.default_rng(draw(st.integers(0, 2**32))).normal(size=(count, width))


def crossing(alpha: NDArray[np.float64], one: list[int], other: list[int]) -> float:
    return float(alpha[np.ix_(one, other)].max())


def best_by_trying_all(alpha: NDArray[np.float64]) -> float:
    """The least largest similarity across two parts, over all ways to cut."""
    found = []
    for sides in product([False, True], repeat=len(alpha) - 1):
        second = [i + 1 for i, side in enumerate(sides) if side]
        if second:
            first = [i for i in range(len(alpha)) if i not in second]
            found.append(crossing(alpha, first, second))
    return min(found)


@given(updates())
def test_single_linkage_is_the_optimal_bipartition(rows: NDArray[np.float64]) -> None:
    alpha = similarities(torch.tensor(rows))
    one, other = bipartition(alpha)
    assert crossing(alpha, one.tolist(), other.tolist()) == best_by_trying_all(alpha)
    norms = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(alpha, rows @ rows.T / np.outer(norms, norms), atol=1e-12)


def test_complete_linkage_is_not_optimal() -> None:
    degrees = np.deg2rad([0.0, 40.0, 85.0, 135.0])
    alpha = np.cos(degrees[:, None] - degrees)
    optimal, complete = (bipartition(alpha, name) for name in ("single", "complete"))
    assert [part.tolist() for part in optimal] == [[0, 1, 2], [3]]
    assert [part.tolist() for part in complete] == [[0, 1], [2, 3]]


def test_clients_keep_their_ids_through_two_levels_of_splits() -> None:
    everybody = Partition([0] * 8)
    halves = split(
        everybody,
        [Look(0, 0, 0, parts=(np.array([0, 2, 5, 7]), np.array([1, 3, 4, 6])))],
        np.arange(8),
    )
    assert halves.labels.tolist() == [0, 1, 0, 1, 1, 0, 1, 0]
    quarters = split(
        halves,
        [
            Look(0, 0, 0, parts=(np.array([0, 3]), np.array([1, 2]))),
            Look(1, 0, 0, parts=(np.array([1, 2]), np.array([0, 3]))),
        ],
        np.arange(8),
    )
    groups = {frozenset(members.tolist()) for members in quarters}
    assert groups == {frozenset(g) for g in ({0, 7}, {2, 5}, {3, 4}, {1, 6})}
    without = split(
        everybody, [Look(0, 0, 0, parts=(np.array([0]), np.array([1])))], np.array([3, 5])
    )
    assert without.labels.tolist() == [-1, -1, -1, 0, -1, 1, -1, -1]


@pytest.mark.parametrize("gamma_max", ["auto", 0.6])
def test_four_groups_in_any_order(gamma_max: float | str) -> None:
    slopes = [[5.0, 0.5], [-5.0, 0.5], [0.5, 5.0], [0.5, -5.0]]
    truth = np.random.default_rng(1).permutation(np.arange(16) % 4)
    clients = federation(lines([slopes[t] for t in truth], samples=200, noise=0.1))
    work = Work(steps=60, local_steps=2, batch_size=None, lr=0.1)
    result = CFL(gamma_max=gamma_max, work=work).fit(clients)
    assert result.partition == Partition(truth)
    splits = [stage for stage in result.history if stage.name.startswith("SPLIT")]
    assert len(splits) >= 2, "two levels"
    for members in result.partition:
        optimum = slopes[truth[members[0]]]
        found = result.models[result.labels[members[0]]].tolist()
        assert found == pytest.approx(optimum, abs=0.1)


def test_groups_of_real_images_are_found() -> None:
    clients = Simulation(data.rotated_digits(num_clients=20, rotations=2), mlp(64, 32, 10))
    result = CFL(work=DIGITS).fit(clients, seed=0)
    assert result.partition == clients.data.truth


@pytest.mark.parametrize("clients", [6, 20])
def test_one_group_is_left_whole_where_splits_without_a_check_are_not(clients: int) -> None:
    alike = Simulation(data.rotated_digits(num_clients=clients, rotations=1), mlp(64, 32, 10))
    assert CFL(work=DIGITS).fit(alike, seed=0).partition.num_clusters == 1
    unchecked = CFL(gamma_max=0.0, min_size=1, work=DIGITS).fit(alike, seed=0)
    assert unchecked.partition.num_clusters > 1


def test_clients_train_once_and_blocks_do_not_matter() -> None:
    clients = data.rotated_digits(num_clients=12, rotations=2)
    work = Work(steps=23, local_steps=5, batch_size=10, lr=0.5, optimizer="sgd", momentum=0.5)
    results = [
        CFL(gamma_max=0.0, eps1="100%", warm_up=1, work=work).fit(
            Simulation(clients, lambda: mlp(64, 16, 10)().double(), block_size=size), seed=3
        )
        for size in (None, 1, 3)
    ]
    for result in results:
        assert result.budget.local_steps == 12 * 23
        assert result.partition == results[0].partition
        torch.testing.assert_close(result.models, results[0].models)
    assert results[0].partition.num_clusters > 1


@pytest.mark.parametrize(
    "method", [CFL(work=DIGITS), Hierarchical(participation=0.5, k=2, work=DIGITS)]
)
def test_progress_is_what_was_announced(method: Method) -> None:
    seen = {}

    class Counting:
        @contextmanager
        def stage(self, name: str, steps: int) -> Iterator[Tick]:
            done: list[int] = []
            yield done.append
            seen[name] = (steps, sum(done))

    clients = Simulation(data.rotated_digits(num_clients=8, rotations=2), mlp(64, 16, 10))
    method.fit(clients, monitor=Counting())
    assert all(announced == done > 0 for announced, done in seen.values()), seen
    assert len(seen) == (1 if isinstance(method, CFL) else 3)


@given(st.floats(0, 1000), st.floats(0.1, 10))
def test_limits_are_numbers_or_percentages(value: float, reference: float) -> None:
    assert limit(value, reference, "eps1") == value
    assert limit(f"{value}%", reference, "eps1") == pytest.approx(value / 100 * reference)


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
        {"personal_steps": -1},
    ],
)
def test_bad_parameters_are_named(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(option))):
        CFL(**option)
