"""Threshold rules of the paper: which clients are joined, which may move, which may merge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from srfca import SRFCA, InputError, Partition
from srfca.clustering import Choice
from srfca.distances import ModelSet
from srfca.methods import Run
from srfca.methods.sr_fca.algorithm import merge, trimmed_mean_gd
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.thresholds import Fixed, OneShot, Quantile
from tests.methods.helpers import ScriptedLosses
from tests.methods.sr_fca.federations import FIXED, LOCAL, regressions


@pytest.mark.parametrize("rule", [Fixed(1.0), Quantile("30%")])
def test_the_rules_of_the_paper_move_every_client_to_the_nearest(rule: Fixed | Quantile) -> None:
    run = Run(ScriptedLosses(regressions(num_clients=2), torch.tensor([[0.0, 9.0], [0.0, 9.0]])))
    clusters = Clusters(Partition([0, 1]), torch.zeros(2, 1))
    distances = np.array([[2.0, 1.0], [1.0, np.nan]])
    local_models = ModelSet.of_clients(run, torch.zeros(2, 1))
    assert rule.allow_moves(run, clusters, local_models, distances, FIXED).tolist() == [1, 0]
    assert list(rule.segments(7)) == [range(7)]
    assert rule.merge_threshold(FIXED.choice) == 1.0
    assert rule.merge_threshold(replace(FIXED.choice, metric="profile")) is None


def test_a_threshold_of_profiles_is_not_used_by_merge() -> None:
    """It is for other distances: here it is more than any two clusters are apart."""
    options = SRFCA(local=LOCAL, threshold=50.0, metric="profile")
    federation = regressions(num_clients=24, clusters=3)
    truth = federation.data.truth
    assert truth is not None
    run = Run(federation)
    trained = trimmed_mean_gd(run, options, truth, "1")
    found = OneShot(truth, Choice("profile", 50.0, None, "given"))
    merged, joined = merge(run, options, trained, found)
    assert merged.partition == truth
    assert joined == []
    without = regressions(validation=0)
    with pytest.raises(InputError, match="metric='profile' without a merge_threshold needs held"):
        options.fit(without)


def test_a_fixed_threshold_needs_no_held_out_data() -> None:
    federation = regressions(validation=0)
    result = SRFCA(local=LOCAL, threshold=2.5, distance="l2").fit(federation)
    assert result.partition == federation.data.truth
    assert result.loss_limits is None
    assert result.history[0].loss is None
