from __future__ import annotations

import numpy as np
import pytest

from srfca.clustering import Partition, choose_threshold, cluster
from srfca.errors import InputError
from tests.clustering.matrices import block_distances

EVEN = [i % 4 for i in range(40)]


@pytest.mark.parametrize("seed", range(5))
def test_profiles_show_groups_where_single_distances_overlap(seed: int) -> None:
    labels = [i % 2 for i in range(100)]
    client = 0.3 * np.random.default_rng(100 + seed).standard_normal(100)
    d = block_distances(labels, 9.39, 9.63, 0.2, seed) + client[:, None] + client
    pairs = np.triu_indices(100, 1)
    same = (np.array(labels)[:, None] == np.array(labels))[pairs]
    assert np.quantile(d[pairs][same], 0.9) > np.quantile(d[pairs][~same], 0.5), "they overlap"
    choice = choose_threshold(d, "auto", min_size=2)
    assert choice.metric == "profile"
    assert cluster(d, min_size=2).misclustering(Partition(labels)) == 0


@pytest.mark.parametrize("m", [2, 3, 5, 10, 30, 100])
@pytest.mark.parametrize("seed", range(4))
def test_noise_is_one_cluster(m: int, seed: int) -> None:
    d = block_distances([0] * m, 10.0, 10.0, 1.0, seed)
    choice = choose_threshold(d, "auto", min_size=2)
    assert choice.graph is None
    assert "no groups" in choice.reason
    assert cluster(d) == Partition([0] * m)


def test_points_of_one_cloud_are_one_cluster() -> None:
    for seed in range(5):
        points = np.random.default_rng(seed).standard_normal((60, 50))
        d = np.linalg.norm(points[:, None] - points, axis=2)
        assert choose_threshold(d, "auto", 2).graph is None


def test_the_smallest_quantile_is_the_smallest_distance() -> None:
    d = block_distances([0, 0, 0, 1, 1, 1], 1.0, 3.0, 0.01)
    choice = choose_threshold(d, "0%", 1)
    assert choice.threshold == pytest.approx(d[d > 0].min())
    assert choice.reason == "the 0% quantile of the distances"


def test_candidates_are_reported() -> None:
    choice = choose_threshold(block_distances(EVEN, 1.0, 3.0, 0.2), "auto", 2)
    assert choice.threshold is not None
    assert {c.metric for c in choice.candidates} == {"distance", "profile"}
    assert any(c.threshold == choice.threshold and c.num_clusters == 4 for c in choice.candidates)
    assert all(c.disagreement <= c.smoothed_disagreement for c in choice.candidates)
    assert choice.reason.startswith(f"at {choice.metric} ")


def test_a_metric_restricts_the_choice() -> None:
    labels = [i % 2 for i in range(100)]
    d = block_distances(labels, 9.39, 9.63, 0.2)
    choice = choose_threshold(d, "auto", 2, metric="profile")
    assert choice.metric == "profile"
    assert choice.margin is not None
    assert choice.threshold is not None
    assert choice.margin[0] <= choice.threshold <= choice.margin[1]
    again = choose_threshold(d, choice.threshold, 2, metric="profile")
    assert again.graph is not None
    assert choice.graph is not None
    assert (again.graph != choice.graph).nnz == 0
    assert choose_threshold(d, "auto", 2, metric="distance").metric == "distance"
    noise = block_distances([0] * 50, 10, 10, 1.0)
    assert choose_threshold(noise, 0.5, 2, metric="profile").graph is None
    with pytest.raises(InputError, match="metric"):
        choose_threshold(d, 1.0, 2, metric="nothing")  # type: ignore[arg-type]


def test_a_doubtful_choice_has_a_warning() -> None:
    clear = choose_threshold(block_distances([i % 4 for i in range(40)], 1.0, 3.0, 0.2), "auto", 2)
    assert clear.warning is None
    for seed in range(3):
        d = block_distances([i % 2 for i in range(40)], 1.0, 2.0, 0.3, seed)
        choice = choose_threshold(d, "auto", 2, metric="distance")
        assert "no clear gap" in str(choice.warning)
