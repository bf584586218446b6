"""Decisions by held-out data: losses, scores, and which clusters are interchangeable."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import InputError, Partition, Simulation
from srfca.methods import Run
from srfca.methods._common.held_out import held_out_losses, held_out_scores, interchangeable
from srfca.models import linear, mlp
from tests import examples
from tests.methods.helpers import DropByNumber, ScriptedLosses, losses, scores


def test_held_out_losses_are_of_validation_data_and_nan_where_missing() -> None:
    simulation = Simulation(examples.regression([20] * 4), linear(4))
    models = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    computed = held_out_losses(Run(DropByNumber(simulation, {0: [2]})), models)
    expected = losses(simulation, models, split="validation").T.double().numpy()
    assert computed.shape == (2, 4)
    assert np.isnan(computed[:, 2]).all()
    np.testing.assert_array_equal(computed[:, [0, 1, 3]], expected[:, [0, 1, 3]])


def test_negative_losses_are_refused() -> None:
    simulation = Simulation(examples.regression([20] * 2), linear(4), negative_losses=True)
    run = Run(ScriptedLosses(simulation, torch.tensor([[1.0], [-0.5]])))
    with pytest.raises(InputError, match=r"losses must not be negative, but one is -0\.5"):
        held_out_losses(run, torch.zeros(1, 5))


def test_held_out_scores_are_nan_without_a_model_or_a_reply() -> None:
    simulation = Simulation(examples.classification([20] * 4), mlp(6, 5, 3))
    models = torch.randn(2, 53, generator=torch.Generator().manual_seed(0))
    run = Run(DropByNumber(simulation, {0: [2]}))
    computed = held_out_scores(run, models, np.array([1, -1, 0, 0]))
    expected = scores(simulation, models[[1, 0, 0, 0]], "validation")
    assert computed.accuracy is not None
    assert expected.accuracy is not None
    assert computed.loss[[0, 3]].tolist() == expected.loss[[0, 3]].tolist()
    assert computed.accuracy[[0, 3]].tolist() == expected.accuracy[[0, 3]].tolist()
    assert bool(computed.loss[[1, 2]].isnan().all())


def test_interchangeable_tests_the_increase_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    partition = Partition([0] * 20 + [1] * 20)
    level = np.exp(rng.standard_normal((1, 40)))
    alike = level * np.exp(0.1 * rng.standard_normal((2, 40)))
    assert interchangeable(alike, partition).all()
    better = alike * np.array([[0.5], [1.0]])
    assert interchangeable(better, partition).all(), "one model is better for all: still one group"
    apart = alike.copy()
    apart[0, 20:] *= 1.2
    apart[1, :20] *= 1.2
    assert not interchangeable(apart, partition)[0, 1]
    wild = np.exp(4 * rng.standard_normal((2, 6)))
    wild[0, 3:] *= 1e3
    wild[1, :3] *= 1e3
    assert not interchangeable(wild, Partition([0] * 3 + [1] * 3))[0, 1], "the test alone is blind"
    two = interchangeable(np.array([[1.0, 2.0], [2.0, 1.0]]), Partition([0, 1]))
    assert not two[0, 1], "two clients, each better off with its own model"


def test_losses_near_zero_do_not_decide_what_is_interchangeable() -> None:
    """A client whose few samples are all easy has a loss of 1e-6 or 1e-9: no matter which."""
    rng = np.random.default_rng(1)
    partition = Partition([0] * 20 + [1] * 20)
    values = np.exp(0.3 * rng.standard_normal((1, 40))) * np.exp(
        0.05 * rng.standard_normal((2, 40))
    )
    values[:, ::4] *= 1e-6 * np.exp(3 * rng.standard_normal((2, 10)))
    assert interchangeable(values, partition).all()
    values[0, 20:] *= 1.2
    values[1, :20] *= 1.2
    assert not interchangeable(values, partition)[0, 1]


@given(st.integers(0, 10**6))
def test_clients_that_did_not_reply_do_not_count(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 20)
    complete = rng.random((3, 20)) + (labels != np.arange(3)[:, None])
    partition = Partition(labels)
    k = partition.num_clusters
    order = [int(labels[members[0]]) for members in partition]
    missing = rng.random(20) < 0.2
    values = complete[order].copy()
    values[:, missing] = np.nan
    remaining = Partition(partition.labels[~missing])
    computed = interchangeable(values, partition)
    if remaining.num_clusters == k:
        same = [int(partition.labels[~missing][members[0]]) for members in remaining]
        expected = interchangeable(values[:, ~missing][same], remaining)
        assert np.array_equal(computed[np.ix_(same, same)], expected)
    for c in range(k):
        if not (~missing & (partition.labels == c)).any():
            assert computed[c].sum() == 1
