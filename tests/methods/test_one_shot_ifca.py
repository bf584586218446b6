"""ONE_SHOT + IFCA: IFCA from the clusters of ONE_SHOT, against a plain loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from srfca import InputError, LocalTraining, Partition, Simulation
from srfca.methods import OneShotIFCA
from srfca.models import linear
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import (
    DIGITS,
    LOCAL,
    arrays,
    descend,
    digits,
    ifca_by_hand,
    regressions,
)


@pytest.mark.parametrize("min_size", [2, 5])
def test_it_is_ifca_from_the_mean_of_each_clusters_models(min_size: int) -> None:
    federation = regressions(num_clients=14, validation=0)  # clusters of 5, 5 and 4
    clients = arrays(federation.data)
    local = LocalTraining(steps=20, local_steps=2, batch_size=None, lr=0.05)
    options = OneShotIFCA(threshold=2.5, distance="l2", min_size=min_size, local=local)
    result = options.fit(federation)

    rows = [descend(np.zeros(5), x, y, 20, 0.05) for x, y in clients]
    joined = np.linalg.norm(np.array(rows)[:, None] - np.array(rows), axis=-1) <= 2.5
    truth = federation.data.truth
    assert truth is not None
    assert np.array_equal(joined, truth.labels[:, None] == truth.labels), "the graph is clear"
    groups = [members for members in truth if len(members) >= min_size]
    starts = np.array(
        [
            np.average([rows[i] for i in g], axis=0, weights=[len(clients[i][1]) for i in g])
            for g in groups
        ]
    )
    models, labels = ifca_by_hand(clients, starts, 10, 2, 0.05)
    assert result.history[0].partition.num_clusters == len(groups)
    assert result.partition == Partition(labels)
    used = list(dict.fromkeys(labels))
    np.testing.assert_allclose(result.models.numpy(), models[used], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_it_finds_rotations_without_their_number(seed: int) -> None:
    federation = digits(seed)
    result = OneShotIFCA(local=DIGITS).fit(federation, seed)
    assert result.partition == federation.data.truth
    assert [stage.name for stage in result.history] == ["ONE_SHOT", "IFCA"]
    assert "k" not in result.parameters


def test_a_superfluous_cluster_may_become_empty() -> None:
    federation = regressions(num_clients=24, clusters=2)
    result = OneShotIFCA(threshold=0.6, distance="l2", local=LOCAL).fit(federation)
    assert result.history[0].partition.num_clusters > 2, "ONE_SHOT splits a group"
    assert result.history[1].notes["empty"], "and IFCA leaves a part of it without clients"
    assert result.partition == federation.data.truth


def test_it_costs_two_trainings() -> None:
    options = OneShotIFCA(local=LOCAL, threshold=2.5, distance="l2", participation=0.5)
    assert options.trainings == 1.5, "half of the clients in a round of IFCA"
    result = options.fit(regressions())
    assert result.history[0].budget.local_steps == 12 * 30
    assert result.history[1].budget.local_steps == 6 * 30


@pytest.mark.parametrize(
    "options", [{}, {"participation": 0.5, "weighted": False}, {"exchange": "gradients"}]
)
def test_same_seed_same_result_as_the_reference(options: dict[str, Any]) -> None:
    made = examples.regression([20 + i % 3 for i in range(12)], clusters=3)
    model = examples.doubled(linear(4))
    method = OneShotIFCA(local=replace(LOCAL, steps=12), **options)
    expected = method.fit(ReferenceFederation(made, model), seed=2)
    for block_size in (1, 5):
        result = method.fit(Simulation(made, model, block_size=block_size), seed=2)
        assert np.array_equal(result.labels, expected.labels)
        torch.testing.assert_close(result.models, expected.models, rtol=1e-9, atol=1e-9)
    other = method.fit(Simulation(made, model), seed=3)
    assert not torch.allclose(result.client_models, other.client_models)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", -1.0), ("min_size", 0), ("distance", "l_2x"), ("graph", "clique"),
        ("participation", 0.0), ("exchange", "all"), ("server_lr", -1.0),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_at_once(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        OneShotIFCA(**{name: value})


def test_too_few_clients_or_data_are_refused() -> None:
    with pytest.raises(InputError, match="min_size=13 is more than the 12 clients"):
        OneShotIFCA(local=LOCAL, min_size=13).fit(regressions())
    with pytest.raises(InputError, match="held-out data"):
        OneShotIFCA(local=LOCAL).fit(regressions(validation=0))
