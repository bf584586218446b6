"""FL+HC: rounds by hand, distances of updates, and the groups that are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from srfca import ClientData, FedAvg, InputError, LocalTraining, Partition, Simulation, data
from srfca.methods import Hierarchical, Run
from srfca.methods.hierarchical import UpdateMetric, update_distances
from srfca.models import linear, mlp
from tests import examples
from tests.methods.helpers import Array, digits

DIGITS = LocalTraining(steps=60, batch_size=10, lr=0.5)


def test_three_rounds_by_hand() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 20))
    y = np.array([3.0, -3.0, 3.5, -2.0])[:, None] * x
    made = ClientData.from_arrays(
        [(torch.tensor(a)[:, None], torch.tensor(b)) for a, b in zip(x, y, strict=True)]
    )
    rate = 0.1
    local = LocalTraining(steps=3, local_steps=1, batch_size=None, lr=rate)
    method = Hierarchical(global_rounds=1, threshold=0.4, metric="l1", weighted=False, local=local)
    model = examples.doubled(linear(1, bias=False))
    result = method.fit(Simulation(made, model, validation=0))

    def stepped(w: Array) -> Array:
        return np.asarray(w - rate * (2 * (w[:, None] * x - y) * x).mean(1))

    together = stepped(np.zeros(4)).mean()
    rows = stepped(np.full(4, together))
    means = np.array([rows[[0, 2]].mean(), rows[[1, 3]].mean()])
    last = stepped(means[[0, 1, 0, 1]])
    assert result.labels.tolist() == [0, 1, 0, 1]
    assert result.models.flatten().tolist() == pytest.approx(
        [last[[0, 2]].mean(), last[[1, 3]].mean()], rel=1e-12
    )
    stage = next(stage for stage in result.history if stage.name == "CLUSTER")
    assert stage.distances is not None
    np.testing.assert_allclose(stage.distances, np.abs(rows[:, None] - rows), atol=1e-12)


def test_one_cluster_is_fedavg() -> None:
    federation = Simulation(examples.classification([20] * 6), mlp(6, 5, 3))
    local = LocalTraining(steps=13, local_steps=3, batch_size=None, lr=0.1, schedule="linear")
    result = Hierarchical(k=1, global_rounds=2, local=local).fit(federation)
    fedavg = FedAvg(local=local).fit(federation)
    assert result.budget.local_steps == fedavg.budget.local_steps == 6 * 13
    torch.testing.assert_close(result.models, fedavg.models)


@pytest.mark.parametrize("metric", ["l2", "l1", "cosine"])
def test_distances_of_updates(metric: UpdateMetric) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 3))
    gaps = rows[:, None] - rows
    norms = np.linalg.norm(rows, axis=1)
    expected = {
        "l2": np.sqrt((gaps**2).sum(-1)),
        "l1": np.abs(gaps).sum(-1),
        "cosine": 1 - rows @ rows.T / np.outer(norms, norms),
    }[metric]
    run = Run(Simulation(examples.regression([4] * 5), linear(4)))
    distances = update_distances(run, torch.tensor(rows), metric)
    np.testing.assert_allclose(distances, expected, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [{}, {"linkage": "ward", "metric": "l2"}, {"linkage": "complete", "metric": "l1"}, {"k": 2}],
)
def test_groups_are_found(options: dict[str, Any]) -> None:
    federation = digits(num_clients=20, rotations=2)
    result = Hierarchical(**options, global_rounds=5, local=DIGITS).fit(federation, seed=0)
    assert result.partition == federation.data.truth


def test_one_group_is_one_cluster() -> None:
    result = Hierarchical(local=DIGITS).fit(digits(num_clients=20, rotations=1))
    assert result.partition.num_clusters == 1


def test_a_threshold_is_respected() -> None:
    federation = digits(num_clients=8, rotations=2)
    for threshold, count in ((0.0, 8), (2.0, 1)):
        result = Hierarchical(threshold=threshold, local=DIGITS).fit(federation)
        assert result.partition.num_clusters == count


def test_blocks_do_not_matter_and_all_clients_take_part_in_the_clustering() -> None:
    local = LocalTraining(steps=23, local_steps=5, batch_size=10, lr=0.5)
    method = Hierarchical(global_rounds=2, k=2, participation=0.5, local=local)
    made, model = data.rotated_digits(num_clients=8, rotations=2), examples.doubled(mlp(64, 16, 10))
    results = [method.fit(Simulation(made, model, block_size=size), seed=3) for size in (None, 3)]
    assert results[0].partition == results[1].partition == Partition([0, 1] * 4)
    torch.testing.assert_close(results[0].models, results[1].models)
    assert results[0].budget.local_steps == 4 * 10 + 8 * 5 + 4 * 8


@pytest.mark.parametrize(
    "option",
    [
        {"global_rounds": -1},
        {"threshold": -1.0},
        {"k": 0},
        {"linkage": "centroid"},
        {"linkage": "ward", "metric": "l1"},
        {"metric": "l3"},
        {"participation": 0.0},
    ],
)
def test_wrong_values_are_named(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(option))):
        Hierarchical(**option)


def test_more_clusters_than_clients_are_refused_before_training() -> None:
    with pytest.raises(InputError, match="k=5 is more than the 4 clients"):
        Hierarchical(k=5, local=LocalTraining(steps=10)).fit(digits(num_clients=4))


def test_a_round_must_remain_for_the_clustering() -> None:
    with pytest.raises(InputError, match="global_rounds must be less than the 2 rounds"):
        Hierarchical(global_rounds=2, local=LocalTraining(steps=10)).fit(digits(num_clients=4))
