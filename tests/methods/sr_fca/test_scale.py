"""SR-FCA with more clients than pairs can be compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from srfca import SRFCA, InputError, LocalTraining, Simulation, data
from srfca.distances import DISTANCES, ModelSet
from srfca.federation import Counting
from srfca.methods import Run
from srfca.methods._common import row_store
from srfca.methods._common.rounds import train_locally
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.methods.helpers import train
from tests.methods.sr_fca.federations import LOCAL


def many_clients(count: int = 60) -> Simulation:
    return Simulation(examples.regression([20] * count, clusters=3), linear(4))


@pytest.mark.parametrize("distance", ["cross_loss", "l2", "one_sided_loss"])
def test_few_distances_give_the_same_clusters(distance: str) -> None:
    federation = many_clients()
    few = SRFCA(local=LOCAL, distance=distance, all_pairs=0).fit(federation)
    assert few.partition == federation.data.truth
    assert few.history[0].distances is None
    assert few.partition == SRFCA(local=LOCAL, distance=distance).fit(federation).partition


def test_a_few_clients_show_groups_under_label_skew(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("methods.sr_fca.auto", "clustering.scalable"):
        monkeypatch.setattr(f"srfca.{module}.NUM_LANDMARKS", 12)
    skewed, *_ = data.drifting_image_phases(
        drift="none", shift="rotation", groups=2, new_groups=2, num_clients=20, alpha=0.3
    )
    federation = Simulation(skewed, mlp(64, 16, 10), validation=0.25)
    local = LocalTraining(steps=40, local_steps=5, batch_size=20, lr=0.5)
    method = SRFCA(local=local, trial_steps=0, all_pairs=0)
    result = method.fit(federation)
    assert result.partition == skewed.truth
    found = result.history[0]
    assert found.distances is None
    assert len(found.partition.unclustered) == 8
    assert str(found.notes["reason"]).endswith("by balanced_cross_loss of 12 clients")
    without = replace(method, ask_class_counts=False).fit(federation)
    assert without.history[0].notes["distance"] == "cross_loss"
    assert without.partition != skewed.truth


def test_other_graph_clusterings_need_all_pairs() -> None:
    with pytest.raises(InputError, match=r"graph='components' needs all pairs.*all_pairs"):
        SRFCA(graph="components", all_pairs=10, local=LOCAL).fit(many_clients())


def test_a_few_clients_represent_a_cluster() -> None:
    simulation = many_clients()
    truth, ids = simulation.data.truth, tuple(simulation.client_ids)
    assert truth is not None
    federation = Counting(simulation)
    models = federation.initial_model(0).expand(3, -1)
    clusters = ModelSet.of_clusters(federation, ids, models, truth, limit=5)
    assert np.bincount(clusters.represents).tolist() == [5, 5, 5]
    assert (truth.labels[clusters.clients] == clusters.represents).all()
    starts = federation.initial_model(0).repeat(60, 1)
    clients = ModelSet.of_clients(federation, train(federation, starts, range(60), LOCAL, KEY))
    before = federation.spent.evaluations
    sampled = DISTANCES["cross_loss"](clients, clusters)
    assert federation.spent.evaluations - before == 60 * 15 + 3 * 60
    DISTANCES["cross_loss"](clients, clusters)
    assert federation.spent.evaluations - before == 60 * 15 + 3 * 60, "losses are cached"
    exact = DISTANCES["cross_loss"](clients, ModelSet.of_clusters(federation, ids, models, truth))
    assert np.corrcoef(sampled.ravel(), exact.ravel())[0, 1] > 0.9


KEY = Key(0, "x")


def test_local_models_on_disk_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = many_clients(20)
    in_memory = train_locally(Run(federation), LOCAL, KEY)
    monkeypatch.setattr(row_store, "MEMORY_FRACTION", 0.0)
    monkeypatch.setattr(row_store, "BLOCK_BYTES", 3 * 4 * len(federation.initial_model(0)))
    on_disk = train_locally(Run(federation), LOCAL, KEY)
    assert torch.equal(in_memory.rows, on_disk.rows)
    assert on_disk.replied.all()
    result = SRFCA(local=LOCAL, all_pairs=0).fit(federation)
    assert result.partition == federation.data.truth


def test_the_last_pivot_has_nothing_to_compare_with() -> None:
    federation = Simulation(data.rotated_digits(num_clients=8), mlp(64, 16, 10))
    local = LocalTraining(steps=60, batch_size=10, lr=0.5)
    for threshold in (1.5, 100.0):
        few = SRFCA(local=local, threshold=threshold, refine_steps=1, all_pairs=0).fit(federation)
        full = SRFCA(local=local, threshold=threshold, refine_steps=1).fit(federation)
        assert few.partition == full.partition
    with pytest.raises(InputError, match="ONE_SHOT found no cluster of at least 2 clients"):
        SRFCA(local=local, threshold=0.0, all_pairs=0).fit(federation)
