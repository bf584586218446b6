"""One-shot k-means: by hand, and against FedAvg in the true clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from srfca import ClientData, InputError, LocalTraining, Partition, Simulation
from srfca.methods import OneShotKMeans, Oracle
from srfca.methods.one_shot_kmeans import cluster_rows
from srfca.models import linear, mlp
from tests import examples
from tests.methods.helpers import digits

DIGITS = LocalTraining(steps=60, batch_size=10, lr=0.5)


def test_by_hand() -> None:
    rng = np.random.default_rng(0)
    sizes, slopes = [10, 30, 20, 20], np.array([3.0, -3.0, 3.5, -2.0])
    x = [rng.normal(size=n) for n in sizes]
    y = [slope * inputs for slope, inputs in zip(slopes, x, strict=True)]
    made = ClientData.from_arrays(
        [(torch.tensor(a)[:, None], torch.tensor(b)) for a, b in zip(x, y, strict=True)]
    )
    rate = 0.1
    local = LocalTraining(steps=2, local_steps=1, batch_size=None, lr=rate)
    model = examples.doubled(linear(1, bias=False))
    result = OneShotKMeans(k=2, local=local).fit(Simulation(made, model, validation=0))

    def stepped(w: float, client: int) -> float:
        return float(w - rate * (2 * (w * x[client] - y[client]) * x[client]).mean())

    assert result.labels.tolist() == [0, 1, 0, 1]
    for cluster, (a, b) in enumerate([(0, 2), (1, 3)]):
        w = 0.0
        for _ in range(2):
            w = (sizes[a] * stepped(w, a) + sizes[b] * stepped(w, b)) / (sizes[a] + sizes[b])
        assert result.models[cluster].item() == pytest.approx(w, rel=1e-12)
    assert result.budget.local_steps == 2 * 2 * 4, "two trainings"
    assert OneShotKMeans(k=2).trainings == 2


@settings(max_examples=30)
@given(st.integers(3, 8), st.integers(1, 9), st.integers(2, 3), st.integers(0, 2**32 - 1))
def test_every_client_is_with_the_nearest_mean(count: int, width: int, k: int, seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(count, width))
    partition = cluster_rows(torch.tensor(points), k, starts=3, word=seed)
    means = np.stack([points[members].mean(0) for members in partition])
    assert partition.num_clusters == k
    nearest = ((points[:, None] - means) ** 2).sum(-1).argmin(1)
    assert nearest.tolist() == partition.labels.tolist()


def test_equal_clients_leave_clusters_empty() -> None:
    assert cluster_rows(torch.ones(5, 3), 3, starts=2, word=0).num_clusters == 1
    x, y = torch.randn(12, 2, generator=torch.Generator().manual_seed(0)), torch.ones(12)
    alike = Simulation(ClientData.from_arrays([(x, y)] * 4), linear(2), validation=0)
    local = LocalTraining(steps=3, batch_size=None, lr=0.1)
    result = OneShotKMeans(k=3, local=local).fit(alike)
    assert result.partition.num_clusters == len(result.models) == 1
    assert result.history[0].notes["empty"] == 2


def test_groups_are_found_and_trained_as_if_they_were_known() -> None:
    federation = digits(num_clients=20)
    result = OneShotKMeans(k=4, local=DIGITS).fit(federation, seed=0)
    assert result.partition == federation.data.truth
    oracle = Oracle(truth=federation.data.truth, local=DIGITS).fit(federation, seed=0)
    assert torch.equal(result.models, oracle.models)


def test_a_wrong_k_cuts_through_groups() -> None:
    federation = digits(num_clients=20, rotations=2)
    result = OneShotKMeans(k=3, local=DIGITS).fit(federation)
    assert result.partition.num_clusters == 3
    assert federation.data.truth is not None
    assert result.partition.purity(federation.data.truth) == 1


def test_the_result_does_not_depend_on_blocks() -> None:
    local = LocalTraining(steps=12, local_steps=3, batch_size=8, lr=0.1)
    made, model = examples.classification([20] * 8), examples.doubled(mlp(6, 5, 3))
    results = [
        OneShotKMeans(k=3, participation=0.5, local=local).fit(
            Simulation(made, model, block_size=size), seed=3
        )
        for size in (None, 1, 3)
    ]
    for result in results:
        assert result.partition == results[0].partition
        torch.testing.assert_close(result.models, results[0].models)
    assert results[0].partition != Partition([0] * 8)


@pytest.mark.parametrize("option", [{"k": 0}, {"starts": 0}, {"participation": 2.0}])
def test_wrong_values_are_named(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(option))):
        OneShotKMeans(**option)


def test_more_clusters_than_clients_are_refused() -> None:
    with pytest.raises(InputError, match="k=4 is more than the 3 clients"):
        OneShotKMeans(k=4).fit(Simulation(examples.regression([4] * 3), linear(4)))
