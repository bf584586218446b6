from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from srfca import ClientData, InputError, Partition, Simulation, Work, data
from srfca.methods import Global, Hierarchical
from srfca.methods.hierarchical import update_distances
from srfca.methods.run import Run
from srfca.models import linear, mlp
from tests import examples

DIGITS = Work(steps=60, batch_size=10, lr=0.5)


def digits(clients: int = 20, rotations: int = 2, **options: Any) -> Simulation:
    dealt = data.rotated_digits(num_clients=clients, rotations=rotations)
    return Simulation(dealt, mlp(64, 32, 10), **options)


def test_three_rounds_by_hand() -> None:
    draws = np.random.default_rng(0)
    x = draws.normal(size=(4, 20))
    y = np.array([3.0, -3.0, 3.5, -2.0])[:, None] * x
    clients = ClientData.from_arrays(
        [(torch.tensor(a)[:, None], torch.tensor(b)) for a, b in zip(x, y, strict=True)]
    )
    model = linear(1, bias=False)
    rate = 0.1
    work = Work(steps=3, local_steps=1, batch_size=None, lr=rate)
    method = Hierarchical(global_rounds=1, threshold=0.4, metric="l1", weighted=False, work=work)
    result = method.fit(Simulation(clients, lambda: model().double(), validation=0))

    def stepped(w: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(w - rate * (2 * (w[:, None] * x - y) * x).mean(1))

    together = stepped(np.zeros(4)).mean()
    own = stepped(np.full(4, together))
    means = np.array([own[[0, 2]].mean(), own[[1, 3]].mean()])
    last = stepped(means[[0, 1, 0, 1]])
    assert result.labels.tolist() == [0, 1, 0, 1]
    assert result.models.flatten().tolist() == pytest.approx(
        [last[[0, 2]].mean(), last[[1, 3]].mean()], rel=1e-12
    )
    stage = next(stage for stage in result.history if stage.name == "CLUSTER")
    assert stage.distances is not None
    np.testing.assert_allclose(stage.distances, np.abs(own[:, None] - own), atol=1e-12)


def test_one_cluster_is_fedavg() -> None:
    clients = Simulation(examples.classification([20] * 6), mlp(6, 5, 3))
    work = Work(steps=13, local_steps=3, batch_size=None, lr=0.1, schedule="linear")
    found = Hierarchical(k=1, global_rounds=2, work=work).fit(clients)
    fedavg = Global(work=work).fit(clients)
    assert found.budget.local_steps == fedavg.budget.local_steps == 6 * 13
    torch.testing.assert_close(found.models, fedavg.models)


@pytest.mark.parametrize("metric", ["l2", "l1", "cosine"])
def test_distances_of_updates(metric: str) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 3))
    gaps = rows[:, None] - rows
    norms = np.linalg.norm(rows, axis=1)
    expected = {
        "l2": np.sqrt((gaps**2).sum(-1)),
        "l1": np.abs(gaps).sum(-1),
        "cosine": 1 - rows @ rows.T / np.outer(norms, norms),
    }[metric]
    run = Run(Simulation(examples.regression([4] * 5), linear(4)))
    found = update_distances(run, torch.tensor(rows), metric)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [{}, {"linkage": "ward", "metric": "l2"}, {"linkage": "complete", "metric": "l1"}, {"k": 2}],
)
def test_groups_are_found(options: dict[str, Any]) -> None:
    clients = digits()
    result = Hierarchical(**options, global_rounds=5, work=DIGITS).fit(clients, seed=0)
    assert result.partition == clients.data.truth


def test_one_group_is_left_whole() -> None:
    assert Hierarchical(work=DIGITS).fit(digits(rotations=1)).partition.num_clusters == 1


def test_a_threshold_is_kept_to() -> None:
    clients = digits(clients=8)
    for threshold, count in ((0.0, 8), (2.0, 1)):
        result = Hierarchical(threshold=threshold, work=DIGITS).fit(clients)
        assert result.partition.num_clusters == count


def test_blocks_do_not_matter_and_clustering_asks_everybody() -> None:
    work = Work(steps=23, local_steps=5, batch_size=10, lr=0.5)
    method = Hierarchical(global_rounds=2, k=2, participation=0.5, work=work)
    results = [
        method.fit(
            Simulation(
                data.rotated_digits(num_clients=8, rotations=2),
                lambda: mlp(64, 16, 10)().double(),
                block_size=size,
            ),
            seed=3,
        )
        for size in (None, 3)
    ]
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
def test_bad_parameters_are_named(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(option))):
        Hierarchical(**option)


def test_more_clusters_than_clients_are_refused_before_training() -> None:
    with pytest.raises(InputError, match="k=5 is more than the 4 clients"):
        Hierarchical(k=5, work=Work(steps=10)).fit(digits(clients=4))


def test_a_round_must_be_left_for_the_clustering() -> None:
    with pytest.raises(InputError, match="global_rounds must be less than the 2 rounds"):
        Hierarchical(global_rounds=2, work=Work(steps=10)).fit(digits(clients=4))
