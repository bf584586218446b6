"""Many small graphs at once against each graph alone."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srfca import clustering
from srfca.clustering import candidates, dense_graphs
from srfca.clustering.dense_graphs import (
    correlation_clustering_of_all,
    disagreements_of_all,
    improve_all,
    pivot_all,
)
from srfca.clustering.graph import (
    correlation_clustering,
    disagreements,
    pivot_graph,
    threshold_graph,
)
from srfca.clustering.partition import Partition


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 14),
    number=st.integers(0, 5),
    directed=st.booleans(),
    restarts=st.integers(1, 3),
)
def test_every_graph_is_clustered_as_if_it_were_alone(
    seed: int, count: int, number: int, directed: bool, restarts: int
) -> None:
    rng = np.random.default_rng(seed)
    distances = rng.random((count, count))
    distances = distances if directed else (distances + distances.T) / 2
    thresholds = rng.random(number)
    graphs = distances <= thresholds[:, None, None]
    graphs[:, np.arange(count), np.arange(count)] = False
    order = rng.permutation(count)
    labels = correlation_clustering_of_all(graphs, seed, restarts)
    wrong, pivots = disagreements_of_all(graphs, labels), pivot_all(graphs, order)
    assert labels.shape == (number, count)
    for place, threshold in enumerate(thresholds):
        alone = threshold_graph(distances, threshold)
        expected = correlation_clustering(alone, seed, restarts)
        assert labels[place].tolist() == expected.tolist()
        assert wrong[place] == disagreements(alone, expected)
        assert Partition(pivots[place]) == Partition(pivot_graph(alone, order))


@given(seed=st.integers(0, 2**32), count=st.integers(1, 20), number=st.integers(0, 5))
def test_compiled_moves_are_the_same(seed: int, count: int, number: int) -> None:
    numba_graphs = pytest.importorskip("srfca.clustering.numba_graphs", exc_type=ImportError)
    rng = np.random.default_rng(seed)
    graphs = np.triu(rng.random((number, count, count)) < rng.random((number, 1, 1)), 1)
    weights = np.asarray(graphs + graphs.transpose(0, 2, 1), np.float64) * rng.integers(1, 3)
    labels = rng.integers(0, count, (number, count))
    before = labels.copy()
    compiled = numba_graphs.improve_all(weights, labels)
    assert compiled.tolist() == improve_all(weights, labels).tolist()
    assert np.array_equal(labels, before)


@pytest.mark.parametrize("installed", [False, True])
def test_numba_is_not_needed(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    graphs = np.triu(np.random.default_rng(0).random((4, 9, 9)) < 0.4, 1)
    graphs |= graphs.transpose(0, 2, 1)
    expected = correlation_clustering_of_all(graphs, 0, 2)
    dense_graphs._fastest_improve_all.cache_clear()
    monkeypatch.delitem(sys.modules, "srfca.clustering.numba_graphs", raising=False)
    monkeypatch.delattr(clustering, "numba_graphs", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(dense_graphs, "is_installed", lambda _: installed)
    with pytest.warns(match="clustering without numba") if installed else nullcontext():
        labels = correlation_clustering_of_all(graphs, 0, 2)
    assert labels.tolist() == expected.tolist()
    dense_graphs._fastest_improve_all.cache_clear()


def test_large_graphs_give_the_same_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    at = np.concatenate([rng.normal(size=(12, 3)), 3 + rng.normal(size=(9, 3))])
    distances = np.linalg.norm(at[:, None] - at, axis=2)
    together = candidates.evaluate_candidates(distances, None, 2, 5, "distance")
    monkeypatch.setattr(candidates, "MAX_VERTICES", 20)
    alone = candidates.evaluate_candidates(distances, None, 2, 5, "distance")
    assert [item.candidate for item in together] == [item.candidate for item in alone]
    assert [item.partition for item in together] == [item.partition for item in alone]
    assert (together[0].graph != alone[0].graph).nnz == 0
    assert len(together) > 20
