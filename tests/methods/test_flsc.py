"""FLSC: rounds by hand, and its paper's claim in a small form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from srfca import ClientData, FedAvg, InputError, LocalTraining, Simulation
from srfca.methods import FLSC, IFCA, Run
from srfca.methods._common.init import random_models
from srfca.methods.flsc import cluster_means, fuse
from tests import examples
from tests.methods.helpers import (
    Array,
    Arrays,
    DropByNumber,
    arrays,
    descend,
    ifca_by_hand,
    training_losses,
)

TWO_ROUNDS = LocalTraining(steps=6, local_steps=3, batch_size=None, lr=0.05)


def random_regressions(num_clients: int = 12) -> Simulation:
    """Return regressions of three groups whose models start at random."""
    made = examples.regression([20 + i % 3 for i in range(num_clients)], clusters=3)
    return Simulation(made, lambda: nn.Linear(4, 1).double(), validation=0)


def flsc_by_hand(clients: Arrays, models: Array, count: int) -> tuple[Array, list[list[int]]]:
    """Run two rounds of three steps on linear regressions with full batches, as a plain loop."""
    models = models.copy()
    for _ in range(2):
        chosen = np.argsort(training_losses(clients, models), axis=0)[:count].T
        sums, weights = np.zeros_like(models), np.zeros(len(models))
        for (x, y), clusters in zip(clients, chosen, strict=True):
            row = descend(models[clusters].mean(0), x, y, 3, 0.05)
            for cluster in clusters:
                sums[cluster] += len(y) * row
                weights[cluster] += len(y)
        models = np.array(
            [s / w if w else m for s, w, m in zip(sums, weights, models, strict=True)]
        )
    return models, np.argsort(training_losses(clients, models), axis=0)[:count].T.tolist()


def test_rounds_by_hand() -> None:
    federation = random_regressions(num_clients=7)
    start = random_models(Run(federation, 3), 4, "flsc start").numpy()
    expected, chosen = flsc_by_hand(arrays(federation.data), start, count=2)
    result = FLSC(k=4, local=TWO_ROUNDS).fit(federation, seed=3)
    mixed = np.stack([expected[clusters].mean(0) for clusters in chosen])
    assert result.individual_models is not None
    np.testing.assert_allclose(result.individual_models.numpy(), mixed, rtol=1e-9)
    assert result.history[-1].notes["clusters"] == [sorted(clusters) for clusters in chosen]
    nearest = np.array([clusters[0] for clusters in chosen])
    assert (result.labels[:, None] == result.labels).tolist() == (
        nearest[:, None] == nearest
    ).tolist()


def test_one_cluster_per_client_is_ifca() -> None:
    federation = random_regressions()
    start = random_models(Run(federation, 0), 3, "flsc start").numpy()
    models, labels = ifca_by_hand(arrays(federation.data), start, 2, 3, 0.05)
    result = FLSC(k=3, clusters_per_client=1, local=TWO_ROUNDS).fit(federation)
    np.testing.assert_allclose(result.client_models.numpy(), models[labels], rtol=1e-9)


def test_overlapping_clusters_need_no_exact_k_where_samples_are_few() -> None:
    """The paper's claim: clients in several clusters share more, and beat IFCA with the same k."""
    generator = torch.Generator().manual_seed(0)
    teachers = torch.randn(2, 8, generator=generator)

    def draw(n: int, client: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(n, 8, generator=generator)
        return x, x @ teachers[client % 2] + 0.7 * torch.randn(n, generator=generator)

    clients = range(16)
    made = ClientData.from_arrays([draw(6, i) for i in clients], [draw(40, i) for i in clients])
    federation = Simulation(made, lambda: nn.Linear(8, 1))
    local = LocalTraining(steps=150, local_steps=3, batch_size=None, lr=0.05)
    soft, *others = (
        float(method.fit(federation).scores(federation).loss.mean())
        for method in (FLSC(k=4, local=local), IFCA(k=4, local=local), FedAvg(local=local))
    )
    assert soft < 0.7 * min(others)


def test_a_client_without_last_reply_keeps_the_clusters_that_it_chose() -> None:
    """Client 2 replies to the first two requests alone: losses and training of round 1."""
    federation = DropByNumber(random_regressions(), {number: [2] for number in range(2, 60)})
    result = FLSC(k=3, local=TWO_ROUNDS).fit(federation, seed=3)
    start = random_models(Run(random_regressions(), 3), 3, "flsc start").numpy()
    losses = training_losses(arrays(random_regressions().data), start)[:, 2]
    assert result.history[-1].notes["clusters"][2] == sorted(np.argsort(losses)[:2].tolist())
    assert result.labels[2] >= 0
    assert result.models.isfinite().all()


def test_a_cluster_without_clients_keeps_its_model() -> None:
    rows, models = torch.tensor([[2.0], [6.0]]), torch.tensor([[0.0], [9.0]])
    means = cluster_means(rows, torch.tensor([[3.0, 0.0], [1.0, 0.0]]), models)
    assert means.tolist() == [[3.0], [9.0]]
    assert fuse(models, torch.zeros(1, 2, dtype=torch.bool)).tolist() == [[4.5]]


def test_wrong_values_are_named() -> None:
    with pytest.raises(InputError, match="clusters_per_client"):
        FLSC(clusters_per_client=0)


def test_a_client_is_in_k_clusters_at_most() -> None:
    result = FLSC(k=1, clusters_per_client=2, local=TWO_ROUNDS).fit(
        random_regressions(num_clients=3)
    )
    assert result.labels.tolist() == [0, 0, 0]
