"""Class-balanced cross loss: against its definition, in blocks, and under label skew."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from torch import Tensor

from srfca import SRFCA, ClientData, InputError, LocalTraining, Partition, Simulation
from srfca.distances import (
    Distance,
    ModelSet,
    balanced_cross_loss,
    cross_loss,
    presence_balanced_cross_loss,
)
from srfca.federation import BalancedLosses, ClassCounts, Subsample, Train
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.methods.helpers import DropByNumber

CLASSES = 6
COUNTS = [[9, 0, 5, 0, 7, 1], [4, 6, 8, 0, 0, 3], [0, 7, 0, 9, 0, 8], [5, 5, 5, 5, 5, 5]]
PARTITION = Partition([0, 1, 0, -1])
MEMBERS = [[0, 2], [1]]


def clients_with(counts: list[list[int]], groups: list[int], seed: int = 0) -> ClientData:
    """Clients with these numbers of samples of each class; groups permute the classes."""
    g = torch.Generator().manual_seed(seed)
    centers = 1.5 * torch.randn(CLASSES, 8, generator=g)
    orders = [torch.arange(CLASSES)]
    orders += [torch.randperm(CLASSES, generator=g) for _ in range(max(groups))]

    def draw(numbers: list[int], group: int) -> tuple[Tensor, Tensor]:
        y = torch.arange(CLASSES).repeat_interleave(torch.tensor(numbers))
        y = y[torch.randperm(len(y), generator=g)]
        return centers[orders[group][y]] + torch.randn(len(y), 8, generator=g), y

    parts = [draw(numbers, group) for numbers, group in zip(counts, groups, strict=True)]
    return ClientData.from_arrays(parts, truth=groups)


DATA = clients_with(COUNTS, [0] * 4)


@pytest.fixture(scope="module")
def federation() -> Simulation:
    return Simulation(DATA, examples.doubled(mlp(8, 4, CLASSES)), validation=0)


def rows(federation: Simulation, count: int, seed: int) -> Tensor:
    return torch.stack([federation.initial_model(seed + i) for i in range(count)])


def by_hand(federation: Simulation, row: Tensor, counts: Tensor, client: int) -> float:
    """The loss of a model that was trained on these class counts, on a client's data."""
    x, y = DATA.train.of(client)
    shared = [c for c in range(CLASSES) if counts[c] >= 4 and COUNTS[client][c] >= 4]
    if len(shared) < 2:
        return float("nan")
    logits = federation.module(row)(x.double()).detach()[:, shared]
    losses = -(logits - (counts[shared].double() + 0.5).log()).log_softmax(1)
    means = [float(losses[y == c, position].mean()) for position, c in enumerate(shared)]
    return sum(means) / len(shared) / log(len(shared))


def mean_known(values: list[float]) -> float:
    present = [value for value in values if not np.isnan(value)]
    return sum(present) / len(present) if present else float("nan")


@pytest.mark.parametrize("presence", [False, True])
def test_distances_agree_with_their_definition(federation: Simulation, presence: bool) -> None:
    distance: Distance = presence_balanced_cross_loss if presence else balanced_cross_loss
    w, omega = rows(federation, 4, 0), rows(federation, 2, 10)
    counts = torch.tensor(COUNTS)
    counts = 4 * (counts >= 4) if presence else counts
    of_clusters = torch.stack([counts[members].sum(0) for members in MEMBERS])
    local_models = ModelSet.of_clients(federation, w)
    clusters = ModelSet.of_clusters(federation, tuple(federation.client_ids), omega, PARTITION)

    def loss(model: Tensor, classes: Tensor, clients: list[int]) -> float:
        return mean_known([by_hand(federation, model, classes, client) for client in clients])

    between_clients = [
        [mean_known([loss(w[i], counts[i], [j]), loss(w[j], counts[j], [i])]) for j in range(4)]
        for i in range(4)
    ]
    to_clusters = [
        [
            mean_known([loss(w[i], counts[i], MEMBERS[c]), loss(omega[c], of_clusters[c], [i])])
            for c in range(2)
        ]
        for i in range(4)
    ]
    between_clusters = [
        [
            mean_known(
                [
                    loss(omega[a], of_clusters[a], MEMBERS[b]),
                    loss(omega[b], of_clusters[b], MEMBERS[a]),
                ]
            )
            for b in range(2)
        ]
        for a in range(2)
    ]
    assert np.isnan(between_clients).any(), "some pairs are unknown"
    np.testing.assert_allclose(distance(local_models, local_models), between_clients, rtol=1e-9)
    np.testing.assert_allclose(distance(local_models, clusters), to_clusters, rtol=1e-9)
    np.testing.assert_allclose(distance(clusters, clusters), between_clusters, rtol=1e-9)


def test_blocks_give_the_same_and_counts_are_asked_for_once(federation: Simulation) -> None:
    recording = DropByNumber(federation, {})
    subsample = Subsample(12, 5)
    models = ModelSet.of_clients(recording, rows(federation, 4, 0), subsample=subsample)
    complete = balanced_cross_loss(models, models)
    counted = [request for request in recording.requests if isinstance(request, ClassCounts)]
    assert [request.clients.tolist() for request in counted] == [[0, 1, 2, 3]]
    balanced = [request for request in recording.requests if isinstance(request, BalancedLosses)]
    assert [request.subsample for request in balanced] == [subsample]
    first, second = np.array([3, 1]), np.array([0, 2, 3])
    part = balanced_cross_loss(models.take(first), models.take(second))
    np.testing.assert_allclose(part, complete[np.ix_(first, second)], rtol=1e-9)
    counted = [request for request in recording.requests if isinstance(request, ClassCounts)]
    assert len(counted) == 1


def test_few_representatives_have_the_shares_of_the_whole_cluster(federation: Simulation) -> None:
    names = tuple(federation.client_ids)
    omega = rows(federation, 2, 10)
    complete, few = (
        ModelSet.of_clusters(federation, names, omega, PARTITION, limit) for limit in (None, 1)
    )
    assert len(few.clients) == 2
    assert torch.equal(few.class_shares(), complete.class_shares())


def test_a_client_without_counts_is_compared_in_the_other_direction(
    federation: Simulation,
) -> None:
    w = rows(federation, 4, 0)
    models = ModelSet.of_clients(DropByNumber(federation, {0: [3]}), w)
    complete = ModelSet.of_clients(federation, w)
    losses = complete.loss_on(complete, "balanced").numpy()
    distances = balanced_cross_loss(models, models)
    np.testing.assert_allclose(distances[3, :3], losses[:3, 3])
    np.testing.assert_allclose(distances[:3, :3], balanced_cross_loss(complete, complete)[:3, :3])


def test_regressions_have_no_balanced_loss() -> None:
    simulation = Simulation(examples.regression([20, 20]), linear(4))
    models = ModelSet.of_clients(simulation, rows(simulation, 2, 0))
    with pytest.raises(InputError, match="needs classes"):
        balanced_cross_loss(models, models)


def skewed_clients(seed: int, m: int = 30, n: int = 90) -> ClientData:
    """Two groups whose classes are permuted; every client has mostly three classes."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(CLASSES, 0.6), m)
    counts = [rng.multinomial(n, share).tolist() for share in shares]
    return clients_with(counts, (np.arange(m) % 2).tolist(), seed)


LOCAL = LocalTraining(steps=60, local_steps=60, batch_size=20, optimizer="adam", lr=0.01)


def in_order(distances: np.ndarray, labels: np.ndarray) -> float:
    """The share of known (same, different) pairs in the right order."""
    above = np.triu_indices(len(labels), 1)
    pairs, same = distances[above], (labels[:, None] == labels)[above]
    is_known = ~np.isnan(pairs)
    near, far = pairs[is_known & same], np.sort(pairs[is_known & ~same])
    return float((len(far) - np.searchsorted(far, near)).mean() / len(far))


@pytest.mark.parametrize("seed", [1000, 1001])
def test_label_skew_does_not_mislead(seed: int) -> None:
    data = skewed_clients(seed)
    simulation = Simulation(data, mlp(8, 16, CLASSES))
    starts = simulation.initial_model(0).repeat(len(data), 1)
    request = Train(np.arange(len(data)), starts, LOCAL, Key(0, "x"))
    models = ModelSet.of_clients(simulation, simulation.ask(request).values)
    assert data.truth is not None
    plain, balanced = (
        in_order(distance(models, models), data.truth.labels)
        for distance in (cross_loss, balanced_cross_loss)
    )
    assert balanced > plain
    assert balanced > 0.9


@pytest.mark.parametrize("all_pairs", [1000, 0])
@pytest.mark.parametrize("distance", ["balanced_cross_loss", "presence_balanced_cross_loss"])
def test_sr_fca_runs_with_unknown_pairs(distance: str, all_pairs: int) -> None:
    data = skewed_clients(1002)
    method = SRFCA(local=LOCAL, distance=distance, all_pairs=all_pairs, refine_steps=1, min_size=2)
    result = method.fit(Simulation(data, mlp(8, 16, CLASSES)), seed=1)
    assert len(result.labels_) == len(data)
    distances = result.history[0].distances
    if all_pairs:
        assert distances is not None
        assert np.isnan(distances).any()
