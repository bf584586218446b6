"""SR-FCA with more clients than pairs can be compared."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import SRFCA, Simulation, Work, data
from srfca.distances import DISTANCES, Side
from srfca.errors import InputError
from srfca.federation.counted import Counted
from srfca.methods import store
from srfca.methods.rounds import local_training
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples

WORK = Work(steps=30, local_steps=3, batch_size=10, lr=0.05)


def many_clients(count: int = 60) -> Simulation:
    regressions = examples.regression([20] * count, clusters=3)
    return Simulation(regressions, linear(4))


@pytest.mark.parametrize("distance", ["cross_loss", "l2", "one_sided_loss"])
def test_few_distances_find_the_same_clusters(distance: str) -> None:
    federation = many_clients()
    few = SRFCA(work=WORK, distance=distance, all_pairs=0).fit(federation)
    assert few.partition == federation.data.truth
    assert few.history[0].distances is None
    assert few.partition == SRFCA(work=WORK, distance=distance).fit(federation).partition


def test_other_graph_clusterings_need_all_pairs() -> None:
    with pytest.raises(InputError, match=r"graph='components' needs all pairs.*all_pairs"):
        SRFCA(graph="components", all_pairs=10, work=WORK).fit(many_clients())


def test_some_clients_represent_a_cluster() -> None:
    federation = Counted(many_clients())
    truth = federation.federation.data.truth  # type: ignore[attr-defined]
    models = federation.initial(0).expand(3, -1)
    clusters = Side.clusters(federation, models, truth, most=5)
    assert np.bincount(clusters.stand_for).tolist() == [5, 5, 5]
    assert (truth.labels[clusters.who] == clusters.stand_for).all()
    w = federation.fit(federation.initial(0).repeat(60, 1), range(60), WORK, Key(0, "x"))
    clients = Side.clients(federation, w)
    before = federation.spent.evaluations
    sampled = DISTANCES["cross_loss"](clients, clusters)
    assert federation.spent.evaluations - before == 60 * 15 + 3 * 60
    DISTANCES["cross_loss"](clients, clusters)
    assert federation.spent.evaluations - before == 60 * 15 + 3 * 60, "losses are cached"
    exact = DISTANCES["cross_loss"](clients, Side.clusters(federation, models, truth))
    assert np.corrcoef(sampled.ravel(), exact.ravel())[0, 1] > 0.9


def test_rows_on_disk_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = many_clients(20)
    w0 = federation.initial(0)
    in_memory = local_training(federation, w0, WORK, Key(0, "x"))
    monkeypatch.setattr(store, "SHARE", 0.0)
    monkeypatch.setattr(store, "BLOCK", 3 * 4 * len(w0))
    on_disk = local_training(federation, w0, WORK, Key(0, "x"))
    assert torch.equal(in_memory, on_disk)
    result = SRFCA(work=WORK, all_pairs=0).fit(federation)
    assert result.partition == federation.data.truth


def test_the_last_pivot_has_no_vertices_to_compare_with() -> None:
    federation = Simulation(data.rotated_digits(clients=8), mlp(64, 16, 10))
    work = Work(steps=60, batch_size=10, lr=0.5)
    for threshold in (1.5, 100.0):
        few = SRFCA(work=work, threshold=threshold, refine_steps=1, all_pairs=0).fit(federation)
        full = SRFCA(work=work, threshold=threshold, refine_steps=1).fit(federation)
        assert few.partition == full.partition
    with pytest.raises(InputError, match="ONE_SHOT found no cluster of at least 2 clients"):
        SRFCA(work=work, threshold=0.0, all_pairs=0).fit(federation)
