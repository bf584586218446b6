"""What the history keeps of the distances of RECLUSTER and MERGE."""

from __future__ import annotations

import numpy as np

from srfca import SRFCA, Simulation
from srfca.methods.sr_fca.step_distances import BINS, MOST_PAIRS, between_clusters, to_clusters
from tests.methods.helpers import DIGITS, digits


def test_distances_are_kept_by_step() -> None:
    federation: Simulation = digits(num_clients=12, rotations=2)
    method = SRFCA(local=DIGITS, threshold=1.0, distance="cross_loss", refine_steps=1)
    history = {stage.name: stage.notes for stage in method.fit(federation).history}
    near = history["RECLUSTER 1"]["to_clusters"]
    assert sum(near["own"]) == sum(near["other"]) == 12
    middles = (np.arange(BINS) + 0.5) * near["end"] / BINS
    assert np.average(middles, weights=near["own"]) < np.average(middles, weights=near["other"])
    between = history["MERGE 1"]["between_clusters"]
    assert between["threshold"] == 1.0
    assert len(between["distances"]) == 1
    assert "to_clusters" not in history["MERGE 1"], "notes are those of one stage"


def test_one_cluster_and_unknown_distances_leave_nothing() -> None:
    assert to_clusters(np.ones((3, 1)), np.zeros(3, dtype=np.int64)) == {}
    assert to_clusters(np.full((2, 2), np.nan), np.array([0, 1])) == {}
    assert to_clusters(np.ones((2, 2)), np.array([-1, -1])) == {}


def test_few_numbers_are_kept_of_many_clusters() -> None:
    distances = np.random.default_rng(0).random((100, 100))
    kept = between_clusters(distances, 0.5)["distances"]
    assert len(kept) == MOST_PAIRS
    assert kept == sorted(kept)
