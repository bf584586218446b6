from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from srfca import Partition, Simulation, Work
from srfca.errors import InputError
from srfca.methods import OneShotIFCA
from srfca.models import linear
from tests import examples
from tests.loop_federation import LoopFederation
from tests.test_ifca import DIGITS, digits, ifca_by_hand, regressions, samples

WORK = Work(steps=30, local_steps=3, batch_size=10, lr=0.05)


@pytest.mark.parametrize("min_size", [2, 5])
def test_it_is_ifca_from_the_mean_of_each_clusters_models(min_size: int) -> None:
    federation = regressions(clients=14, validation=0)  # clusters of 5, 5 and 4
    clients = samples(federation.data)
    work = Work(steps=20, local_steps=2, batch_size=None, lr=0.05)
    options = {"threshold": 2.5, "distance": "l2", "min_size": min_size}
    result = OneShotIFCA(work=work, **options).fit(federation)  # type: ignore[arg-type]

    rows = []
    for x, y in clients:
        w = np.zeros(5)
        for _ in range(20):
            w -= 0.05 * 2 * x.T @ (x @ w - y) / len(y)
        rows.append(w)
    near = np.linalg.norm(np.array(rows)[:, None] - np.array(rows), axis=-1) <= 2.5
    truth = federation.data.truth
    assert truth is not None
    assert np.array_equal(near, truth.labels[:, None] == truth.labels), "the graph is plain"
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
def test_it_finds_rotations_without_being_told_how_many(seed: int) -> None:
    federation = digits(seed)
    result = OneShotIFCA(work=DIGITS).fit(federation, seed)
    assert result.partition == federation.data.truth
    assert [stage.name for stage in result.history] == ["ONE_SHOT", "IFCA"]
    assert "k" not in result.parameters


def test_a_cluster_too_many_may_starve() -> None:
    federation = regressions(clients=24, clusters=2)
    result = OneShotIFCA(threshold=0.6, distance="l2", work=WORK).fit(federation)
    assert result.history[0].partition.num_clusters > 2, "ONE_SHOT splits a group"
    assert result.history[1].notes["empty"], "and IFCA leaves a part of it without clients"
    assert result.partition == federation.data.truth


def test_it_costs_two_trainings() -> None:
    options = OneShotIFCA(work=WORK, threshold=2.5, distance="l2", participation=0.5)
    assert options.trainings == 1.5, "half of them in a round of IFCA"
    result = options.fit(regressions())
    assert result.history[0].budget.local_steps == 12 * 30
    assert result.history[1].budget.local_steps == 6 * 30


@pytest.mark.parametrize(
    "options", [{}, {"participation": 0.5, "weighted": False}, {"average": "gradients"}]
)
def test_the_same_seed_gives_the_same_answer_on_any_backend(options: dict[str, Any]) -> None:
    made = examples.regression([20 + i % 3 for i in range(12)], clusters=3)
    model = examples.doubled(linear(4))
    method = OneShotIFCA(work=replace(WORK, steps=12), **options)
    expected = method.fit(LoopFederation(made, model), seed=2)
    for block_size in (1, 5):
        found = method.fit(Simulation(made, model, block_size=block_size), seed=2)
        assert np.array_equal(found.labels, expected.labels)
        torch.testing.assert_close(found.models, expected.models, rtol=1e-9, atol=1e-9)
    other = method.fit(Simulation(made, model), seed=3)
    assert not torch.allclose(found.client_models, other.client_models)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", -1.0), ("min_size", 0), ("distance", "l_2x"), ("graph", "clique"),
        ("participation", 0.0), ("average", "all"), ("server_lr", -1.0),
    ],
)  # fmt: skip
def test_parameters_are_checked_when_they_are_given(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        OneShotIFCA(**{name: value})  # type: ignore[arg-type]


def test_too_few_clients_or_data() -> None:
    with pytest.raises(InputError, match="min_size=13 is more than the 12 clients"):
        OneShotIFCA(work=WORK, min_size=13).fit(regressions())
    with pytest.raises(InputError, match="held-out data"):
        OneShotIFCA(work=WORK).fit(regressions(validation=0))
