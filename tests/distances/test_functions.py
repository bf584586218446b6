from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import InputError, Simulation
from srfca.clustering import Partition
from srfca.distances import (
    ModelSet,
    allows_unknown,
    balanced_cross_loss,
    cosine,
    cross_loss,
    distance_named,
    lq,
    norms,
    one_sided_loss,
)
from srfca.models import mlp
from srfca.testing import ReferenceFederation
from tests import examples
from tests.asking import losses

DATA = examples.classification([5, 9, 7, 6])
PARTITION = Partition([0, 1, 0, -1])


@pytest.fixture(scope="module")
def federation() -> Simulation:
    return Simulation(DATA, examples.doubled(mlp(6, 4, 3)))


@pytest.fixture(scope="module")
def reference() -> ReferenceFederation:
    return ReferenceFederation(DATA, examples.doubled(mlp(6, 4, 3)))


def rows(federation: Simulation, count: int, seed: int) -> torch.Tensor:
    return torch.stack([federation.initial_model(seed + i) for i in range(count)])


def cluster_models(federation: Simulation, models: torch.Tensor) -> ModelSet:
    return ModelSet.of_clusters(federation, tuple(federation.client_ids), models, PARTITION)


def test_losses_agree_with_their_definition(
    federation: Simulation, reference: ReferenceFederation
) -> None:
    w, omega = rows(federation, 4, 0), rows(federation, 2, 10)
    clients = ModelSet.of_clients(federation, w)
    clusters = cluster_models(federation, omega)

    def loss(model: torch.Tensor, client: int) -> float:
        return float(losses(reference, [client], model.unsqueeze(0))[0, 0])

    members = [[0, 2], [1]]
    between_clients = [[(loss(w[i], j) + loss(w[j], i)) / 2 for j in range(4)] for i in range(4)]
    to_clusters = [
        [(np.mean([loss(w[i], j) for j in members[c]]) + loss(omega[c], i)) / 2 for c in range(2)]
        for i in range(4)
    ]
    between_clusters = [
        [
            (
                np.mean([loss(omega[a], j) for j in members[b]])
                + np.mean([loss(omega[b], j) for j in members[a]])
            )
            / 2
            for b in range(2)
        ]
        for a in range(2)
    ]
    np.testing.assert_allclose(cross_loss(clients, clients), between_clients, rtol=1e-9)
    np.testing.assert_allclose(cross_loss(clients, clusters), to_clusters, rtol=1e-9)
    np.testing.assert_allclose(cross_loss(clusters, clusters), between_clusters, rtol=1e-9)
    one_sided = [[loss(omega[c], i) for c in range(2)] for i in range(4)]
    np.testing.assert_allclose(one_sided_loss(clients, clusters), one_sided, rtol=1e-9)


@pytest.mark.parametrize("q", [1, 1.5, 2, 3, float("inf")])
@pytest.mark.parametrize("block", [1, 7, 50, None])
def test_norms_in_blocks_of_coordinates(q: float, block: int | None) -> None:
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(30, 50, generator=g), torch.randn(4, 50, generator=g)
    expected = (a.double().unsqueeze(1) - b.double()).norm(p=q, dim=-1)
    torch.testing.assert_close(norms(a, b, q, block), expected)


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0, 3.0, float("inf")])
def test_lq_is_the_norm_of_the_difference(federation: Simulation, q: float) -> None:
    w, v = rows(federation, 4, 0), rows(federation, 2, 10)
    distances = lq(q)(ModelSet.of_clients(federation, w), cluster_models(federation, v))
    expected = [[np.linalg.norm((a - b).numpy(), ord=q) for b in v] for a in w]
    np.testing.assert_allclose(distances, expected, rtol=1e-9)


def test_cosine(federation: Simulation) -> None:
    w = rows(federation, 4, 0)
    local_models = ModelSet.of_clients(federation, w)
    expected = [[1 - float(a @ b) / float(a.norm() * b.norm()) for b in w] for a in w]
    np.testing.assert_allclose(cosine(local_models, local_models), expected, atol=1e-12)


def test_distances_by_name(federation: Simulation) -> None:
    models = ModelSet.of_clients(federation, rows(federation, 4, 0))
    np.testing.assert_allclose(distance_named("l3")(models, models), lq(3)(models, models))
    assert distance_named(cosine) is cosine
    assert distance_named("balanced_cross_loss") is balanced_cross_loss
    assert not allows_unknown(cross_loss)
    assert allows_unknown(balanced_cross_loss)
    assert allows_unknown("presence_balanced_cross_loss")
    assert allows_unknown(lambda a, b: np.zeros((len(a.models), len(b.models))))
    with pytest.raises(InputError, match="did you mean 'cross_loss'"):
        distance_named("crossloss")
    with pytest.raises(InputError, match="q >= 1"):
        distance_named("l0.5")


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e30])
@pytest.mark.parametrize("q", [2.5, 50.0, 1000.0])
def test_norms_of_large_q_neither_overflow_nor_vanish(q: float, size: float) -> None:
    a = size * torch.tensor([[3.0, -3.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    expected = size * 3 * (2 + 3**-q) ** (1 / q)
    np.testing.assert_allclose(norms(a, a, q, 3), [[0, expected], [expected, 0]], rtol=1e-12)
    assert norms(a[:1], a[1:] + torch.inf, q).isinf().all()


@pytest.mark.parametrize("name", ["l1", "l2", "l3", "linf", "cosine"])
def test_distances_of_rows_are_over_trained_coordinates(name: str) -> None:
    data = examples.classification([5, 9, 7], (1, 6, 6))
    federation = Simulation(data, examples.batch_normed)
    layout = federation.architecture.layout
    w = torch.randn(3, layout.length, generator=torch.Generator().manual_seed(0))
    state = layout.unstack(w.clone())
    for buffer in set(layout.shapes) - set(layout.parameters):
        state[buffer] += 100
    models = ModelSet.of_clients(federation, w)
    moved = ModelSet.of_clients(federation, layout.stack(state))
    distance = distance_named(name)
    np.testing.assert_allclose(distance(models, moved), distance(models, models), atol=1e-6)
    length = sum(layout.shapes[entry].numel() for entry in layout.parameters)
    assert models.trained.shape == (3, length)
    assert length < layout.length
