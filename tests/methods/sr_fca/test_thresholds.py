"""Threshold rules: which clients are joined, which may move, and which clusters may merge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from srfca import SRFCA, InputError, LocalTraining, Partition
from srfca.clustering import Choice
from srfca.clustering.profile import Profile
from srfca.methods import Run
from srfca.methods.sr_fca.algorithm import merge, trimmed_mean_gd
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.thresholds import Auto, Fixed, Quantile
from tests.methods.helpers import ScriptedLosses
from tests.methods.sr_fca.federations import FIXED, LOCAL, on_a_line, regressions

ON_A_LINE = SRFCA(local=LocalTraining(steps=60, local_steps=5, batch_size=10, lr=0.02))


def test_auto_moves_no_client_to_a_worse_model() -> None:
    clusters = Clusters(Partition([0, 0, 1, -1]), torch.zeros(2, 1))
    losses = torch.tensor([[1.0, 1.0, 2.0, 9.0], [2.0, 0.5, 2.0, 1.0]]).T
    run = Run(ScriptedLosses(regressions(num_clients=4), losses))
    nearest = np.array([1, 1, 0, 0])
    moved = Auto("auto").allow_moves(run, clusters, nearest)
    assert moved.tolist() == [0, 1, 0, 0], "worse, better, equal, and unclustered before"


@pytest.mark.parametrize("rule", [Fixed(1.0), Quantile("30%")])
def test_the_rules_of_the_paper_move_every_client_to_the_nearest(rule: Fixed | Quantile) -> None:
    run = Run(ScriptedLosses(regressions(num_clients=2), torch.tensor([[0.0, 9.0], [0.0, 9.0]])))
    clusters = Clusters(Partition([0, 1]), torch.zeros(2, 1))
    assert rule.allow_moves(run, clusters, np.array([1, 0])).tolist() == [1, 0]
    assert rule.split(run, SRFCA(), Partition([0, 0]), FIXED, None) == (Partition([0, 0]), FIXED)
    assert rule.merge_threshold(FIXED) == 1.0
    assert rule.merge_threshold(replace(FIXED, metric="profile")) is None


def test_a_threshold_of_profiles_is_not_used_by_merge() -> None:
    """It is for other distances: here it is more than any two clusters are apart."""
    options = SRFCA(local=LOCAL, threshold=50.0, metric="profile")
    federation = regressions(num_clients=24, clusters=3)
    truth = federation.data.truth
    assert truth is not None
    run = Run(federation)
    trained = trimmed_mean_gd(run, options, truth, 1)
    choice = Choice("profile", 50.0, None, "given")
    merged, joined = merge(run, options, trained, choice)
    assert merged.partition == truth
    assert joined == []
    without = regressions(validation=0)
    with pytest.raises(InputError, match="metric='profile' without a merge_threshold needs held"):
        options.fit(without)


@pytest.mark.parametrize("seed", [0, 2])
def test_clients_that_vary_without_a_gap_are_cut_into_parts(seed: int) -> None:
    federation, places = on_a_line(0.5, seed)
    result = ON_A_LINE.fit(federation)
    assert result.partition.num_clusters == 2
    assert "no groups" in result.history[0].notes["reason"]
    assert "cut into 2 parts" in result.history[0].notes["reason"]
    assert "no gap" in result.history[0].notes["warning"]
    ends = np.sort([places[result.labels == c].mean() for c in range(2)])
    assert ends[0] < -0.3 < 0.3 < ends[1]
    single = replace(ON_A_LINE, refine_steps=1).fit(federation)
    assert single.partition.num_clusters == 1, (
        "one REFINE has no training for parts that MERGE joins"
    )
    losses = [float(outcome.scores(federation).loss.mean()) for outcome in (result, single)]
    assert losses[0] < 0.8 * losses[1]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_parts_of_clients_that_are_alike_are_joined_and_trained_together(seed: int) -> None:
    federation, _ = on_a_line(0.0, seed)
    result = ON_A_LINE.fit(federation)
    stages = {stage.name: stage.partition.num_clusters for stage in result.history}
    assert stages["ONE_SHOT"] > 1
    assert stages["MERGE 1"] == stages["TRIMMED_MEAN_GD 2"] == result.partition.num_clusters == 1
    together = Partition([0] * 40)
    expected = trimmed_mean_gd(Run(federation), ON_A_LINE, together, 2).models
    torch.testing.assert_close(result.models, expected)


def test_small_parts_are_unclustered_and_a_single_part_is_no_split() -> None:
    federation, _ = on_a_line(0.5, 0)
    run, rule = Run(federation), Auto("auto")
    one = Partition([0] * 40)
    coordinates = np.zeros((40, 1))
    coordinates[:3], coordinates[3:11] = 9.0, 2.0
    profile = Profile(np.zeros(40), 1.0, np.ones((40, 1)), coordinates, 0.1)
    choice = Choice("distance", None, None, "no groups", profile=profile)
    distances = np.zeros((40, 40))
    parts, new_choice = rule.split(run, ON_A_LINE, one, choice, distances)
    assert parts.labels.tolist() == [-1] * 3 + [0] * 8 + [1] * 29
    assert new_choice.metric == "profile"
    same = replace(profile, landmarks=np.zeros((40, 1)))
    unchanged = replace(choice, profile=same)
    assert rule.split(run, ON_A_LINE, one, unchanged, distances) == (one, unchanged)
    for other in (replace(choice, profile=None), replace(choice, threshold=1.0)):
        assert rule.split(run, ON_A_LINE, one, other, distances) == (one, other)


def test_a_fixed_threshold_needs_no_held_out_data() -> None:
    federation = regressions(validation=0)
    result = SRFCA(local=LOCAL, threshold=2.5, distance="l2").fit(federation)
    assert result.partition == federation.data.truth
    assert result.loss_limits is None
    assert result.history[0].loss is None
