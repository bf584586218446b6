from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from srfca import SRFCA, Partition, Simulation, Work, data
from srfca.clustering import choose, lazy, threshold_graph
from srfca.clustering.graph import pivot, pivots
from srfca.clustering.lazy import lazy_clusters, sampled_moves
from srfca.distances import DISTANCES, Side
from srfca.errors import InputError
from srfca.federation.counted import Counted
from srfca.methods import store
from srfca.methods.rounds import local_training
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.test_threshold import blocks

Matrix = NDArray[np.float64]


class Asked:
    """A matrix of distances that counts what it is asked for."""

    def __init__(self, distances: Matrix) -> None:
        self.distances = distances
        self.count = 0

    def __call__(self, some: NDArray[np.int64], others: NDArray[np.int64]) -> Matrix:
        self.count += len(some) * len(others)
        return self.distances[np.ix_(some, others)]


@given(st.integers(1, 12), st.floats(0, 4), st.integers(0, 100))
def test_lazy_pivots_are_those_of_the_full_matrix(m: int, threshold: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = rng.uniform(0, 4, (m, m))
    order = rng.permutation(m)
    asked = Asked(d)
    found = pivots(lambda v, others: asked(np.array([v]), others)[0] <= threshold, order)
    assert found.tolist() == pivot(threshold_graph(d, threshold), order).tolist()
    assert asked.count <= m * (m - 1) / 2


def test_few_clusters_ask_for_few_distances() -> None:
    asked = Asked(blocks([i % 4 for i in range(400)], 1.0, 3.0, 0.1))
    order = np.random.default_rng(0).permutation(400)
    found = pivots(lambda v, others: asked(np.array([v]), others)[0] <= 2, order)
    assert Partition(found) == Partition([i % 4 for i in range(400)])
    assert asked.count < 4 * 400


def test_patience_ends_the_search_among_singles() -> None:
    asked = Asked(blocks([0] * 10 + list(range(1, 91)), 1.0, 3.0, 0.0))
    order = np.arange(100)
    found = pivots(lambda v, o: asked(np.array([v]), o)[0] <= 2, order, least=2, patience=3)
    assert Partition(found) == Partition([0] * 10 + list(range(1, 91)))
    assert asked.count == 99 + 89 + 88 + 87


@pytest.mark.parametrize("metric", ["distance", "profile"])
@pytest.mark.parametrize("labels", [[i % 4 for i in range(600)], [0] * 420 + [1] * 120 + [2] * 60])
def test_many_clients_are_clustered_from_few_distances(metric: str, labels: list[int]) -> None:
    asked = Asked(blocks(labels, 1.0, 3.0, 0.2))
    found, choice = lazy_clusters(asked, 600, "auto", min_size=2, metric=metric)
    assert choice.metric == metric
    assert found == Partition(labels)
    landmarks = lazy.LANDMARKS**2
    assert asked.count <= landmarks + 600 * (lazy.LANDMARKS if metric == "profile" else 4 + 16)


def test_profiles_of_landmarks_place_the_others() -> None:
    labels = [i % 2 for i in range(500)]
    asked = Asked(blocks(labels, 9.39, 9.63, 0.2))
    found, choice = lazy_clusters(asked, 500, "auto", min_size=2)
    assert choice.metric == "profile"
    assert found is not None
    assert found.misclustering(Partition(labels)) <= 0.01


def test_one_group_and_given_thresholds() -> None:
    found, choice = lazy_clusters(Asked(blocks([0] * 400, 10.0, 10.0, 1.0)), 400, "auto", 2)
    assert found is None
    assert choice.threshold is None
    labels = [i % 3 for i in range(400)]
    for threshold in (2.0, "40%"):
        found, _ = lazy_clusters(Asked(blocks(labels, 1.0, 3.0, 0.1)), 400, threshold, 2)
        assert found == Partition(labels)


@given(st.lists(st.integers(-1, 3), min_size=3, max_size=14), st.integers(0, 50))
def test_sampled_moves_are_the_exact_ones_where_the_sample_is_everybody(
    labels: list[int], seed: int
) -> None:
    partition = Partition(labels)
    m = len(labels)
    rng = np.random.default_rng(seed)
    edges = np.triu(rng.random((m, m)) < 0.5, 1)
    edges = edges | edges.T
    found = sampled_moves(lambda some, others: edges[np.ix_(some, others)], partition, rng)
    if partition.num_clusters == 0:
        assert found == partition
        return
    expected = partition.labels.copy()
    for vertex in range(m):
        share = {}
        for c, members in enumerate(partition):
            others = [j for j in members if j != vertex]
            share[c] = sum(bool(edges[vertex, j]) for j in others) / max(len(others), 1)
        own = int(partition.labels[vertex])
        if own < 0 or share[own] < 0.5:
            worth = {c: (2 * share[c] - 1) * partition.sizes[c] for c in share}
            best = max(worth, key=lambda c: worth[c])
            expected[vertex] = best if worth[best] > 0 else -1
    assert found == Partition(expected)


def many(clients: int = 60) -> Simulation:
    regressions = examples.regression([20] * clients, clusters=3)
    return Simulation(regressions, linear(4))


WORK = Work(steps=30, local_steps=3, batch_size=10, lr=0.05)


@pytest.mark.parametrize("distance", ["cross_loss", "l2", "one_sided_loss"])
def test_sr_fca_with_few_distances_finds_the_same_clusters(distance: str) -> None:
    federation = many()
    few = SRFCA(work=WORK, distance=distance, all_pairs=0).fit(federation)
    assert few.partition == federation.data.truth
    assert few.history[0].distances is None
    assert few.partition == SRFCA(work=WORK, distance=distance).fit(federation).partition


def test_other_graphs_need_all_pairs() -> None:
    with pytest.raises(InputError, match=r"graph='components' needs all pairs.*all_pairs"):
        SRFCA(graph="components", all_pairs=10, work=WORK).fit(many())


def test_some_clients_stand_for_a_cluster() -> None:
    federation = Counted(many())
    truth = federation.federation.data.truth  # type: ignore[attr-defined]
    models = federation.initial(0).expand(3, -1)
    some = Side.clusters(federation, models, truth, most=5)
    assert np.bincount(some.stand_for).tolist() == [5, 5, 5]
    assert (truth.labels[some.who] == some.stand_for).all()
    w = federation.fit(federation.initial(0).repeat(60, 1), range(60), WORK, Key(0, "x"))
    own = Side.clients(federation, w)
    before = federation.spent.evaluations
    sampled = DISTANCES["cross_loss"](own, some)
    assert federation.spent.evaluations - before == 60 * 15 + 3 * 60
    DISTANCES["cross_loss"](own, some)
    assert federation.spent.evaluations - before == 60 * 15 + 3 * 60, "what is known is kept"
    whole = DISTANCES["cross_loss"](own, Side.clusters(federation, models, truth))
    assert np.corrcoef(sampled.ravel(), whole.ravel())[0, 1] > 0.9


def test_the_metric_of_a_threshold() -> None:
    labels = [i % 2 for i in range(100)]
    d = blocks(labels, 9.39, 9.63, 0.2)
    found = choose(d, "auto", 2, metric="profile")
    assert found.metric == "profile"
    assert found.margin is not None
    assert found.threshold is not None
    assert found.margin[0] <= found.threshold <= found.margin[1]
    again = choose(d, found.threshold, 2, metric="profile")
    assert again.graph is not None
    assert found.graph is not None
    assert (again.graph != found.graph).nnz == 0
    assert choose(d, "auto", 2, metric="distance").metric == "distance"
    assert choose(blocks([0] * 50, 10, 10, 1.0), 0.5, 2, metric="profile").graph is None
    with pytest.raises(InputError, match="metric"):
        choose(d, 1.0, 2, metric="nothing")


def test_a_doubtful_choice_is_said_to_be_doubtful() -> None:
    sure = choose(blocks([i % 4 for i in range(40)], 1.0, 3.0, 0.2), "auto", 2)
    assert sure.warning is None
    for seed in range(3):
        d = blocks([i % 2 for i in range(40)], 1.0, 2.0, 0.3, seed)
        assert "no clear gap" in str(choose(d, "auto", 2, metric="distance").warning)


def test_rows_on_disk_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = many(20)
    w0 = federation.initial(0)
    inside = local_training(federation, w0, WORK, Key(0, "x"))
    monkeypatch.setattr(store, "SHARE", 0.0)
    monkeypatch.setattr(store, "BLOCK", 3 * 4 * len(w0))
    outside = local_training(federation, w0, WORK, Key(0, "x"))
    assert torch.equal(inside, outside)
    whole = SRFCA(work=WORK, all_pairs=0).fit(federation)
    assert whole.partition == federation.data.truth


def test_the_last_pivot_has_nobody_to_ask() -> None:
    federation = Simulation(data.rotated_digits(num_clients=8), mlp(64, 16, 10))
    work = Work(steps=60, batch_size=10, lr=0.5)
    for threshold in (1.5, 100.0):
        few = SRFCA(work=work, threshold=threshold, refine_steps=1, all_pairs=0).fit(federation)
        whole = SRFCA(work=work, threshold=threshold, refine_steps=1).fit(federation)
        assert few.partition == whole.partition
    with pytest.raises(InputError, match="ONE_SHOT found no cluster of at least 2 clients"):
        SRFCA(work=work, threshold=0.0, all_pairs=0).fit(federation)
