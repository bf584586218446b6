"""FeSEM: rounds against a plain loop, its objective, and what it finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import FedAvg, InputError, LocalTraining, Partition, Simulation
from srfca.aggregation import mean
from srfca.methods import FeSEM, Run
from srfca.methods.fesem import k_means, match_to_centers, nearest_centers
from srfca.models import mlp
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import (
    DIGITS,
    LOCAL,
    Array,
    arrays,
    descend,
    digits,
    losses,
    regressions,
    train,
)


@pytest.mark.parametrize("weighted", [True, False])
def test_rounds_are_those_of_a_plain_loop(weighted: bool) -> None:
    federation = regressions(validation=0)
    clients = arrays(federation.data)
    n = np.array([len(y) if weighted else 1.0 for _, y in clients])
    local = LocalTraining(steps=12, local_steps=3, batch_size=None, lr=0.05)

    def trained(starts: Array) -> Array:
        pairs = zip(clients, starts, strict=True)
        return np.array([descend(start, x, y, 3, 0.05) for (x, y), start in pairs])

    def means(rows: Array, labels: np.ndarray) -> Array:
        return np.array(
            [np.average(rows[labels == c], axis=0, weights=n[labels == c]) for c in range(3)]
        )

    truth = federation.data.truth
    assert truth is not None
    rows = trained(np.zeros((12, 5)))
    labels = truth.labels  # what k-means finds, as the result shows
    centers = means(rows, labels)
    for _ in range(3):
        rows = trained(centers[labels])
        labels = ((rows[:, None] - centers) ** 2).sum(-1).argmin(1)
        centers = means(rows, labels)
    result = FeSEM(k=3, weighted=weighted, local=local).fit(federation)
    assert result.partition == Partition(labels)
    np.testing.assert_allclose(result.models.numpy(), centers, rtol=1e-9, atol=1e-9)


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_neither_step_increases_the_objective(seed: int, k: int) -> None:
    """The paper's objective: the mean squared distance of the models to their centers."""
    rng = np.random.default_rng(seed)
    rows, centers = torch.tensor(rng.normal(size=(9, 4))), torch.tensor(rng.normal(size=(k, 4)))
    labels = rng.integers(0, k, 9)

    def objective() -> float:
        return float((rows - centers[torch.tensor(labels)]).square().sum(1).mean())

    before = objective()
    labels = nearest_centers(rows, centers)
    squares = [[float((row - center).square().sum()) for center in centers] for row in rows]
    assert labels.tolist() == [of_row.index(min(of_row)) for of_row in squares]
    between = objective()
    for c in set(labels.tolist()):
        centers[c] = mean(rows[torch.tensor(labels == c)])
    assert objective() <= between + 1e-12 <= before + 2e-12


def test_k_means_follows_the_key() -> None:
    rows = torch.tensor([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0], [9.0, 9.1], [0.0, 9.0]])
    assert Partition(k_means(rows, 3, Key(0, "x"))) == Partition([0, 0, 1, 1, 2])
    noise = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    first, same, other = (k_means(noise, 6, Key(seed, "x")) for seed in (0, 0, 1))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


def test_buffers_do_not_count() -> None:
    made = examples.permuted_digits_of_unequal_scale()
    federation = Simulation(made, examples.batch_normed_mlp)
    local = LocalTraining(steps=60, local_steps=20, batch_size=10, lr=0.1)
    assert FeSEM(k=2, local=local).fit(federation).partition == made.truth


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_rotations_and_beats_one_model(seed: int) -> None:
    federation = digits(seed)
    result = FeSEM(k=4, local=DIGITS).fit(federation, seed)
    truth = federation.data.truth
    assert truth is not None
    assert result.partition.misclustering(truth) <= 0.05
    one_model = FedAvg(local=DIGITS).fit(federation, seed)
    loss, baseline = (float(r.scores(federation).loss.mean()) for r in (result, one_model))
    assert loss < 0.8 * baseline


def test_a_client_in_the_wrong_cluster_stays_there() -> None:
    """Its weakness: a short round leaves a model near the center that it started from."""
    made = examples.regression([40] * 8, clusters=2)
    federation = Simulation(made, examples.doubled(mlp(4, 1)))
    truth = made.truth
    assert truth is not None
    starts, long = federation.initial_model(0).expand(4, -1), replace(LOCAL, local_steps=30)
    centers = torch.stack(
        [
            train(federation, starts, members.tolist(), long, Key(0, "x")).mean(0)
            for members in truth
        ]
    )
    wrong = train(federation, centers[[1]], [0], replace(LOCAL, local_steps=1), Key(0, "y"))
    assert int(losses(federation, centers, [0]).argmin()) == 0, "its loss shows the right center"
    assert nearest_centers(wrong, centers).tolist() == [1], "its model does not"


def test_participation_and_budget() -> None:
    federation = regressions()
    options = FeSEM(k=3, participation=0.5, local=LOCAL)
    assert options.trainings == pytest.approx(0.55)
    result = options.fit(federation)
    assert result.partition == federation.data.truth
    assert result.budget.local_steps == 12 * 3 + 9 * 6 * 3, "all clients in the first round"
    assert result.budget.evaluations == 0, "no client evaluates anything"
    assert len(result.history[-1].notes["changed"]) == 9


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_same_seed_same_result_as_the_reference(participation: float) -> None:
    made = examples.classification([20 + i % 3 for i in range(8)])
    model = examples.doubled(mlp(6, 5, 3))
    method = FeSEM(k=3, participation=participation, local=replace(LOCAL, steps=12))
    expected = method.fit(ReferenceFederation(made, model), seed=2)
    for block_size in (1, 3):
        result = method.fit(Simulation(made, model, block_size=block_size), seed=2)
        assert np.array_equal(result.labels, expected.labels)
        torch.testing.assert_close(result.models, expected.models, rtol=1e-9, atol=1e-9)
    other = method.fit(Simulation(made, model), seed=3)
    assert not torch.allclose(result.client_models, other.client_models)


def test_wrong_values_are_refused() -> None:
    with pytest.raises(InputError, match="k must be at least 1, not 0"):
        FeSEM(k=0)
    with pytest.raises(InputError, match="participation"):
        FeSEM(participation=0.0)
    with pytest.raises(InputError, match="k=13 is more than the 12 clients"):
        FeSEM(k=13, local=LOCAL).fit(regressions())


def test_from_random_centers_clients_stay_where_they_were_dealt() -> None:
    """Random models are far apart, and a client that trains from one stays near it."""
    federation = digits(num_clients=12, rotations=2)
    local = LocalTraining(steps=40, local_steps=5, batch_size=10, lr=0.5)
    method = FeSEM(k=2, start="random", local=local)
    result = method.fit(federation, seed=0)
    assert result.partition.num_clusters == 2
    assert sum(result.history[-1].notes["changed"]) == 0
    assert sorted(map(len, result.partition)) == [6, 6]
    assert method.fit(federation, seed=0).labels.tolist() == result.labels.tolist()
    assert method.fit(federation, seed=1).labels.tolist() != result.labels.tolist()
    with pytest.raises(InputError, match="start"):
        FeSEM(start="nearest")


def test_matched_models_are_those_of_another_order_of_neurons() -> None:
    """The second center is the first client's model with its hidden neurons turned around."""
    federation = digits(num_clients=4)
    run = Run(federation)
    rows = torch.stack([federation.initial_model(seed) for seed in (1, 2)])
    module = federation.module(rows[0])
    first, second = (layer for layer in module.modules() if isinstance(layer, torch.nn.Linear))
    first.weight.data, first.bias.data = first.weight.data.flip(0), first.bias.data.flip(0)
    second.weight.data = second.weight.data.flip(1)
    assert run.architecture is not None
    turned = run.architecture.layout.row(module)
    centers = torch.stack([rows[1] + 0.01, turned + 1e-3])
    nearest, aligned = match_to_centers(run, rows, np.array([2, 3]), centers)
    assert nearest.tolist() == [1, 0]
    torch.testing.assert_close(aligned[0], turned)
    torch.testing.assert_close(aligned[1], rows[1])
    assert nearest_centers(rows[:1], centers[1:]).tolist() == [0]
    assert float((rows[0] - centers[1]).norm()) > 10 * float((aligned[0] - centers[1]).norm())


def test_from_one_start_matching_changes_nothing() -> None:
    """Few steps keep the order of the neurons."""
    federation = digits(num_clients=8, rotations=2)
    plain = FeSEM(k=2, local=LOCAL).fit(federation)
    matched = FeSEM(k=2, distance="matched", local=LOCAL).fit(federation)
    assert matched.partition == plain.partition
    torch.testing.assert_close(matched.models, plain.models)
